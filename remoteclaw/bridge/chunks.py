"""Chunks of a text that is still being written, of a size that the platform takes.

A chunk ends at the best place before the limit: a paragraph, a line, a word, or anywhere that is
not inside a character as people see it.
A Markdown fence that is open at the end of a chunk is closed there and opened again, with its
language, in the next one; a table that doesn't fit has its header repeated.
The deltas of the stream make no difference: a cut depends on the text alone.
"""

import re
from collections.abc import Iterator
from typing import Literal

__all__ = ["Chunker", "Unit", "open_fence"]

#: What a platform counts: code points, UTF-16's units (Telegram), or bytes of UTF-8 (IRC).
Unit = Literal["characters", "utf16", "bytes"]

#: Room in every chunk for a newline and a closing fence of up to 11 characters.
RESERVE = 12
#: The smallest limit that leaves room for text between a fence opened and closed.
SMALLEST_LIMIT = 80
#: How far is looked ahead of a cut, in characters: as far as a fence needs to be recognised.
LOOKAHEAD = 6
#: How much is taken from one delta at a time, in characters, so that cutting stays linear.
BITE = 16 * 1024
#: The words before an answer that is repeated in other words after a part of it was delivered.
REPEATED = "(That broke off. Once more, from the beginning:)\n\n"

#: How many spaces are tried as places to cut: behind each there may be a mark that belongs to it.
MOST_SPACES = 50
#: How long a character may be that is not cut, in code points: a family of four has 7.
LONGEST_CHARACTER = 64

_ENCODINGS = {"utf16": ("utf-16-le", 2), "bytes": ("utf-8", 1)}
#: A row of a table, and the line under its header.
_ROW = re.compile(r" {0,3}\|")
_DELIMITER = re.compile(r" {0,3}\|(?=[ \t:|]*-)[ \t:|-]*")
_FENCE_START = re.compile(r" {0,3}(```|~~~)")
_FENCE = re.compile(r"^ {0,3}(`{3,11}|~{3,11})(.*)$", re.MULTILINE)


