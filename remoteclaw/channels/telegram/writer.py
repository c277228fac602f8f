"""Converts Markdown to Telegram messages: texts with entities, each within Telegram's limits.

Offsets and lengths of the resulting entities count units of UTF-16, as the Bot API does.
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
    HorizontalRule,
    Item,
    ListBlock,
    Paragraph,
    Quote,
    Span,
    Table,
    blocks_of,
)
from remoteclaw.messages import is_blank, shows_nothing, without_mentions

#: Telegram's limits for a message: its length in units of UTF-16, and the number of its entities.
#: Further entities are ignored.
MAX_UNITS, MAX_ENTITIES = 4096, 100
#: The widest table that a phone shows without wrapping, in characters.
MAX_TABLE_COLUMNS = 44
#: Characters that Telegram removes, which would shift all entities after them.
_REMOVED = dict.fromkeys(
    [*(n for n in range(0x20) if chr(n) not in "\n\t"), *range(0x2028, 0x202F), 0x333, 0x33F, 0x30A]
)
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}", re.ASCII)
#: A mention outside of code; the `@` of an e-mail address is none. At the end of a span, the name
#: may follow in the next one.
_MENTION = re.compile(r"(?<!\w)@(?P<who>\w+|\Z)", re.ASCII)

Kind = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A formatted part of a text: `MessageEntity` of the Bot API."""

    type: Kind
    offset: int
    length: int
    url: str = ""
    """The address of a `text_link`."""
    language: str = ""
    """The language of a `pre`."""

    def as_dict(self) -> dict[str, str | int]:
        """Return the entity as the Bot API accepts it."""
        required: dict[str, str | int] = {
            "type": self.type,
            "offset": self.offset,
            "length": self.length,
        }
        optional = {"url": self.url, "language": self.language}
        return required | {name: value for name, value in optional.items() if value}


@dataclass(frozen=True, slots=True)
class FormattedText:
    """The text and the formatting of one message."""

    text: str
    entities: tuple[Entity, ...] = ()


def write(markdown: str, *, me: str = "") -> tuple[FormattedText, ...]:
    """Return a Markdown text as messages, in order; none if it has no visible character.

    It mentions nobody but `me`, the bot's own name.
    """
    clean = markdown.translate(_REMOVED)
    page = _Page(me=me)
    page.blocks(blocks_of(clean))
    if is_blank(page.text):  # perhaps an empty picture or a link definition: show the Markdown
        page = _Page(pieces=[] if shows_nothing(clean) else [unmentioned(clean, me)])
    return tuple(_split(page))


def unmentioned(text: str, me: str) -> str:
    """Return a plain text in which Telegram sees no mention, except of `me`."""
    # Without what Telegram removes, which could separate the sign from the name.
    return without_mentions(text.translate(_REMOVED), _MENTION, stays=me)


@dataclass(slots=True)
class _Page:
    """A formatted text under construction. Its offsets count characters."""

    me: str = ""
    """The bot's own name, which may be mentioned."""
    pieces: list[str] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)
    length: int = 0
    breaks: list[int] = field(default_factory=list)
    """The offsets of top-level blocks, at which a message may be split: not after a heading."""
    is_quoted: bool = False
    """Whether a block quote is being written."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)

    def format(self, kind: Kind, start: int, *, url: str = "", language: str = "") -> None:
        """Format the text from `start` to the end."""
        if self.length > start:
            self.entities.append(Entity(kind, start, self.length - start, url, language))

    # -- blocks --------------------------------------------------------------------------------

    def blocks(self, blocks: Sequence[Block], *, indent: str = "", is_tight: bool = False) -> None:
        for index, block in enumerate(blocks):
            if index:
                self.add("\n" if is_tight else "\n\n")
                self.add(indent)
            if not indent and not (index and _is_heading(blocks[index - 1])):
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
                self.add(text or " ")
                known = _LANGUAGE.fullmatch(language)
                self.format("pre", start, language=language if known else "")
            case Quote(blocks):
                is_inner, self.is_quoted = self.is_quoted, True
                self.blocks(blocks, indent=indent)
                self.is_quoted = is_inner
                if not is_inner:  # Telegram does not nest block quotes
                    self.format("blockquote", start)
            case ListBlock(first, items):
                self._list(first, items, indent)
            case Table():
                self._table(block, indent)
            case HorizontalRule():
                self.add("⸻")

    def _list(self, first: int | None, items: Sequence[Item], indent: str) -> None:
        for index, item in enumerate(items):
            if index:
                self.add(f"\n{indent}")
            bullet = "•" if first is None else f"{first + index}."
            marker = {None: bullet, True: "☑", False: "☐"}[item.is_checked]
            self.add(f"{marker} ")
            self.blocks(item.blocks, indent=f"{indent}   ", is_tight=True)

    def _table(self, table: Table, indent: str) -> None:
        rows = [[_plain(cell) for cell in row] for row in (table.head, *table.rows)]
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
        self.add("\n".join(lines))
        self.format("pre", start)

    def _as_list(self, table: Table, indent: str) -> None:
        """Write a table that is too wide for a phone as a list, with one item per row."""
        for index, row in enumerate(table.rows):
            self.add(f"\n{indent}• " if index else "• ")
            for column, (head, cell) in enumerate(zip(table.head, row, strict=True)):
                if column:
                    self.add(f"\n{indent}   ")
                    self.spans(head, indent)
                    self.add(": ")
                self.spans(cell if column else _bold(cell), indent)

    # -- spans ---------------------------------------------------------------------------------

    def spans(self, spans: Sequence[Span], indent: str) -> None:
        for span in spans:
            start, shown = self.length, self._shown(span)
            self.add(f"\n{indent}" if span.text == "\n" else shown)
            if not span.text.strip():
                continue
            if span.link and span.link.lower().startswith("mailto:"):
                address = span.link[len("mailto:") :]
                if address not in span.text:  # Telegram links plain addresses by itself
                    self.add(f" ({unmentioned(address, self.me)})")
            elif span.link and span.link != shown:
                self._link(start, span.link)
            elif span.is_code:  # Telegram allows no other formatting of code
                self.format("code", start)
                continue
            if span.is_bold:
                self.format("bold", start)
            if span.is_italic:
                self.format("italic", start)
            if span.is_struck:
                self.format("strikethrough", start)

    def _shown(self, span: Span) -> str:
        """Return the text of a span; outside of code, it mentions nobody.

        Code with a link counts as text: it becomes a link, or an e-mail address follows.
        """
        if span.is_code and not span.link:
            return span.text
        before = self.pieces[-1][-1:] if self.pieces else ""  # a mention may begin there
        return unmentioned(before + span.text, self.me)[len(before) :]

    def _link(self, start: int, url: str) -> None:
        """Make the text from `start` a link, merged with a preceding link to the same `url`.

        A link is followed in `entities` by at most three entities that format its text.
        """
        for entity in self.entities[-4:]:
            if entity.url == url and entity.offset + entity.length == start:
                self.entities.remove(entity)
                start = entity.offset
        self.format("text_link", start, url=url)


def _is_heading(block: Block) -> bool:
    """Whether a block is a heading, or a paragraph in bold, as models write headings, too."""
    match block:
        case Heading():
            return True
        case Paragraph(spans):
            return all(span.is_bold for span in spans)
    return False


def _bold(spans: Sequence[Span]) -> list[Span]:
    """Return spans in bold. Code stays as it is, because Telegram can't format it further."""
    return [replace(span, is_bold=True) for span in spans]


