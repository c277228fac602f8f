"""Chunks of a text that is still being written, of a size that the platform accepts.

A chunk ends at the best place before the limit: at a paragraph, a line, a word, else anywhere.
A heading stays with what follows it.
A code block that becomes a file is not cut: it counts with what the chat shows of it, and ends its
chunk.
A Markdown fence that is open at the end of a chunk is closed there and opened again, with its
language, in the next chunk.
The cuts depend only on the text, not on how the stream divides it.
"""

import re

from remoteclaw.messages import CodeBlock, CodeReader, beginning_of, fence_after, marker_of
from remoteclaw.protocols import Unit

#: Room in every chunk for a newline and a closing fence of up to 11 characters.
RESERVE = 12
#: The minimum limit of a chunk: it leaves room for text between an opened and a closed fence.
MIN_LIMIT = 80
#: A cut is made only once this many characters after it are known, to recognise a fence there.
LOOKAHEAD = 6
#: What is read of a code block to show its beginning, in characters.
MAX_BEGINNING_CHARS = 4_000
#: A long delta is processed in pieces of this many characters, so that cutting takes linear time.
PIECE_CHARS = 16 * 1024

#: A cut moves to before at most this many headings in a row, so that cutting takes linear time.
MAX_HEADINGS = 3

#: The encoding whose units count, and the bytes of a unit.
_ENCODINGS = {"utf16": ("utf-16-le", 2), "bytes": ("utf-8", 1)}

#: A Markdown heading, or a line in bold, as models write headings, too.
_HEADING = re.compile(r" {0,3}(#{1,6}[ \t].*|\*\*[^*]+\*\*:?)")
_FENCE_START = re.compile(r" {0,3}(```|~~~)")
_FENCE_LINE = re.compile(r"^ {0,3}(?:`{3}|~{3}).*$", re.MULTILINE)