class Chunker:
    """Cuts a text that is still being written into chunks of at most `limit` units."""

    def __init__(self, limit: int, unit: Unit = "characters") -> None:
        if limit < SMALLEST_LIMIT:
            raise ValueError(f"a chunk limit of {limit} is too small: {SMALLEST_LIMIT} at least")
        self._limit = limit
        self._unit = unit
        self._buffer = ""
        self._fence = ""
        """The line that opened the fence in which the buffer begins; empty outside of fences."""
        self._table = ""
        """The two lines of header of the table in which the buffer begins; empty outside."""
        self._gone: list[str] = []
        """What was fed and is no longer in the buffer."""
        self._withdrawn = ""
        """What was withdrawn when it was in complete chunks already."""
        self._repeated = 0
        """How much of that has been said again."""

    @property
    def pending(self) -> str:
        """The chunk that is being written, as far as it has come."""
        return self._reopened + self._buffer if self._buffer else ""

    def feed(self, text: str) -> list[str]:
        """Take more text; return the chunks that are complete by now."""
        if self._withdrawn:
            text = self._without_repetition(text)
        chunks = []
        for start in range(0, len(text), BITE):
            self._buffer += text[start : start + BITE]
            self._strip_newlines()
            while self._fitting < len(self._buffer):
                if chunk := self._cut():
                    chunks.append(chunk)
        return chunks

    def withdraw(self, characters: int) -> None:
        """Take back the end of what was fed.

        What is in complete chunks by then was read by people. If the text that follows begins with
        it, as a repetition does, it is not said twice; otherwise it is a new answer and says so.
        """
        if not self._withdrawn:
            rest = len(self._buffer) - characters
            self._buffer = self._buffer[: max(0, rest)]
        else:
            rest = self._repeated - characters
            self._repeated = max(0, rest)
        if rest < 0:
            gone = "".join(self._gone)
            self._gone = [gone[:rest]]
            self._withdrawn = gone[rest:] + self._withdrawn

    def finish(self) -> str:
        """Return the last chunk; empty if there is nothing more to say."""
        rest, self._buffer = self._buffer, ""
        fence, self._fence = self._fence, ""
        table, self._table = self._table, ""
        return self._complete(fence, table, rest.rstrip())

    def _without_repetition(self, text: str) -> str:
        """Return what of a text is not delivered yet, while it may repeat what was withdrawn."""
        expected = self._withdrawn[self._repeated : self._repeated + len(text)]
        withdrawn, repeated = self._withdrawn, self._repeated
        if text.startswith(expected):
            self._repeated += len(expected)
            if self._repeated == len(withdrawn):
                self._gone.append(withdrawn)
                self._withdrawn, self._repeated = "", 0
            return text[len(expected) :]
        self._withdrawn, self._repeated = "", 0
        if withdrawn.strip():
            self._fence = self._table = ""
        # Blank lines before a text are in no chunk.
        return (REPEATED if withdrawn.strip() else "") + withdrawn[:repeated] + text

    @property
    def _reopened(self) -> str:
        return "".join(f"{head}\n" for head in (self._fence, self._table) if head)

    @property
    def _fitting(self) -> int:
        """How many characters of the buffer there is room for in a chunk."""
        room = self._limit - RESERVE - _size(self._reopened, self._unit)
        return _fitting(self._buffer, room, self._unit)

    def _cut(self) -> str:
        """Take one chunk off the buffer, which is longer than there is room."""
        position, skip = self._best_cut(self._buffer[: self._fitting - LOOKAHEAD])
        piece = self._buffer[:position]
        self._drop(position + skip)
        opened, self._fence = self._fence, self._shortened(open_fence(piece, self._fence))
        # Behind a blank line it would be another table.
        table, self._table = self._table, self._open_table(piece) if skip < 2 else ""
        self._strip_newlines()
        return self._complete(opened, table, piece)

    def _strip_newlines(self) -> None:
        """Drop the blank lines that the buffer begins with; in a fence they are a part of it."""
        if not self._fence and self._buffer.startswith("\n"):
            self._drop(len(self._buffer) - len(self._buffer.lstrip("\n")))

    def _drop(self, size: int) -> None:
        self._gone.append(self._buffer[:size])
        self._buffer = self._buffer[size:]

    def _best_cut(self, window: str) -> tuple[int, int]:
        """Return where to cut and how many characters to drop there.

        A place in the second half is wanted, so that no chunk is tiny; the kind of place comes
        second, the length third.
        """
        half = len(window) // 2
        is_fenced = bool(open_fence(window, self._fence))
        # A blank line inside a fence is a line like any other.
        paragraph = max(
            (window.rfind("\n\n", max(start, half), end) for start, end in self._outside(window)),
            default=-1,
        )
        # A table that begins late is left to the next chunk.
        rows = window.removesuffix("\n")
        before_table = _rows_at_end(rows) - 1
        is_late = half < before_table < len(rows) - 1 and not is_fenced
        places = (
            (paragraph, 2),
            (before_table if is_late else -1, 1),
            (window.rfind("\n", half), 1),
        )
        for position, skip in places:
            if position > 0:
                return position, skip
        if not is_fenced and (position := self._last_space(window, half)):
            return position, 1
        if (position := window.rfind("\n")) > 0:
            return position, 1
        if (position := self._last_space(window, 0)) > 0:
            return (position + 1, 0) if is_fenced else (position, 1)  # in code it is a part of it
        position = len(window)
        while position > 1 and self._would_begin_a_fence(position):
            position -= 1
        position = _boundary(self._buffer, position)
        return (position, 0) if position > 1 else (len(window), 0)

    def _outside(self, window: str) -> Iterator[tuple[int, int]]:
        """Return where the parts of the window are that are in no fence."""
        start = 0
        opened = self._fence
        for line in _FENCE.finditer(window):
            before, opened = opened, _after_fence_line(line, opened)
            if opened and not before:
                yield start, line.start()
            elif before and not opened:
                start = line.end()
        if not opened:
            yield start, len(window)

    def _last_space(self, window: str, start: int) -> int:
        """Return the last space behind which a line can be cut; 0 if there is none."""
        position = len(window)
        for _ in range(MOST_SPACES):
            position = window.rfind(" ", start, position)
            if position <= 0:
                break
            is_whole = _boundary(self._buffer, position + 1) > position
            if is_whole and not self._would_begin_a_fence(position + 1):
                return position
        return 0

    def _would_begin_a_fence(self, position: int) -> bool:
        """Whether the middle of a line would look like a fence at the start of a chunk."""
        return _FENCE_START.match(self._buffer, position) is not None

    def _shortened(self, fence: str) -> str:
        """Return a fence line that leaves room for text: a long one loses its language."""
        if _size(fence, self._unit) <= self._limit // 4:
            return fence
        match = _FENCE.match(fence)
        return match[1] if match else ""

    def _open_table(self, piece: str) -> str:
        """Return the header of a table that begins in a piece and continues in the buffer."""
        if self._fence or not _ROW.match(self._buffer):
            return ""
        whole = f"{self._table}\n{piece}" if self._table else piece
        rows = whole[_rows_at_end(whole) :].split("\n", 2)
        if len(rows) < 2 or not _DELIMITER.fullmatch(rows[1]):
            return ""
        header = "\n".join(rows[:2])
        return header if _size(header, self._unit) <= self._limit // 4 else ""

    def _complete(self, opened: str, table: str, piece: str) -> str:
        """Return a chunk with its fences opened and closed, and its table's header."""
        if not piece.strip():
            return ""
        still_open = open_fence(piece, opened)
        head = "".join(f"{line}\n" for line in (opened, table) if line)
        if not still_open:
            return head + piece.rstrip()
        match = _FENCE.match(still_open)
        marker = match[1] if match else "```"
        return f"{head}{piece}\n{marker}"


