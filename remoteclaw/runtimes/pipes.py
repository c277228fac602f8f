"""A CLI's pipes as lines: bounded memory whatever it prints, and no copy that grows with a line."""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import orjson

__all__ = ["LinePipes", "decode"]

#: How much is read at once, in bytes.
READ_BYTES = 256 * 1024
#: The longest line that is kept, in bytes: claude repeats a whole answer in one line.
#: A longer one is dropped, counted, and the next one is read.
LINE_BYTES = 64 * 1024 * 1024
#: How much may wait to be read before the CLI has to wait too, in bytes.
QUEUE_BYTES = 8 * 1024 * 1024
#: How much of standard error is kept, in bytes.
ERROR_BYTES = 16 * 1024


def decode(line: bytes) -> dict[str, Any]:
    """Return a line's object; anything else is an empty one, which every reader skips."""
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return message if isinstance(message, dict) else {}


class LinePipes:
    """The three pipes of one CLI; closing it leaves the CLI alone."""

    def __init__(self, pipes: Sequence[int], *, unread: bytes = b"") -> None:
        self._stdin, self._stdout, self._stderr = pipes
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes] = deque()
        self._queued = 0
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._errors = b""
        self._arrived = asyncio.Event()
        self._is_paused = False
        self.has_ended = False
        """Whether the CLI is gone, or whoever kept it."""
        self._ended = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None
        self.dropped_lines = 0
        """Lines that were longer than anything sensible."""
        for descriptor in pipes:
            os.set_blocking(descriptor, False)
        if unread:
            self._split(unread)
        self._loop.add_reader(self._stdout, self._on_output)
        self._loop.add_reader(self._stderr, self._on_errors)

    # -- reading -------------------------------------------------------------------------------

    async def read(self) -> bytes | None:
        """Return the next line without its end; None when the CLI has ended."""
        while not self._lines:
            if self.has_ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._pop()

    def take_unread(self) -> list[bytes]:
        """Return the lines that have arrived and were not read, without waiting."""
        if not self.has_ended:
            self._on_output()
        return [self._pop() for _ in range(len(self._lines))]

    @property
    def is_clean(self) -> bool:
        """Whether everything that arrived was read, to the end of a line."""
        return not self._lines and not self._partial and not self.has_ended

    def last_errors(self) -> str:
        """Return the end of what the CLI printed on standard error."""
        if not self.has_ended:
            self._on_errors()
        return self._errors.decode("utf-8", "replace").strip()

    def _pop(self) -> bytes:
        line = self._lines.popleft()
        self._queued -= len(line)
        if self._is_paused and self._queued < QUEUE_BYTES // 2 and not self.has_ended:
            self._is_paused = False
            self._loop.add_reader(self._stdout, self._on_output)
        return line

    def _on_output(self) -> None:
        try:
            data = os.read(self._stdout, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        self._split(data)
        if self._queued > QUEUE_BYTES and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._stdout)

    def _split(self, data: bytes) -> None:
        head, newline, rest = data.partition(b"\n")
        if self._partial_size + len(head) > LINE_BYTES:
            self._partial = []  # its size is kept: the rest of the line has to be dropped as well
        else:
            self._partial.append(head)
        self._partial_size += len(head)
        if not newline:
            return
        if self._partial_size > LINE_BYTES:
            self.dropped_lines += 1
        else:
            self._push(b"".join(self._partial))
        *lines, last = rest.split(b"\n")
        for line in lines:
            self._push(line)
        self._partial, self._partial_size = ([last], len(last)) if last else ([], 0)
        self._arrived.set()

    def _push(self, line: bytes) -> None:
        self._lines.append(line)
        self._queued += len(line)

    def _on_errors(self) -> None:
        try:
            data = os.read(self._stderr, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._stderr)
        self._errors = (self._errors + data)[-ERROR_BYTES:]

    # -- writing -------------------------------------------------------------------------------

    async def write(self, line: bytes) -> None:
        """Send one line; a CLI that has ended is noticed by `read()`, not here."""
        data = memoryview(line + b"\n")
        while data and not self.has_ended:
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                await self._writable()
            except OSError:
                return

    async def _writable(self) -> None:
        descriptor = self._stdin
        ready = self._writing = self._loop.create_future()
        self._loop.add_writer(descriptor, self._wake_writer)
        try:
            await ready
        finally:
            self._writing = None
            if self._stdin == descriptor:
                self._loop.remove_writer(descriptor)

    # -- the end -------------------------------------------------------------------------------

    async def closed(self) -> None:
        """Wait until the CLI, and everything that inherited its output, has closed it."""
        await self._ended.wait()

    def end(self) -> None:
        """Let readers see the end: the CLI, or whoever kept it, is gone."""
        if self.has_ended:
            return
        self._on_errors()
        self.has_ended = True
        self._ended.set()
        self.close()
        self._arrived.set()
        self._wake_writer()

    def _wake_writer(self) -> None:
        if self._writing and not self._writing.done():
            self._writing.set_result(None)

    def close(self) -> None:
        """Close our descriptors; whoever holds the others can go on with the CLI."""
        pipes = (self._stdin, self._stdout, self._stderr)
        self._stdin = self._stdout = self._stderr = -1
        for descriptor in pipes:
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
                self._loop.remove_writer(descriptor)
                with contextlib.suppress(OSError):
                    os.close(descriptor)
