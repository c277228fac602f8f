"""Markdown as Telegram shows it: texts with entities, each within a message's limits.

The places of entities are counted in units of UTF-16, as the Bot API does.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal

from rich.cells import cell_len

from remoteclaw.markdown import (
    Block,
    CodeBlock,
    Heading,
    Item,
    ListBlock,
    Paragraph,
    Quote,
    Rule,
    Span,
    Table,
    blocks_of,
)

#: The longest text of a message, in units of UTF-16, and the most entities: Telegram ignores more.
MAX_UNITS, MAX_ENTITIES = 4096, 100
#: The widest table that a telephone shows in columns, in characters.
MAX_TABLE_COLUMNS = 44
#: What Telegram removes from a text, so that all entities behind it would be out of place.
_REMOVED = dict.fromkeys(
    [*(n for n in range(0x20) if chr(n) not in "\n\t"), *range(0x2028, 0x202F), 0x333, 0x33F, 0x30A]
)
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}", re.ASCII)

Kind = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A part of a text that looks different: `MessageEntity` of the Bot API."""

    type: Kind
    offset: int
    length: int
    url: str = ""
    """The address of a `text_link`."""
    language: str = ""
    """The language of a `pre`."""

    def plain(self) -> dict[str, str | int]:
        """Return it as the Bot API takes it."""
        known: dict[str, str | int] = {
            "type": self.type,
            "offset": self.offset,
            "length": self.length,
        }
        more = {"url": self.url, "language": self.language}
        return known | {name: value for name, value in more.items() if value}


@dataclass(frozen=True, slots=True)
class Text:
    """The text of one message."""

    text: str
    entities: tuple[Entity, ...] = ()


def write(markdown: str) -> tuple[Text, ...]:
    """Return a Markdown text as messages, in order; none for a text of nothing but white space."""
    clean = markdown.translate(_REMOVED)
    page = _Page()
    page.blocks(blocks_of(clean))
    if not page.text.strip():  # an empty picture, a definition of a link: better than nothing
        page = _Page([clean])
    return tuple(_split(page))