def _size(text: str, unit: Unit) -> int:
    if unit == "characters" or text.isascii():
        return len(text)
    encoding, width = _ENCODINGS[unit]
    return len(text.encode(encoding, "replace")) // width


def _fitting(text: str, room: int, unit: Unit) -> int:
    """Return how many of the first characters fit into `room`."""
    window = text[:room]
    if unit == "characters" or window.isascii():
        return len(window)
    encoding, width = _ENCODINGS[unit]
    data = window.encode(encoding, "replace")[: room * width]
    return len(data.decode(encoding, "ignore"))


def _boundary(text: str, position: int) -> int:
    """Return the beginning of the character, as people see it, that a position is in.

    A character that is built of very many others is cut all the same.
    """
    if position >= len(text) or _stands_alone(text[position]):
        return position
    from wcwidth import grapheme_boundary_before  # takes 35 ms, and seldom has to

    start = max(0, position - LONGEST_CHARACTER)
    around = text[start : position + 1]
    boundary = grapheme_boundary_before(around, len(around))
    return start + boundary if boundary or not start else position


def _stands_alone(character: str) -> bool:
    """Whether a character is certain to begin one that people see: ASCII, and most of CJK."""
    code = ord(character)
    return code < 128 or 0x2E80 <= code <= 0xA4CF or 0xAC00 <= code <= 0xD7A3


def _rows_at_end(text: str) -> int:
    """Return where the rows of a table begin that a text ends with; its end if there are none."""
    start = len(text)
    while start > 0:
        line = text.rfind("\n", 0, start - 1 if start < len(text) else start) + 1
        if not _ROW.match(text, line):
            break
        start = line
    return start


def open_fence(text: str, opened: str) -> str:
    """Return the line that opened the fence in which `text` ends; empty if it ends outside.

    `opened` is the same for the place where it begins. The rules are CommonMark's: a fence closes
    with the same character, at least as often, and nothing behind it.
    """
    for line in _FENCE.finditer(text):
        opened = _after_fence_line(line, opened)
    return opened


def _after_fence_line(line: re.Match[str], opened: str) -> str:
    """Return the line of the fence that is open behind a line that looks like one."""
    marker, info = line[1], line[2]
    if not opened:
        return line[0] if marker[0] == "~" or "`" not in info else ""
    current = _FENCE.match(opened)
    return "" if current and marker.startswith(current[1]) and not info.strip() else opened
