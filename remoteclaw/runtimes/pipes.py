"""A CLI's pipes as lines: bounded memory whatever it prints, and no copy that grows with a line."""

import asyncio
import contextlib
import os
import re
import time
from collections import deque
from collections.abc import Sequence

import orjson

from remoteclaw.protocols import LOG_LINE

#: The size of one read, in bytes.
READ_BYTES = 256 * 1024
#: The longest line that is kept, in bytes: claude repeats a whole answer in one line.
#: A longer one is replaced by an empty one.
LINE_BYTES = 64 * 1024 * 1024
#: The size of the queue at which the CLI has to wait, in bytes.
QUEUE_BYTES = 8 * 1024 * 1024
#: The memory of a line besides its bytes: without it, a million of short ones would seem small.
LINE_COST = 64
#: The part of standard error that is kept, in bytes.
ERROR_BYTES = 16 * 1024


class LinePipes:
    """The three pipes of one CLI; closing it leaves the CLI alone."""

    def __init__(self, pipes: Sequence[int], *, unread: bytes = b"") -> None:
        self._stdin, self._stdout, self._stderr = pipes
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes] = deque()
        self._queued = 0
        self._partial = bytearray()
        self._is_too_long = False
        """Whether the line that is being read is being dropped."""
        self._errors = b""
        self._log: tuple[re.Pattern[bytes], re.Pattern[bytes]] | None = None
        """Patterns of the log in standard error, and of its lines that are read."""
        self._log_partial = b""
        self._arrived = asyncio.Event()
        self._is_paused = False
        self._is_held = False
        self.has_ended = False
        """Whether the CLI or its holder is gone."""
        self._ended = asyncio.Event()
        self._write_lock = asyncio.Lock()
        self._unsent = memoryview(b"")
        self.heard_at = time.monotonic()
        """The time of the CLI's last output, on `time.monotonic()`."""
        self._writing: asyncio.Future[None] | None = None
        for descriptor in pipes:
            os.set_blocking(descriptor, False)
        if unread:
            self._split(unread)
        self._loop.add_reader(self._stdout, self._on_output)
        self._loop.add_reader(self._stderr, self._on_errors)

    # -- reading -------------------------------------------------------------------------------

    async def read(self) -> bytes | None:
        """Return the next line without its end; None when the CLI has ended.

        An empty one stands for a line that was too long.
        """
        while not self._lines:
            if self.has_ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._pop()

    def take_unread(self) -> list[bytes]:
        """Return the lines that have arrived and were not read, without waiting.

        A CLI that prints faster than it is read is not followed for ever.
        """
        lines: list[bytes] = []
        size = 0
        if self._log and not self.has_ended:
            self._on_errors()
        while True:
            may_be_more = not self.has_ended and self._on_output()
            while self._lines:
                lines.append(self._pop())
                size += len(lines[-1])
            if not may_be_more or size > LINE_BYTES:
                return lines

    def hold(self) -> None:
        """Read only on request from now on: the rest is for the next worker."""
        self._is_held = True
        if not self.has_ended:
            self._loop.remove_reader(self._stdout)
            self._loop.remove_reader(self._stderr)

    @property
    def is_clean(self) -> bool:
        """Whether every line that began was read and sent to its end."""
        is_read = not self._lines and not self._partial and not self._is_too_long
        return is_read and not self._unsent and not self.has_ended

    def follow_log(self, log: re.Pattern[bytes], wanted: re.Pattern[bytes]) -> None:
        """Read what is `wanted` of standard error among the lines; drop what else fits `log`."""
        printed, self._errors = self._errors, b""
        self._log = (log, wanted)
        self._take_errors(printed)

    def last_errors(self) -> str:
        """Return the end of what the CLI printed on standard error."""
        if not self.has_ended:
            self._on_errors()
        return (self._errors + self._log_partial).decode("utf-8", "replace").strip()

    def _pop(self) -> bytes:
        line = self._lines.popleft()
        self._queued -= len(line) + LINE_COST
        if self._is_paused and self._queued < QUEUE_BYTES // 2 and not self.has_ended:
            self._is_paused = False
            if not self._is_held:
                self._loop.add_reader(self._stdout, self._on_output)
        return line

    def _on_output(self) -> bool:
        """Read what has arrived; return whether more may have."""
        try:
            data = os.read(self._stdout, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.end()
            return False
        self.heard_at = time.monotonic()
        if self._log:
            self._on_errors()  # what it noted before it said this
        self._split(data)
        if self._queued > QUEUE_BYTES and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._stdout)
        return True

    def _split(self, data: bytes) -> None:
        head, newline, rest = data.partition(b"\n")
        if len(self._partial) + len(head) > LINE_BYTES:
            self._partial = bytearray()
            self._is_too_long = True
        if not self._is_too_long:
            self._partial += head
        if not newline:
            return
        if self._is_too_long:
            self._is_too_long = False
            self._push(b"")
        else:
            self._push_unless_blank(bytes(self._partial))
        *lines, last = rest.split(b"\n")
        for line in lines:
            self._push_unless_blank(line)
        self._partial = bytearray(last)
        self._arrived.set()

    def _push_unless_blank(self, line: bytes) -> None:
        if line and not line.isspace():
            self._push(line)

    def _push(self, line: bytes) -> None:
        self._lines.append(line)
        self._queued += len(line) + LINE_COST

    def _on_errors(self) -> None:
        try:
            data = os.read(self._stderr, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._stderr)
        self._take_errors(data)

    def _take_errors(self, data: bytes) -> None:
        if self._log is None:
            self._errors = (self._errors + data)[-ERROR_BYTES:]
            return
        log, wanted = self._log
        *lines, partial = (self._log_partial + data).split(b"\n")
        self._log_partial = partial[-ERROR_BYTES:]
        for line in lines:
            if wanted.search(line):
                text = line.decode("utf-8", "replace")
                self._push(orjson.dumps({"method": LOG_LINE, "params": {"line": text}}))
                self._arrived.set()
            elif not log.match(line):
                self._errors = (self._errors + line + b"\n")[-ERROR_BYTES:]

    # -- writing -------------------------------------------------------------------------------

    async def write(self, line: bytes) -> None:
        """Send one line; a CLI that has ended is noticed by `read()`, not here.

        A CLI that doesn't read makes its writers wait. One that stops waiting leaves the rest of
        its line to the next: an incomplete line would spoil the one behind it.
        """
        async with self._write_lock:
            await self._send_rest()
            self._unsent = memoryview(line + b"\n")
            await self._send_rest()

    async def _send_rest(self) -> None:
        while self._unsent and not self.has_ended:
            try:
                sent = os.write(self._stdin, self._unsent)
            except BlockingIOError:
                await self._writable()
            except OSError:
                return
            else:
                self._unsent = self._unsent[sent:]

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
        """End reading and writing: the CLI or its holder is gone."""
        if self.has_ended:
            return
        self._on_errors()
        self.has_ended = True
        self._ended.set()
        self.close()
        self._arrived.set()
        self._wake_writer()

    def _wake_writer(self) -> None:
        # One is enough: the others wait for its lock, and see the end when they get it.
        if self._writing and not self._writing.done():
            self._writing.set_result(None)

    def close(self) -> None:
        """Close our descriptors; those of the holder stay open."""
        pipes = (self._stdin, self._stdout, self._stderr)
        self._stdin = self._stdout = self._stderr = -1
        for descriptor in pipes:
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
                self._loop.remove_writer(descriptor)
                with contextlib.suppress(OSError):
                    os.close(descriptor)
