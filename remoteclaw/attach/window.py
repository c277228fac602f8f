"""The person's terminal: switched over for the time of being attached, and put back, whatever ends.

Its modes are the same throughout, whatever the program in the far terminal asks for: keys are read
by name here, and written as that program wants them there.
"""

import asyncio
import contextlib
import os
import select
import termios
import time
import tty
from collections.abc import Callable, Iterator

from remoteclaw.errors import RemoteClawError

#: Title and modes kept, the other screen, and on it: keys that can be told apart (the kitty
#: protocol, or xterm's), pastes that have a beginning and an end, no wheel that types arrows, no
#: line that goes on in the next row.
ENTER = (
    "\x1b[22;2t\x1b[?1049h\x1b[>1u\x1b[>4;1m\x1b[?2004h\x1b[?1007s\x1b[?1007l\x1b[?7l\x1b[0m\x1b[2J"
)
#: All of it taken back. It begins with the end of whatever was being written.
LEAVE = (
    "\x1b\\\x1b[?2026l\x1b]8;;\x1b\\\x1b[0m\x1b[<u\x1b[>4m\x1b[?2004l\x1b[?1007r\x1b[?7h\x1b[0 q"
    "\x1b]2;\x07\x1b[?25h\x1b[?1049l\x1b[23;2t"
)
WHEEL_ON, WHEEL_OFF = "\x1b[?1007h", "\x1b[?1007l"
#: How long a terminal that takes nothing is waited for at the end, in seconds.
LEAVE_S = 1.0
#: How much is read at once, in bytes.
READ_BYTES = 4096


class WindowMissing(RemoteClawError):
    """Raised when there is no terminal to paint in."""


class WindowClosed(Exception):
    """Raised when the person's terminal is gone."""


class Window:
    """The terminal that this process was started in."""

    def __init__(self, path: str) -> None:
        """`path` is its device.

        It is opened again: not to wait is a property of the open file, which the shell shares.
        """
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise WindowMissing(f"The terminal {path} can't be opened: {error.strerror}.") from None

    @property
    def size(self) -> tuple[int, int]:
        """Its columns and rows."""
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self._fd)
            if columns > 0 and rows > 0:
                return columns, rows
        return 80, 24

    @contextlib.contextmanager
    def entered(self, typed: Callable[[bytes], None]) -> Iterator[None]:
        """Take the terminal for ourselves; `typed` gets what it sends, and b"" when it is gone."""
        loop = asyncio.get_running_loop()
        before = termios.tcgetattr(self._fd)
        try:
            tty.setraw(self._fd, termios.TCSANOW)
            self._write_all(ENTER)
            loop.add_reader(self._fd, self._read, typed)
            yield
        finally:
            loop.remove_reader(self._fd)
            loop.remove_writer(self._fd)
            # Signals only cancel tasks, so none comes between these lines.
            with contextlib.suppress(OSError, termios.error):
                self._write_all(LEAVE)
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, before)
                termios.tcflush(self._fd, termios.TCIFLUSH)  # else the shell would read it

    def close(self) -> None:
        """Release the terminal."""
        os.close(self._fd)

    async def write(self, text: str) -> None:
        """Write, and wait until the terminal has taken it all. Raises `WindowClosed`."""
        data = memoryview(text.encode(errors="replace"))
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                await self._writable()
            except OSError:
                raise WindowClosed from None

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_writer(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._fd)

    def _read(self, typed: Callable[[bytes], None]) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._fd)
        typed(data)

    def _write_all(self, text: str) -> None:
        """Write without the loop, for a moment at most."""
        data, until = memoryview(text.encode()), time.monotonic() + LEAVE_S
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                left = until - time.monotonic()
                if left <= 0 or not select.select((), (self._fd,), (), left)[1]:
                    return
