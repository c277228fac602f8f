"""Renders Markdown as HTML for the page.

All text passes through `escape()`, and only the tags below are generated. So a model's HTML,
scripts and external pictures never reach the page, and the browser needs no parser or sanitizer.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape, unescape

from remoteclaw.gateway.page.highlighting import code_html
from remoteclaw.markdown import (
    Block,
    CodeBlock,
    Heading,
    HorizontalRule,
    ListBlock,
    Paragraph,
    Quote,
    Span,
    Table,
    blocks_of,
)

#: The level of an answer's highest heading, one below the heading with the author's name: users of
#: screen readers navigate by headings, so no level is skipped.
FIRST_HEADING = 3
#: The number of an item of a list, which the browser shows.
_NUMBER = re.compile(r"^[ >]*[0-9]+[.)] ", re.MULTILINE)
#: The beginning of a code block, with the language that the style sheet shows.
_LANGUAGE = re.compile(r'<pre [^>]*data-language="([^"]*)">')
_TAG = re.compile(r"<[^>]*>")
#: The box of a task, and its label for screen readers.
_BOXES = {True: ("☑", "done"), False: ("☐", "to do")}


def html_of(markdown: str) -> str:
    """Return the HTML of a Markdown text."""
    blocks = list(blocks_of(markdown))
    highest = min((block.level for block in blocks if isinstance(block, Heading)), default=1)
    return "".join(_blocks(blocks, FIRST_HEADING - highest))


def hides_words(markdown: str) -> bool:
    """Whether a Markdown text has words that its HTML doesn't show, or shows others.

    Such are addresses of links, definitions of links, and encoded characters.
    """
    shown = unescape(_TAG.sub("", _LANGUAGE.sub(r"\1", html_of(markdown))))
    return re.findall(r"\w", _NUMBER.sub("", markdown)) != re.findall(r"\w", shown)


def _blocks(blocks: Iterable[Block], level_offset: int) -> Iterator[str]:
    for block in blocks:
        yield from _block(block, level_offset)


def _block(block: Block, level_offset: int) -> Iterator[str]:
    match block:
        case Paragraph(spans):
            yield from _within("p", spans)
        case Heading(level, spans):
            yield from _within(f"h{min(6, max(FIRST_HEADING, level + level_offset))}", spans)
        case CodeBlock(language, text):
            # `tabindex` makes a wide block scrollable with the keyboard.
            yield f'<pre tabindex="0" data-language="{escape(language)}"><code>'
            yield f"{code_html(language, text)}</code></pre>"
        case ListBlock():
            yield from _list(block, level_offset)
        case Table():
            yield from _table(block)
        case Quote(blocks):
            yield "<blockquote>"
            yield from _blocks(blocks, level_offset)
            yield "</blockquote>"
        case HorizontalRule():
            yield "<hr>"


def _list(block: ListBlock, level_offset: int) -> Iterator[str]:
    first, tag = block.start, "ul" if block.start is None else "ol"
    yield f'<{tag} start="{first}">' if first not in (None, 1) else f"<{tag}>"
    for item in block.items:
        yield "<li>" if item.is_checked is None else '<li class="task">'
        if item.is_checked is not None:
            box, label = _BOXES[item.is_checked]
            yield f'<span role="img" aria-label="{label}">{box}</span> '
        match item.blocks:
            case (Paragraph(spans), *rest):  # most items are a single line
                yield from _spans(spans)
                yield from _blocks(rest, level_offset)
            case blocks:
                yield from _blocks(blocks, level_offset)
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
    # `auto` aligns right-to-left text to the right.
    yield f'<{tag} dir="auto">'
    yield from _spans(spans)
    yield f"</{tag}>"


def _spans(spans: Iterable[Span]) -> Iterator[str]:
    for span in spans:
        if span.text == "\n":
            yield "<br>"
            continue
        text = escape(span.text)
        tags = {
            "code": span.is_code,
            "s": span.is_struck,
            "em": span.is_italic,
            "strong": span.is_bold,
        }
        for tag, is_set in tags.items():
            if is_set:
                text = f"<{tag}>{text}</{tag}>"
        if span.link:
            rel = 'rel="noopener noreferrer" target="_blank"'
            text = f'<a href="{escape(span.link)}" {rel}>{text}</a>'
        yield text
