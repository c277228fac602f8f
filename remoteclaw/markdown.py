"""Markdown as blocks and spans, for terminals, chats and pages.

pyromark parses, and `blocks_of()` builds the blocks from its events. HTML stays text. A link with
another scheme than http, https and mailto becomes text.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyromark

Align = Literal["none", "left", "center", "right"]

#: The maximum nesting of blocks and spans; deeper content becomes plain text.
MAX_DEPTH = 24
#: The length, in characters, at which a line after an empty one can't become another kind of block
#: any more: with fewer, it may still become an item of a list, such as `1000. x`.
CERTAIN_CHARS = 8

_OPTIONS = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_STRIKETHROUGH
    | pyromark.Options.ENABLE_TASKLISTS
)
#: The addresses that a link may have: never a script or a file.
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x1f]+\Z", re.IGNORECASE)
#: An address in plain text, without the punctuation after it.
_BARE_LINK = re.compile(r"https?://[^\s<>\"'`]*[^\s<>\"'`.,:;!?)\]}*_]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text with one format. A line break is a span of its own, `"\\n"`."""

    text: str
    is_bold: bool = False
    is_italic: bool = False
    is_struck: bool = False
    is_code: bool = False
    link: str | None = None
    """The address of a link: http, https or mailto; None if the span is no link."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of level 1 to 6."""

    level: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A block of code."""

    language: str
    """The language in the first line; empty if there is none."""
    text: str
    """The code, without the last line break."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a list."""

    blocks: "tuple[Block, ...]"
    is_checked: bool | None = None
    """Whether the item's checkbox is checked; None if it has none."""


@dataclass(frozen=True, slots=True)
class ListBlock:
    """A list."""

    start: int | None
    """The number of the first item; None for a list with bullets."""
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; a cell is a tuple of spans, and all rows are as long as the head."""

    aligns: tuple[Align, ...]
    head: tuple[tuple[Span, ...], ...]
    rows: tuple[tuple[tuple[Span, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class Quote:
    """A quotation."""

    blocks: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True)
class HorizontalRule:
    """A horizontal line between two parts of a text."""


Block = Paragraph | Heading | CodeBlock | ListBlock | Table | Quote | HorizontalRule


def blocks_of(text: str) -> tuple[Block, ...]:
    """Return the blocks of a Markdown text."""
    return _Builder(iter(pyromark.events(_valid(text), options=_OPTIONS))).blocks(None)


class MarkdownStream:
    """Markdown that is still being written: returns each block once, when the next one begins.

    Only the text after the last complete block is parsed again, so the cost doesn't depend on the
    length of the whole text.
    """

    def __init__(self) -> None:
        self._text = ""
        self._complete_chars = 0
        """The length of the complete blocks, in characters."""
        self._parsed = ""
        """The text that was parsed last, to skip a parse while nothing certain is added."""

    @property
    def text(self) -> str:
        """The text so far."""
        return self._text

    @property
    def open_text(self) -> str:
        """The text after the last complete block."""
        return self._text[self._complete_chars :]

    def continues(self, text: str) -> bool:
        """Return whether a text begins with the blocks that were returned."""
        return text.startswith(self._text[: self._complete_chars])

    def feed(self, text: str) -> tuple[Block, ...]:
        """Set the whole text so far; return the blocks that have become complete."""
        self._text = text
        certain = _certain_part(self.open_text)
        if certain == self._parsed:
            return ()
        self._parsed = certain
        raw = _valid(certain).encode()
        starts = [*_top_level_starts(raw)]
        if len(starts) < 2:
            return ()
        complete = raw[: starts[-1]].decode()
        self._complete_chars += len(complete)
        return blocks_of(complete)

    def finish(self) -> tuple[Block, ...]:
        """Return the remaining blocks, at the end of the text."""
        rest = self.open_text
        self._complete_chars = len(self._text)
        return blocks_of(rest)


def _valid(text: str) -> str:
    """Return a text of the same length in which `?` replaces lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def _certain_part(text: str) -> str:
    """Return a text without its last line, if that may still continue the block before it.

    While a row of a table, or an item of a list, is short, it looks like a paragraph.
    """
    before, line_break, last = text.rpartition("\n")
    is_new_block = before.endswith("\n") and len(last.strip()) >= CERTAIN_CHARS
    return text if is_new_block else before + line_break


