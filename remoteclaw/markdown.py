"""Markdown as blocks and spans: the one reading of it, for terminals, chats and pages.

pyromark parses; `blocks_of()` walks over its events. What looks like HTML is text, and a link leads
to the web or to an address of mail, or is none.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyromark

Align = Literal["none", "left", "center", "right"]

#: How deep blocks and spans are told apart; what is deeper inside is text.
MAX_DEPTH = 24
#: How much of a line behind an empty one shows what it is, in characters: `1000. x` is an item.
SURE_LENGTH = 8

_OPTIONS = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_STRIKETHROUGH
    | pyromark.Options.ENABLE_TASKLISTS
)
#: The addresses that a link may lead to; a script or a file is none.
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x1f]+\Z", re.IGNORECASE)
#: An address that stands bare in a text; a full stop or a bracket behind it ends the sentence.
_BARE_LINK = re.compile(r"https?://[^\s<>\"'`]*[^\s<>\"'`.,:;!?)\]}*_]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text with one format. A line break is its own span, `"\\n"`."""

    text: str
    is_bold: bool = False
    is_italic: bool = False
    is_struck: bool = False
    is_code: bool = False
    link: str | None = None
    """The address that it leads to: http, https or mailto."""


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
    """A block of code; its `language` is empty where none is named."""

    language: str
    text: str
    """The code, without a line break at its end."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a list."""

    blocks: "tuple[Block, ...]"
    is_checked: bool | None = None
    """Whether the box of a task is checked; None if it is no task."""


@dataclass(frozen=True, slots=True)
class ListBlock:
    """A list; `start` is the number of the first item, None for bullets."""

    start: int | None
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: for each cell its spans; all rows are as long as the head."""

    aligns: tuple[Align, ...]
    head: tuple[tuple[Span, ...], ...]
    rows: tuple[tuple[tuple[Span, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class Quote:
    """A quotation."""

    blocks: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule between two parts."""


Block = Paragraph | Heading | CodeBlock | ListBlock | Table | Quote | Rule


def blocks_of(text: str) -> tuple[Block, ...]:
    """Return the blocks of a Markdown text."""
    return _Walk(iter(pyromark.events(_clean(text), options=_OPTIONS))).blocks(None)


class MarkdownStream:
    """Markdown that is still being written: each block is complete once, when the next one begins.

    Only what is behind the last complete block is parsed again, so a long answer costs what its
    last block costs.
    """

    def __init__(self) -> None:
        self._text = ""
        self._done = 0
        """The length of what is complete, in characters."""
        self._looked_at = ""
        """What was parsed last: most letters that come add nothing that is sure."""

    @property
    def text(self) -> str:
        """The text so far."""
        return self._text

    @property
    def open_text(self) -> str:
        """The text of the block that may go on."""
        return self._text[self._done :]

    def continues(self, text: str) -> bool:
        """Return whether a text says all that is complete already."""
        return text.startswith(self._text[: self._done])

    def feed(self, text: str) -> tuple[Block, ...]:
        """Take the whole text so far; return the blocks that are complete by now."""
        self._text = text
        sure = _sure(self.open_text)
        if sure == self._looked_at:
            return ()
        self._looked_at = sure
        raw = _clean(sure).encode()
        starts = [*_top_level_starts(raw)]
        if len(starts) < 2:
            return ()
        complete = raw[: starts[-1]].decode()
        self._done += len(complete)
        return blocks_of(complete)

    def finish(self) -> tuple[Block, ...]:
        """Return the blocks that are left, at the end of the text."""
        rest = self.open_text
        self._done = len(self._text)
        return blocks_of(rest)


def _clean(text: str) -> str:
    """Return a text that UTF-8 can hold, of the same length."""
    return text.encode("utf-8", "replace").decode()


def _sure(text: str) -> str:
    """Return a text without a last line that may turn out to go on with the block before.

    A row of a table looks like a paragraph as long as it is short, and so does an item of a list.
    """
    before, line_break, last = text.rpartition("\n")
    is_apart = before.endswith("\n") and len(last.strip()) >= SURE_LENGTH
    return text if is_apart else before + line_break


def _top_level_starts(raw: bytes) -> Iterator[int]:
    """Yield where each block of a text begins, in bytes."""
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


