"""Writes Markdown as messages of Matrix: the Markdown as the plain body, and HTML beside it.

Only the tags below are written, all of which a client may show, and all text is escaped.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from remoteclaw.channels.matrix.api import json_of
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
from remoteclaw.messages import without_mentions

#: HTML is left out if a content has more bytes with it: an event has at most 65,536, of which
#: encryption adds a third, and an edit 2,500.
MAX_CONTENT = 39_000
#: Characters that nobody sees, each of which has up to six bytes in an event.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
#: A mention of everybody or of a person, behind the sign.
_MENTION = re.compile(r"@(?P<who>room\b|[\w.=/+-]+:[\w.-]+)", re.IGNORECASE)
_TO_PERSON = re.compile(r"https?://matrix\.to/#/(?:@|%40)", re.IGNORECASE)


def content_of(markdown: str, *, is_quiet: bool, asked_by: str | None = None) -> dict[str, Any]:
    """Return the content of a message, which mentions nobody but the person who has asked.

    A message that is quiet notifies nobody.
    """
    stays = asked_by[1:] if asked_by else None
    text = without_mentions(_CONTROLS.sub("", markdown), _MENTION, stays=stays)
    content: dict[str, Any] = {
        "msgtype": "m.notice" if is_quiet else "m.text",
        "body": text,
        "m.mentions": {},
    }
    html = "".join(_blocks(blocks_of(text)))
    rich = {**content, "format": "org.matrix.custom.html", "formatted_body": html}
    return rich if len(json_of(rich)) <= MAX_CONTENT else content


def _blocks(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(spans):
            yield f"<p>{_spans(spans)}</p>"
        case Heading(level, spans):
            yield f"<h{level}>{_spans(spans)}</h{level}>"
        case CodeBlock(language, text):
            kind = f' class="language-{escape(language)}"' if language else ""
            yield f"<pre><code{kind}>{escape(text, quote=False)}\n</code></pre>"
        case Quote(blocks):
            yield f"<blockquote>{''.join(_blocks(blocks))}</blockquote>"
        case ListBlock():
            yield from _list(block)
        case Table():
            yield from _table(block)
        case HorizontalRule():
            yield "<hr>"


def _list(block: ListBlock) -> Iterator[str]:
    tag = "ul" if block.start is None else "ol"
    yield f'<{tag} start="{block.start}">' if block.start not in (None, 1) else f"<{tag}>"
    for item in block.items:
        yield f"<li>{ {None: '', True: '☑ ', False: '☐ '}[item.is_checked] }"
        match item.blocks:
            case (Paragraph(spans), *rest):  # most items are a single line
                yield _spans(spans)
                yield from _blocks(rest)
            case blocks:
                yield from _blocks(blocks)
        yield "</li>"
    yield f"</{tag}>"


def _table(table: Table) -> Iterator[str]:
    yield f"<table><thead>{_row(table.head, 'th')}</thead><tbody>"
    for row in table.rows:
        yield _row(row, "td")
    yield "</tbody></table>"


def _row(cells: Sequence[Sequence[Span]], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{_spans(cell)}</{tag}>' for cell in cells)}</tr>"


def _spans(spans: Iterable[Span]) -> str:
    return "".join(map(_span, spans))


def _span(span: Span) -> str:
    if span.text == "\n":
        return "<br>"
    text = escape(span.text, quote=False)
    tags = {
        "code": span.is_code,
        "del": span.is_struck,
        "em": span.is_italic,
        "strong": span.is_bold,
    }
    for tag, is_set in tags.items():
        if is_set:
            text = f"<{tag}>{text}</{tag}>"
    if span.link and not _TO_PERSON.match(span.link):  # a client makes a mention of such a link
        text = f'<a href="{escape(span.link)}">{text}</a>'
    return text