def _top_level_starts(raw: bytes) -> Iterator[int]:
    """Yield the position of each top-level block of a text, in bytes."""
    depth = 0
    for event, place in pyromark.events_with_range(raw.decode(), options=_OPTIONS):
        match event:
            case {"Start": _}:
                if depth == 0:
                    yield place["start"]
                depth += 1
            case {"End": _}:
                depth -= 1
            case "Rule" if depth == 0:
                yield place["start"]


class _Builder:
    """Builds blocks from events; each method reads up to the end of the element that has begun."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._boxes: list[bool | None] = []
        """For each item that has begun and not ended, whether its checkbox is checked."""
        self._depth = 0

    def blocks(self, end: str | None) -> tuple[Block, ...]:
        """Return the blocks up to the end of the element `end`; None for the end of the text."""
        blocks: list[Block] = []
        loose: list[Span] = []

        def flush() -> None:
            if loose:
                blocks.append(Paragraph(_merged(loose)))
                loose.clear()

        for event in self._events:
            match event:
                case {"End": tag} if _name(tag) == end:
                    break
                case {"Start": tag} if reader := _READERS.get(_name(tag)):
                    flush()
                    blocks.append(self._nested(reader, tag))
                case "Rule":
                    flush()
                    blocks.append(HorizontalRule())
                case _:
                    # The items of a tight list have text without a paragraph.
                    self._add_inline(event, loose, Span(""))
        flush()
        return tuple(blocks)

    def _nested(self, reader: "_Reader", tag: Any) -> Block:
        if self._depth == MAX_DEPTH:
            return Paragraph(tuple(self._flat(Span(""))))
        self._depth += 1
        block = reader(self, tag)
        self._depth -= 1
        return block

    def _flat(self, style: Span) -> list[Span]:
        """Return the content of an element as one span of plain text."""
        texts: list[str] = []
        depth = 1
        for event in self._events:
            match event:
                case {"Start": _}:
                    depth += 1
                case {"End": _}:
                    depth -= 1
                case {"Text": text} | {"Code": text} | {"InlineHtml": text} | {"Html": text}:
                    texts.append(text)
                case "SoftBreak" | "HardBreak":
                    texts.append(" ")
            if depth == 0:
                break
        return [replace(style, text="".join(texts))]

    def _spans(self, end: str, style: Span) -> list[Span]:
        """Return the spans up to the end of the element `end`, in the format of `style`."""
        spans: list[Span] = []
        for event in self._events:
            match event:
                case {"End": tag} if _name(tag) == end:
                    break
                case _:
                    self._add_inline(event, spans, style)
        return spans

    def _add_inline(self, event: Any, spans: list[Span], style: Span) -> None:
        """Add the spans of an inline event, in the format of `style`, to `spans`."""
        match event:
            case {"Text": text}:
                spans.extend(_linked(text, style))
            case {"Code": text}:
                spans.append(replace(style, text=text, is_code=True))
            case {"InlineHtml": text} | {"Html": text}:
                spans.append(replace(style, text=text))
            case {"TaskListMarker": is_checked} if self._boxes:
                self._boxes[-1] = is_checked
            case "SoftBreak" | "HardBreak":
                # Models mean their line breaks, so a soft break is one, too.
                spans.append(Span("\n"))
            case {"Start": _} if self._depth == MAX_DEPTH:
                spans.extend(self._flat(style))
            case {"Start": tag}:
                self._depth += 1
                spans.extend(self._spans(_name(tag), _styled(style, tag)))
                self._depth -= 1

    def _paragraph(self, tag: Any) -> Block:
        return Paragraph(_merged(self._spans(_name(tag), Span(""))))

    def _heading(self, tag: Any) -> Block:
        return Heading(int(tag["Heading"]["level"][1]), _merged(self._spans("Heading", Span(""))))

    def _code(self, tag: Any) -> Block:
        kind = tag["CodeBlock"]
        language = kind["Fenced"].split(maxsplit=1)[:1] if isinstance(kind, Mapping) else ()
        text = "".join(span.text for span in self._literal("CodeBlock"))
        return CodeBlock("".join(language), text.removesuffix("\n"))

    def _html(self, _tag: Any) -> Block:
        text = "".join(span.text for span in self._literal("HtmlBlock"))
        lines = text.removesuffix("\n").split("\n")
        spans = [Span(part) for line in lines for part in ("\n", line)]
        return Paragraph(_merged(spans[1:]))

    def _literal(self, end: str) -> Iterator[Span]:
        for event in self._events:
            match event:
                case {"End": tag} if _name(tag) == end:
                    return
                case {"Text": text} | {"Html": text}:
                    yield Span(text)

    def _list(self, tag: Any) -> Block:
        items: list[Item] = []
        for event in self._events:
            match event:
                case {"End": end} if _name(end) == "List":
                    break
                case {"Start": _}:
                    self._boxes.append(None)
                    items.append(Item(self.blocks("Item"), self._boxes.pop()))
        return ListBlock(tag["List"], tuple(items))

    def _quote(self, tag: Any) -> Block:
        return Quote(self.blocks(_name(tag)))

    def _table(self, tag: Any) -> Block:
        rows: list[tuple[tuple[Span, ...], ...]] = []
        cells: list[tuple[Span, ...]] = []
        for event in self._events:
            match event:
                case {"End": "Table"}:
                    break
                case {"Start": "TableCell"}:
                    cells.append(_merged(self._spans("TableCell", Span(""))))
                case {"End": "TableHead" | "TableRow"}:
                    rows.append(tuple(cells))
                    cells = []
        aligns: tuple[Align, ...] = tuple(align.lower() for align in tag["Table"])
        return Table(aligns, rows[0] if rows else (), tuple(rows[1:]))


_Reader = Callable[[_Builder, Any], Block]
_READERS: Mapping[str, _Reader] = {
    "Paragraph": _Builder._paragraph,
    "Heading": _Builder._heading,
    "CodeBlock": _Builder._code,
    "HtmlBlock": _Builder._html,
    "List": _Builder._list,
    "BlockQuote": _Builder._quote,
    "Table": _Builder._table,
}


def _name(tag: Any) -> str:
    """Return the name of a tag: the tag itself, or the only key of a mapping."""
    return tag if isinstance(tag, str) else next(iter(tag))


def _styled(style: Span, tag: Any) -> Span:
    match tag:
        case "Emphasis":
            return replace(style, is_italic=True)
        case "Strong":
            return replace(style, is_bold=True)
        case "Strikethrough":
            return replace(style, is_struck=True)
        case {"Link": link} | {"Image": link}:
            return replace(style, link=_address(link))
        case _:
            return style


def _address(link: Mapping[str, Any]) -> str | None:
    address: str = link["dest_url"]
    if link["link_type"] == "Email":
        address = f"mailto:{address}"
    return address if _SAFE_LINK.match(address) else None


def _linked(text: str, style: Span) -> Iterator[Span]:
    """Yield the spans of a text, in which plain addresses become links."""
    at = 0
    for match in _BARE_LINK.finditer(text) if style.link is None else ():
        if match.start() > at:
            yield replace(style, text=text[at : match.start()])
        yield replace(style, text=match[0], link=match[0])
        at = match.end()
    if text[at:]:
        yield replace(style, text=text[at:])


def _merged(spans: list[Span]) -> tuple[Span, ...]:
    """Return the spans, with neighbours of the same format merged into one."""
    merged: list[Span] = []
    for span in spans:
        before = merged[-1] if merged else None
        if (
            before
            and "\n" not in (before.text, span.text)
            and replace(before, text="") == replace(span, text="")
        ):
            merged[-1] = replace(before, text=before.text + span.text)
        else:
            merged.append(span)
    return tuple(merged)