class _Walk:
    """A walk over events; each method reads to the end of what has just begun."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._boxes: list[bool | None] = []
        """For each item that has begun, whether its box is checked."""
        self._depth = 0

    def blocks(self, end: str | None) -> tuple[Block, ...]:
        """Return the blocks up to the end of what holds them."""
        found: list[Block] = []
        loose: list[Span] = []

        def flush() -> None:
            if loose:
                found.append(Paragraph(_joined(loose)))
                loose.clear()

        for event in self._events:
            match event:
                case {"End": tag} if _name(tag) == end:
                    break
                case {"Start": tag} if reader := _READERS.get(_name(tag)):
                    flush()
                    found.append(self._deeper(reader, tag))
                case "Rule":
                    flush()
                    found.append(Rule())
                case _:
                    # A tight list's items have their text without a paragraph.
                    self._inline(event, loose, Span(""))
        flush()
        return tuple(found)

    def _deeper(self, reader: "_Reader", tag: Any) -> Block:
        if self._depth == MAX_DEPTH:
            return Paragraph(tuple(self._flat(Span(""))))
        self._depth += 1
        block = reader(self, tag)
        self._depth -= 1
        return block

    def _flat(self, style: Span) -> list[Span]:
        """Return what is inside of what has just begun, as one text."""
        found: list[str] = []
        depth = 1
        for event in self._events:
            match event:
                case {"Start": _}:
                    depth += 1
                case {"End": _}:
                    depth -= 1
                case {"Text": text} | {"Code": text} | {"InlineHtml": text} | {"Html": text}:
                    found.append(text)
                case "SoftBreak" | "HardBreak":
                    found.append(" ")
            if depth == 0:
                break
        return [replace(style, text="".join(found))]

    def _spans(self, end: str, style: Span) -> list[Span]:
        found: list[Span] = []
        for event in self._events:
            match event:
                case {"End": tag} if _name(tag) == end:
                    break
                case _:
                    self._inline(event, found, style)
        return found

    def _inline(self, event: Any, found: list[Span], style: Span) -> None:
        match event:
            case {"Text": text}:
                found.extend(_linked(text, style))
            case {"Code": text}:
                found.append(replace(style, text=text, is_code=True))
            case {"InlineHtml": text} | {"Html": text}:
                found.append(replace(style, text=text))
            case {"TaskListMarker": is_checked} if self._boxes:
                self._boxes[-1] = is_checked
            case "SoftBreak" | "HardBreak":
                # Models break a line where they mean to.
                found.append(Span("\n"))
            case {"Start": _} if self._depth == MAX_DEPTH:
                found.extend(self._flat(style))
            case {"Start": tag}:
                self._depth += 1
                found.extend(self._spans(_name(tag), _styled(style, tag)))
                self._depth -= 1

    def _paragraph(self, tag: Any) -> Block:
        return Paragraph(_joined(self._spans(_name(tag), Span(""))))

    def _heading(self, tag: Any) -> Block:
        return Heading(int(tag["Heading"]["level"][1]), _joined(self._spans("Heading", Span(""))))

    def _code(self, tag: Any) -> Block:
        kind = tag["CodeBlock"]
        language = kind["Fenced"].split(maxsplit=1)[:1] if isinstance(kind, Mapping) else ()
        text = "".join(span.text for span in self._literal("CodeBlock"))
        return CodeBlock("".join(language), text.removesuffix("\n"))

    def _html(self, _tag: Any) -> Block:
        text = "".join(span.text for span in self._literal("HtmlBlock"))
        lines = text.removesuffix("\n").split("\n")
        spans = [Span(part) for line in lines for part in ("\n", line)]
        return Paragraph(_joined(spans[1:]))

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
                    cells.append(_joined(self._spans("TableCell", Span(""))))
                case {"End": "TableHead" | "TableRow"}:
                    rows.append(tuple(cells))
                    cells = []
        aligns: tuple[Align, ...] = tuple(align.lower() for align in tag["Table"])
        return Table(aligns, rows[0] if rows else (), tuple(rows[1:]))


_Reader = Callable[[_Walk, Any], Block]
_READERS: Mapping[str, _Reader] = {
    "Paragraph": _Walk._paragraph,
    "Heading": _Walk._heading,
    "CodeBlock": _Walk._code,
    "HtmlBlock": _Walk._html,
    "List": _Walk._list,
    "BlockQuote": _Walk._quote,
    "Table": _Walk._table,
}


def _name(tag: Any) -> str:
    """Return the name of a tag, which is a text, or the one key of a mapping."""
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
    """Yield a text in spans: the bare addresses in it are links."""
    at = 0
    for found in _BARE_LINK.finditer(text) if style.link is None else ():
        if found.start() > at:
            yield replace(style, text=text[at : found.start()])
        yield replace(style, text=found[0], link=found[0])
        at = found.end()
    if text[at:]:
        yield replace(style, text=text[at:])


def _joined(spans: list[Span]) -> tuple[Span, ...]:
    """Return spans of which no two neighbours have the same look."""
    found: list[Span] = []
    for span in spans:
        before = found[-1] if found else None
        if (
            before
            and "\n" not in (before.text, span.text)
            and replace(before, text="") == replace(span, text="")
        ):
            found[-1] = replace(before, text=before.text + span.text)
        else:
            found.append(span)
    return tuple(found)
