"""Markdown as HTML, for the page.

Nothing of a text gets into the page but through `escape()`, and each tag is one of those below: so
there is no HTML of a model, no script and no picture from elsewhere, and the browser needs neither
a parser nor a sanitizer.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from remoteclaw.markdown import (
    Block,
    CodeBlock,
    Heading,
    ListBlock,
    Paragraph,
    Quote,
    Rule,
    Span,
    Table,
    blocks_of,
)

#: What an answer's highest heading is on the page, below the page's own and that of who wrote it:
#: those who listen go from heading to heading, and none is left out between them.
FIRST_HEADING = 3
#: The box of a task, as it is shown and as it is read aloud.
_BOXES = {True: ("☑", "done"), False: ("☐", "to do")}


def html_of(markdown: str) -> str:
    """Return a Markdown text as HTML."""
    blocks = list(blocks_of(markdown))
    highest = min((one.level for one in blocks if isinstance(one, Heading)), default=1)
    return "".join(_blocks(blocks, FIRST_HEADING - highest))


def _blocks(blocks: Iterable[Block], lower: int) -> Iterator[str]:
    for block in blocks:
        yield from _block(block, lower)


def _block(block: Block, lower: int) -> Iterator[str]:
    match block:
        case Paragraph(spans):
            yield from _within("p", spans)
        case Heading(level, spans):
            yield from _within(f"h{min(6, max(FIRST_HEADING, level + lower))}", spans)
        case CodeBlock(language, text):
            # `tabindex`: who has no mouse scrolls what is wider than the page.
            yield f'<pre tabindex="0" data-language="{escape(language)}"><code>{escape(text)}'
            yield "</code></pre>"
        case ListBlock():
            yield from _list(block, lower)
        case Table():
            yield from _table(block)
        case Quote(blocks):
            yield "<blockquote>"
            yield from _blocks(blocks, lower)
            yield "</blockquote>"
        case Rule():
            yield "<hr>"


def _list(block: ListBlock, lower: int) -> Iterator[str]:
    first, tag = block.start, "ul" if block.start is None else "ol"
    yield f'<{tag} start="{first}">' if first not in (None, 1) else f"<{tag}>"
    for item in block.items:
        yield "<li>" if item.is_checked is None else '<li class="task">'
        if item.is_checked is not None:
            box, words = _BOXES[item.is_checked]
            yield f'<span role="img" aria-label="{words}">{box}</span> '
        match item.blocks:
            case (Paragraph(spans), *rest):  # most items are a line
                yield from _spans(spans)
                yield from _blocks(rest, lower)
            case blocks:
                yield from _blocks(blocks, lower)
        yield "</li>"
    yield f"</{tag}>"


def _table(table: Table) -> Iterator[str]:
    yield '<div class="table" tabindex="0"><table><thead>'
    yield from _row(table, table.head, "th")
    yield "</thead><tbody>"
    for row in table.rows:
        yield from _row(table, row, "td")
    yield "</tbody></table></div>"


def _row(table: Table, cells: Sequence[Sequence[Span]], tag: str) -> Iterator[str]:
    yield "<tr>"
    for align, cell in zip(table.aligns, cells, strict=True):
        yield f'<{tag} class="{align}">'
        yield from _spans(cell)
        yield f"</{tag}>"
    yield "</tr>"


def _within(tag: str, spans: Iterable[Span]) -> Iterator[str]:
    # `auto`: a text from right to left stands as its readers expect.
    yield f'<{tag} dir="auto">'
    yield from _spans(spans)
    yield f"</{tag}>"


def _spans(spans: Iterable[Span]) -> Iterator[str]:
    for span in spans:
        if span.text == "\n":
            yield "<br>"
            continue
        text = escape(span.text)
        looks = {
            "code": span.is_code,
            "s": span.is_struck,
            "em": span.is_italic,
            "strong": span.is_bold,
        }
        for tag, has_it in looks.items():
            if has_it:
                text = f"<{tag}>{text}</{tag}>"
        if span.link:
            rel = 'rel="noopener noreferrer" target="_blank"'
            text = f'<a href="{escape(span.link)}" {rel}>{text}</a>'
        yield text
