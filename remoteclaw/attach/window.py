"""The user's terminal: switched to another screen and modes while attached, and always restored.

Its modes do not follow those of the remote program: `keys.py` parses its input into named keys, and
the gateway encodes these as the program expects.
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

#: Saves the title and modes, and switches to the alternate screen, with: unambiguous keys (the
#: kitty protocol, or xterm's), bracketed pastes, no arrow keys from the wheel, no line wrap.
ENTER = (
    "\x1b[22;2t\x1b[?1049h\x1b[>1u\x1b[>4;1m\x1b[?2004h\x1b[?1007s\x1b[?1007l\x1b[?7l\x1b[0m\x1b[2J"
)
#: Undoes `ENTER`. It begins by ending any sequence that was being written.
LEAVE = (
    "\x1b\\\x1b[?2026l\x1b]8;;\x1b\\\x1b[0m\x1b[<u\x1b[>4m\x1b[?2004l\x1b[?1007r\x1b[?7h\x1b[0 q"
    "\x1b]2;\x07\x1b[?25h\x1b[?1049l\x1b[23;2t"
)
WHEEL_ON, WHEEL_OFF = "\x1b[?1007h", "\x1b[?1007l"
#: How long to wait at the end for a terminal that does not read its output, in seconds.
LEAVE_S = 1.0
#: How much is read at once, in bytes.
READ_BYTES = 4096


class WindowMissing(RemoteClawError):
    """Raised when the user's terminal can't be opened."""


class WindowClosed(Exception):
    """Raised when the user's terminal is gone."""


class Window:
    """The terminal in which this process was started."""

    def __init__(self, path: str) -> None:
        """`path` is the terminal's device.

        It is opened again, because O_NONBLOCK would also apply to the shell's open file.
        """
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise WindowMissing(f"The terminal {path} can't be opened: {error.strerror}.") from None

    @property
    def size(self) -> tuple[int, int]:
        """The columns and rows; 80 × 24 if they are unknown."""
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self._fd)
            if columns > 0 and rows > 0:
                return columns, rows
        return 80, 24

    @contextlib.contextmanager
    def entered(self, on_input: Callable[[bytes], None]) -> Iterator[None]:
        """Switch the terminal to our screen and modes, and restore it at the end.

        `on_input` receives the input, and b"" when the terminal is gone.
        """
        loop = asyncio.get_running_loop()
        before = termios.tcgetattr(self._fd)
        try:
            tty.setraw(self._fd, termios.TCSANOW)
            self._write_all(ENTER)
            loop.add_reader(self._fd, self._read, on_input)
            yield
        finally:
            loop.remove_reader(self._fd)
            loop.remove_writer(self._fd)
            # Signal handlers only cancel tasks, so no signal interrupts these lines.
            with contextlib.suppress(OSError, termios.error):
                self._write_all(LEAVE)
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, before)
                termios.tcflush(self._fd, termios.TCIFLUSH)  # else the shell would read our input

    def close(self) -> None:
        """Close the terminal's device."""
        os.close(self._fd)

    async def write(self, text: str) -> None:
        """Write `text`, and wait until the terminal has read it all. Raises `WindowClosed`."""
        data = memoryview(text.encode(errors="replace"))
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                await self._wait_writable()
            except OSError:
                raise WindowClosed from None

    async def _wait_writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_writer(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._fd)

    def _read(self, on_input: Callable[[bytes], None]) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._fd)
        on_input(data)

    def _write_all(self, text: str) -> None:
        """Write without the event loop, for `LEAVE_S` at most."""
        data, deadline = memoryview(text.encode()), time.monotonic() + LEAVE_S
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select((), (self._fd,), (), left)[1]:
                    return
