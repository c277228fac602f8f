"""Chunks of a text that is still being written, of a size that the platform takes.

A chunk ends at the best place before the limit: a paragraph, a line, a word, else anywhere.
A Markdown fence that is open at the end of a chunk is closed there and opened again, with its
language, in the next one.
The deltas of the stream make no difference: a cut depends on the text alone.
"""

import re

from remoteclaw.protocols import Unit

#: Room in every chunk for a newline and a closing fence of up to 11 characters.
RESERVE = 12
#: The smallest limit that leaves room for text between a fence opened and closed.
SMALLEST_LIMIT = 80
#: How far is looked ahead of a cut, in characters: as far as a fence needs to be recognised.
LOOKAHEAD = 6
#: How much is taken from one delta at a time, in characters, so that cutting stays linear.
BITE = 16 * 1024

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

    @property
    def pending(self) -> str:
        """The chunk that is being written, as far as it has come."""
        return self._reopened + self._buffer if self._buffer else ""

    def feed(self, text: str) -> list[str]:
        """Take more text; return the chunks that are complete by now."""
        chunks = []
        for start in range(0, len(text), BITE):
            self._buffer += text[start : start + BITE]
            self._strip_newlines()
            while (fitting := self._fitting) < len(self._buffer):
                if chunk := self._cut(fitting - LOOKAHEAD):
                    chunks.append(chunk)
        return chunks

    def finish(self) -> str:
        """Return the last chunk; empty if there is nothing more to say."""
        rest, self._buffer = self._buffer, ""
        fence, self._fence = self._fence, ""
        return _complete(fence, rest.rstrip())

    @property
    def _reopened(self) -> str:
        return f"{self._fence}\n" if self._fence else ""

    @property
    def _fitting(self) -> int:
        """How many characters of the buffer there is room for in a chunk."""
        room = self._limit - RESERVE - _size(self._reopened, self._unit)
        return _fitting(self._buffer, room, self._unit)

    def _cut(self, most: int) -> str:
        """Take one chunk of at most so many characters off the buffer."""
        position, skip = self._best_cut(self._buffer[:most])
        piece, self._buffer = self._buffer[:position], self._buffer[position + skip :]
        opened, self._fence = self._fence, self._shortened(open_fence(piece, self._fence))
        self._strip_newlines()
        return _complete(opened, piece)

    def _strip_newlines(self) -> None:
        """Drop the blank lines that the buffer begins with; in a fence they are a part of it."""
        if not self._fence:
            self._buffer = self._buffer.lstrip("\n")

    def _best_cut(self, window: str) -> tuple[int, int]:
        """Return where to cut and how many characters to drop there.

        A place in the second half is wanted, so that no chunk is tiny; the kind of place comes
        second, the length third.
        """
        for start in (len(window) // 2, 1):
            for gap in ("\n\n", "\n", " "):
                if (position := self._last(gap, window, start)) > 0:
                    if not open_fence(window[:position], self._fence):
                        return position, len(gap)
                    # In code, a blank line and a space are a part of it.
                    return (position + 1, 0) if gap == " " else (position, 1)
        position = len(window)
        while position > 1 and self._would_begin_a_fence(position):
            position -= 1
        return (position, 0) if position > 1 else (len(window), 0)

    def _last(self, gap: str, window: str, start: int) -> int:
        """Return the last place of a gap behind which a text can be cut; -1 if there is none."""
        position = window.rfind(gap, start)
        while gap == " " and position > 0 and self._would_begin_a_fence(position + 1):
            position = window.rfind(gap, start, position)
        return position

    def _would_begin_a_fence(self, position: int) -> bool:
        """Whether the middle of a line would look like a fence at the start of a chunk."""
        return _FENCE_START.match(self._buffer, position) is not None

    def _shortened(self, fence: str) -> str:
        """Return a fence line that leaves room for text: a long one loses its language."""
        return fence if _size(fence, self._unit) <= self._limit // 4 else _marker(fence)


def _complete(opened: str, piece: str) -> str:
    """Return a chunk with its fences opened and closed."""
    if not piece.strip():
        return ""
    head = f"{opened}\n" if opened else ""
    still_open = open_fence(piece, opened)
    return f"{head}{piece}\n{_marker(still_open)}" if still_open else head + piece.rstrip()


def _size(text: str, unit: Unit) -> int:
    if unit == "characters" or text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "replace")) // 2


def _fitting(text: str, room: int, unit: Unit) -> int:
    """Return how many of the first characters fit into `room`."""
    window = text[:room]
    if unit == "characters" or window.isascii():
        return len(window)
    data = window.encode("utf-16-le", "replace")[: room * 2]
    return len(data.decode("utf-16-le", "ignore"))


def _marker(fence: str) -> str:
    """Return the signs of which a fence is made."""
    match = _FENCE.match(fence)
    return match[1] if match else ""


def open_fence(text: str, opened: str) -> str:
    """Return the line that opened the fence in which `text` ends; empty if it ends outside.

    `opened` is the same for the place where it begins. The rules are CommonMark's: a fence closes
    with the same character, at least as often, and nothing behind it.
    """
    for line in _FENCE.finditer(text):
        marker, info = line[1], line[2]
        if not opened:
            opened = line[0] if marker[0] == "~" or "`" not in info else ""
        elif marker.startswith(_marker(opened)) and not info.strip():
            opened = ""
    return opened