class Chunker:
    """Cuts a text that is still being written into chunks of at most `limit` units."""

    def __init__(self, limit: int, unit: Unit = "characters", *, code_file_lines: int = 0) -> None:
        """A code block of more than `code_file_lines` lines becomes a file; with 0, none does."""
        if limit < MIN_LIMIT:
            raise ValueError(f"a chunk limit of {limit} is too small: {MIN_LIMIT} at least")
        self._limit = limit
        self._unit = unit
        self._buffer = ""
        self._fence = ""
        """The opening line of the fence that the buffer begins in; empty outside of fences."""
        self._code_file_lines = code_file_lines
        self._code = CodeReader()
        self._read = 0
        """The number of characters that were fed."""

    @property
    def pending(self) -> str:
        """The unfinished chunk, with only the beginning of code that becomes a file."""
        if not self._buffer:
            return ""
        block = self._code.blocks[-1] if self._code.blocks else None
        is_long = _size(self._buffer, self._unit) > self._limit
        if block and block.end is None and (is_long or self._is_for_file(block)):
            return self._reopened + self._buffer[: self._at(block.start)] + self._shown(block)
        return self._reopened + self._buffer

    def feed(self, text: str) -> list[str]:
        """Add text; return the chunks that it completes."""
        chunks = []
        for start in range(0, len(text), PIECE_CHARS):
            piece = text[start : start + PIECE_CHARS]
            self._buffer += piece
            self._read += len(piece)
            if self._code_file_lines:
                self._code.feed(piece)
            self._strip_newlines()
            chunks += self._complete_chunks()
        return chunks

    def finish(self) -> list[str]:
        """Return the last chunks; none if no text is left."""
        self._code.finish()
        chunks = self._complete_chunks()
        chunks.append(_complete(self._fence, self._buffer.rstrip()))
        self._buffer = self._fence = ""
        return [*filter(None, chunks)]

    def _complete_chunks(self) -> list[str]:
        """Remove all chunks from the buffer that are complete, and return them."""
        chunks = []
        while (chunk := self._next_chunk()) is not None:
            if chunk:
                chunks.append(chunk)
        return chunks

    def _next_chunk(self) -> str | None:
        """Remove the next chunk from the buffer and return it; None if it is not complete.

        Whether it ends with a code block for a file depends only on the text up to the limit and on
        the block that is open there.
        """
        fitting, blocks = self._fitting, self._code.blocks
        while blocks and (end := blocks[0].end) is not None and self._at(end) <= fitting:
            if self._is_for_file(blocks.pop(0)):
                return self._take(self._at(end))
        if fitting >= len(self._buffer):
            return None
        if not blocks or self._at(blocks[0].code) > fitting + 1:
            return self._cut(fitting - LOOKAHEAD)
        block, before = blocks[0], self._at(blocks[0].start)
        if not self._is_for_file(block):
            # An open block may still become longer.
            return None if block.end is None else self._cut(fitting - LOOKAHEAD)
        room = self._limit - RESERVE - _size(self._reopened, self._unit)
        if before > 0 and _size(self._buffer[:before] + self._shown(block), self._unit) > room:
            return self._cut(before)
        if block.end is None:
            return None
        del blocks[0]
        return self._take(self._at(block.end))

    def _is_for_file(self, block: CodeBlock) -> bool:
        return block.lines > self._code_file_lines

    def _at(self, position: int) -> int:
        """Return where a position of the whole text is in the buffer."""
        return position - self._read + len(self._buffer)

    def _shown(self, block: CodeBlock) -> str:
        """Return what a chat shows of a block."""
        start = max(0, self._at(block.start))
        return beginning_of(self._buffer[start : start + MAX_BEGINNING_CHARS], block.lines)

    def _take(self, length: int) -> str:
        """Remove a chunk of exactly this length from the buffer and return it."""
        piece, self._buffer = self._buffer[:length], self._buffer[length:]
        opened, self._fence = self._fence, ""
        self._strip_newlines()
        return _complete(opened, piece.rstrip("\n"))

    @property
    def _reopened(self) -> str:
        return f"{self._fence}\n" if self._fence else ""

    @property
    def _fitting(self) -> int:
        """The number of the buffer's characters that fit into a chunk."""
        room = self._limit - RESERVE - _size(self._reopened, self._unit)
        return _fitting(self._buffer, room, self._unit)

    def _cut(self, max_chars: int) -> str:
        """Remove one chunk of at most `max_chars` characters from the buffer and return it."""
        position, skip = self._best_cut(self._buffer[:max_chars])
        piece, self._buffer = self._buffer[:position], self._buffer[position + skip :]
        opened, self._fence = self._fence, self._shortened(open_fence(piece, self._fence))
        self._strip_newlines()
        return _complete(opened, piece)

    def _strip_newlines(self) -> None:
        """Drop blank lines at the beginning of the buffer, except in a fence."""
        if not self._fence:
            self._buffer = self._buffer.lstrip("\n")

    def _best_cut(self, window: str) -> tuple[int, int]:
        """Return where to cut and how many characters to drop there.

        A cut in the second half is preferred, so that no chunk is tiny; then a paragraph before a
        line before a word; then the longest chunk.
        """
        for start in (len(window) // 2, 1):
            for gap in ("\n\n", "\n", " "):
                if (position := self._last(gap, window, start)) > 0:
                    if not open_fence(window[:position], self._fence):
                        return position, len(gap)
                    # In code, blank lines and spaces are kept.
                    return (position + 1, 0) if gap == " " else (position, 1)
        position = len(window)
        while position > 1 and self._would_begin_a_fence(position):
            position -= 1
        return (position, 0) if position > 1 else (len(window), 0)

    def _last(self, gap: str, window: str, start: int) -> int:
        """Return the position of the last `gap` after which a chunk can begin; -1 without one."""
        position = window.rfind(gap, start)
        while gap == " " and position > 0 and self._would_begin_a_fence(position + 1):
            position = window.rfind(gap, start, position)
        for _ in range(MAX_HEADINGS):
            if gap == " " or position < 1 or not self._ends_in_heading(window[:position]):
                break
            position = window.rfind(gap, start, position)
        return position

    def _ends_in_heading(self, piece: str) -> bool:
        """Whether the last line of a piece is a heading, which belongs to what follows."""
        line = piece.rstrip().rpartition("\n")[2]
        return bool(_HEADING.fullmatch(line)) and not open_fence(piece, self._fence)

    def _would_begin_a_fence(self, position: int) -> bool:
        """Whether a chunk that begins at `position` would begin with a fence by accident."""
        return _FENCE_START.match(self._buffer, position) is not None

    def _shortened(self, fence: str) -> str:
        """Return the opening line of a fence, without its language if it is long."""
        return fence if _size(fence, self._unit) <= self._limit // 4 else marker_of(fence)


def _complete(opened: str, piece: str) -> str:
    """Return a chunk with its fences opened and closed."""
    if not piece.strip():
        return ""
    head = f"{opened}\n" if opened else ""
    still_open = open_fence(piece, opened)
    return f"{head}{piece}\n{marker_of(still_open)}" if still_open else head + piece.rstrip()


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


def open_fence(text: str, opened: str) -> str:
    """Return the opening line of the fence that `text` ends in; empty if it ends outside.

    `opened` is the opening line of the fence that `text` begins in.
    """
    for line in _FENCE_LINE.finditer(text):
        opened = fence_after(line[0], opened)
    return opened