def _plain(spans: Sequence[Span]) -> str:
    text = "".join(" " if span.text == "\n" else span.text for span in spans)
    return text.translate(_REMOVED)  # entities have added some


def _padded(text: str, width: int, *, is_right: bool) -> str:
    padding = " " * (width - cell_len(text))
    return padding + text if is_right else text + padding


# -- messages -------------------------------------------------------------------------------------


def _split(page: _Page) -> Iterator[FormattedText]:
    """Yield a page as texts within the limits, split at block, line or word boundaries."""
    text = page.text
    # The number of UTF-16 units before each character.
    units = [0, *accumulate(2 if ord(character) > 0xFFFF else 1 for character in text)]
    entities = sorted(page.entities, key=lambda entity: (entity.offset, -entity.length))
    begin, end = 0, len(text.rstrip())
    while begin < end:
        if text[begin] == "\n":
            begin += 1
            continue
        until = _cut(text, begin, _farthest(units, entities, begin, end), page.breaks)
        shown = text[begin:until].rstrip()
        stop = begin + len(shown)
        if not is_blank(shown):
            yield FormattedText(shown, tuple(_within(entities, units, begin, stop)))
        begin = until


def _farthest(units: Sequence[int], entities: Sequence[Entity], begin: int, end: int) -> int:
    """Return the latest offset at which a message that begins at `begin` may end."""
    low, high = begin, end
    while low < high:  # a binary search for the last offset within MAX_UNITS
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if units[middle] - units[begin] <= MAX_UNITS else (low, middle - 1)
        )
    within = [
        entity
        for entity in entities
        if entity.offset < low and entity.offset + entity.length > begin
    ]
    if len(within) > MAX_ENTITIES:
        low = min(low, max(within[MAX_ENTITIES].offset, begin + 1))
    return low


def _cut(text: str, begin: int, latest: int, breaks: Sequence[int]) -> int:
    """Return the best offset up to `latest` at which to end a message that begins at `begin`.

    A message is at least half full, if possible, and preferably ends at the end of a block.
    """
    if latest >= len(text.rstrip()):
        return len(text)
    half = begin + (latest - begin) // 2
    candidates = [offset for offset in breaks if half < offset <= latest]
    if candidates:
        return candidates[-1]
    for separator in ("\n", " "):
        if (offset := text.rfind(separator, half, latest)) >= 0:
            return offset + 1
    # The next message must not begin with the `@` of an address: that would be a mention.
    return max(begin + 1, latest - 1) if text[latest] == "@" else latest


def _within(
    entities: Sequence[Entity], units: Sequence[int], begin: int, end: int
) -> Iterator[Entity]:
    """Yield the entities from `begin` to `end`, with offsets in UTF-16 units from `begin`."""
    for entity in entities:
        start, stop = max(entity.offset, begin), min(entity.offset + entity.length, end)
        if start < stop:
            offset, length = units[start] - units[begin], units[stop] - units[start]
            yield replace(entity, offset=offset, length=length)