@dataclass(slots=True)
class _Page:
    """A text that is being written; places are counted in characters."""

    pieces: list[str] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)
    length: int = 0
    breaks: list[int] = field(default_factory=list)
    """Where a block begins that a message may begin with."""
    is_quoted: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def say(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)

    def mark(self, kind: Kind, start: int, *, url: str = "", language: str = "") -> None:
        """Format what was said since a place."""
        if self.length > start:
            self.entities.append(Entity(kind, start, self.length - start, url, language))

    # -- blocks --------------------------------------------------------------------------------

    def blocks(self, blocks: Sequence[Block], *, indent: str = "", is_tight: bool = False) -> None:
        for place, block in enumerate(blocks):
            if place:
                self.say("\n" if is_tight else "\n\n")
                self.say(indent)
            if not indent:
                self.breaks.append(self.length)
            self._block(block, indent)

    def _block(self, block: Block, indent: str) -> None:
        start = self.length
        match block:
            case Paragraph(spans):
                self.spans(spans, indent)
            case Heading(_, spans):
                self.spans(_bold(spans), indent)
            case CodeBlock(language, text):
                self.say(text or " ")
                known = _LANGUAGE.fullmatch(language)
                self.mark("pre", start, language=language if known else "")
            case Quote(blocks):
                is_inner, self.is_quoted = self.is_quoted, True
                self.blocks(blocks, indent=indent)
                self.is_quoted = is_inner
                if not is_inner:  # Telegram has none within another
                    self.mark("blockquote", start)
            case ListBlock(first, items):
                self._list(first, items, indent)
            case Table():
                self._table(block, indent)
            case Rule():
                self.say("⸻")

    def _list(self, first: int | None, items: Sequence[Item], indent: str) -> None:
        for place, item in enumerate(items):
            if place:
                self.say(f"\n{indent}")
            number = "•" if first is None else f"{first + place}."
            box = {None: number, True: "☑", False: "☐"}[item.is_checked]
            self.say(f"{box} ")
            self.blocks(item.blocks, indent=f"{indent}   ", is_tight=True)

    def _table(self, table: Table, indent: str) -> None:
        rows = [[_words(cell) for cell in row] for row in (table.head, *table.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        if sum(widths) + 3 * (len(widths) - 1) > MAX_TABLE_COLUMNS:
            self._as_list(table, indent)
            return
        start = self.length
        lines = [
            " │ ".join(
                _padded(cell, width, is_right=align == "right")
                for cell, width, align in zip(row, widths, table.aligns, strict=True)
            ).rstrip()
            for row in rows
        ]
        lines.insert(1, "─┼─".join("─" * width for width in widths))
        self.say("\n".join(lines))
        self.mark("pre", start)

    def _as_list(self, table: Table, indent: str) -> None:
        """Write a table that is too wide for a telephone: its rows as items."""
        for place, row in enumerate(table.rows):
            self.say(f"\n{indent}• " if place else "• ")
            for number, (head, cell) in enumerate(zip(table.head, row, strict=True)):
                if number:
                    self.say(f"\n{indent}   ")
                    self.spans(head, indent)
                    self.say(": ")
                self.spans(cell if number else _bold(cell), indent)

    # -- spans ---------------------------------------------------------------------------------

    def spans(self, spans: Sequence[Span], indent: str) -> None:
        for span in spans:
            start = self.length
            self.say(f"\n{indent}" if span.text == "\n" else span.text)
            if not span.text.strip():
                continue
            if span.link and span.link.lower().startswith("mailto:"):
                address = span.link[len("mailto:") :]
                if address not in span.text:  # Telegram makes links of addresses by itself
                    self.say(f" ({address})")
            elif span.link and span.link != span.text:
                self._link(start, span.link)
            elif span.is_code:  # it can have no other look
                self.mark("code", start)
                continue
            if span.is_bold:
                self.mark("bold", start)
            if span.is_italic:
                self.mark("italic", start)
            if span.is_struck:
                self.mark("strikethrough", start)

    def _link(self, start: int, url: str) -> None:
        """Make what was said since a place a link, and one with the same link before it."""
        for each in self.entities[-4:]:  # behind a link there are the looks of its words at most
            if each.url == url and each.offset + each.length == start:
                self.entities.remove(each)
                start = each.offset
        self.mark("text_link", start, url=url)


def _bold(spans: Sequence[Span]) -> list[Span]:
    """Return spans in bold; code among them stays code, which can have no other look."""
    return [replace(span, is_bold=True) for span in spans]


def _words(spans: Sequence[Span]) -> str:
    return "".join(" " if span.text == "\n" else span.text for span in spans)


def _padded(text: str, width: int, *, is_right: bool) -> str:
    room = " " * (width - cell_len(text))
    return room + text if is_right else text + room


# -- messages -------------------------------------------------------------------------------------


def _split(page: _Page) -> Iterator[Text]:
    """Yield a page as texts within the limits, cut where it hurts least."""
    text = page.text
    # How many units stand before each character.
    units = [0, *accumulate(2 if ord(character) > 0xFFFF else 1 for character in text)]
    entities = sorted(page.entities, key=lambda each: (each.offset, -each.length))
    begin, end = 0, len(text.rstrip())
    while begin < end:
        if text[begin] == "\n":
            begin += 1
            continue
        until = _cut(text, begin, _farthest(units, entities, begin, end), page.breaks)
        shown = text[begin:until].rstrip()
        stop = begin + len(shown)
        if shown:
            yield Text(shown, tuple(_within(entities, units, begin, stop)))
        begin = until


def _farthest(units: Sequence[int], entities: Sequence[Entity], begin: int, end: int) -> int:
    """Return where a message that begins at a place has to end at the latest."""
    low, high = begin, end
    while low < high:  # the last place within the limit of units
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if units[middle] - units[begin] <= MAX_UNITS else (low, middle - 1)
        )
    within = [each for each in entities if each.offset < low and each.offset + each.length > begin]
    if len(within) > MAX_ENTITIES:
        low = min(low, max(within[MAX_ENTITIES].offset, begin + 1))
    return low


def _cut(text: str, begin: int, latest: int, breaks: Sequence[int]) -> int:
    """Return where a message is best cut that may end at `latest`."""
    if latest >= len(text.rstrip()):
        return len(text)
    half = begin + (latest - begin) // 2
    blocks = [each for each in breaks if half < each <= latest]
    if blocks:
        return blocks[-1]
    for mark in ("\n", " "):
        if (place := text.rfind(mark, half, latest)) >= 0:
            return place + 1
    return latest


def _within(
    entities: Sequence[Entity], units: Sequence[int], begin: int, end: int
) -> Iterator[Entity]:
    """Yield the entities of a part of the text, counted in units from its begin."""
    for each in entities:
        start, stop = max(each.offset, begin), min(each.offset + each.length, end)
        if start < stop:
            offset, length = units[start] - units[begin], units[stop] - units[start]
            yield Entity(each.type, offset, length, each.url, each.language)
