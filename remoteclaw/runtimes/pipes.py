"""A CLI's pipes as a stream of lines, with bounded memory and linear time whatever it prints."""

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
#: The longest line, in bytes: claude repeats a whole answer in one line. A longer line is replaced
#: by an empty one.
MAX_LINE_BYTES = 64 * 1024 * 1024
#: Above this size of the queue, in bytes, nothing is read, so that the CLI has to wait.
MAX_QUEUE_BYTES = 8 * 1024 * 1024
#: The memory per queued line in addition to its content, in bytes: it counts for many short lines.
LINE_OVERHEAD_BYTES = 64
#: The length of the end of standard error that is kept, in bytes.
MAX_ERROR_BYTES = 16 * 1024


class LinePipes:
    """The three pipes of one CLI. Closing them does not end the CLI."""

    def __init__(self, pipes: Sequence[int], *, unread: bytes = b"") -> None:
        self._stdin, self._stdout, self._stderr = pipes
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes] = deque()
        self._queued = 0
        self._partial = bytearray()
        self._is_too_long = False
        """Whether the current line is dropped, because it is too long."""
        self._errors = b""
        """The end of standard error, without log lines."""
        self._log: tuple[re.Pattern[bytes], re.Pattern[bytes]] | None = None
        """Patterns of log lines in standard error: of all, and of those that are read."""
        self._log_partial = b""
        """The incomplete last line of standard error, while a log is followed."""
        self._arrived = asyncio.Event()
        self._is_paused = False
        """Whether reading is suspended, because the queue is full."""
        self._is_held = False
        """Whether standard output is read only in `take_unread()`."""
        self.has_ended = False
        """Whether the CLI or its holder has ended."""
        self._ended = asyncio.Event()
        self._write_lock = asyncio.Lock()
        self._unsent = memoryview(b"")
        """The unsent rest of a line."""
        self.last_output_at = time.monotonic()
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
        """Return the next line without its newline; None once the CLI has ended.

        An empty line stands for one that was too long.
        """
        while not self._lines:
            if self.has_ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._pop()

    def take_unread(self) -> list[bytes]:
        """Return the unread lines that have arrived, without waiting.

        The size is limited, so that a CLI that prints faster than it is read can't keep the loop
        running.
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
            if not may_be_more or size > MAX_LINE_BYTES:
                return lines

    def hold(self) -> None:
        """Stop reading, except in `take_unread()`: unread output is left for the next worker."""
        self._is_held = True
        if not self.has_ended:
            self._loop.remove_reader(self._stdout)
            self._loop.remove_reader(self._stderr)

    @property
    def is_clean(self) -> bool:
        """Whether no line is partly read or partly sent, and none is unread."""
        is_read = not self._lines and not self._partial and not self._is_too_long
        return is_read and not self._unsent and not self.has_ended

    def follow_log(self, log: re.Pattern[bytes], wanted: re.Pattern[bytes]) -> None:
        """Insert lines of standard error that match `wanted` into the stream of lines.

        Each becomes a notification `LOG_LINE`. Other lines that match `log` are dropped.
        """
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
        self._queued -= len(line) + LINE_OVERHEAD_BYTES
        if self._is_paused and self._queued < MAX_QUEUE_BYTES // 2 and not self.has_ended:
            self._is_paused = False
            if not self._is_held:
                self._loop.add_reader(self._stdout, self._on_output)
        return line

    def _on_output(self) -> bool:
        """Read once; return whether there may be more to read."""
        try:
            data = os.read(self._stdout, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.end()
            return False
        self.last_output_at = time.monotonic()
        if self._log:
            self._on_errors()  # log lines precede the output that was printed after them
        self._split(data)
        if self._queued > MAX_QUEUE_BYTES and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._stdout)
        return True

    def _split(self, data: bytes) -> None:
        head, newline, rest = data.partition(b"\n")
        if len(self._partial) + len(head) > MAX_LINE_BYTES:
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
        self._queued += len(line) + LINE_OVERHEAD_BYTES

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
            self._errors = (self._errors + data)[-MAX_ERROR_BYTES:]
            return
        log, wanted = self._log
        *lines, partial = (self._log_partial + data).split(b"\n")
        self._log_partial = partial[-MAX_ERROR_BYTES:]
        for line in lines:
            if wanted.search(line):
                text = line.decode("utf-8", "replace")
                self._push(orjson.dumps({"method": LOG_LINE, "params": {"line": text}}))
                self._arrived.set()
            elif not log.match(line):
                self._errors = (self._errors + line + b"\n")[-MAX_ERROR_BYTES:]

    # -- writing -------------------------------------------------------------------------------

    async def write(self, line: bytes) -> None:
        """Send one line; waits while the CLI does not read. Ignores that the CLI has ended.

        If a writer is cancelled, the next writer first sends the rest of the line: an incomplete
        line would spoil the next one.
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
        """Wait until the CLI and all processes that inherited its output have closed the output."""
        await self._ended.wait()

    def end(self) -> None:
        """End reading and writing, because the CLI or its holder has ended."""
        if self.has_ended:
            return
        self._on_errors()
        self.has_ended = True
        self._ended.set()
        self.close()
        self._arrived.set()
        self._wake_writer()

    def _wake_writer(self) -> None:
        # Waking one writer is enough: the others wait for its lock, and then see `has_ended`.
        if self._writing and not self._writing.done():
            self._writing.set_result(None)

    def close(self) -> None:
        """Close the descriptors of this process; the holder's remain open."""
        pipes = (self._stdin, self._stdout, self._stderr)
        self._stdin = self._stdout = self._stderr = -1
        for descriptor in pipes:
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
                self._loop.remove_writer(descriptor)
                with contextlib.suppress(OSError):
                    os.close(descriptor)
