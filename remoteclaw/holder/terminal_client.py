"""The client of a holder in the mode `pty`: start, attach, read, type, resize, beat and end.

The program continues when the connection closes, and the next client gets the output that is kept.
"""

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from remoteclaw.holder.terminal_launch import TerminalLaunch, start_body
from remoteclaw.holder.wire import (
    ANSWER_S,
    END_S,
    PROTOCOL,
    READ_BYTES,
    HolderConnection,
    start_holder,
)

#: The maximum size of the input that waits for the program, in bytes, as in `holder/terminal.py`.
MAX_INPUT_BYTES = 64 * 1024
#: The maximum size of a piece of input, in bytes, as in `holder/output.py`: a paste is one piece.
MAX_MESSAGE_BYTES = 1_100_000
#: The maximum size of a picture, in bytes.
MAX_PICTURE_BYTES = 256 * 1024
#: The maximum size of the messages that wait for a holder that doesn't read, in bytes.
MAX_UNSENT_BYTES = 2 * MAX_MESSAGE_BYTES
#: The time between an interrupt and the end, in seconds, as in `holder/terminal.py`.
INTERRUPT_S = 2.0
#: The name of the file that a holder writes at its end.
ENDED_FILE = "ended"


@dataclass(frozen=True, slots=True)
class TerminalOutput:
    """Output of the program."""

    offset: int
    """The offset of the first byte. It is after the end of the last output if this client has read
    too slowly and the output between was skipped."""
    data: bytes


@dataclass(frozen=True, slots=True)
class TerminalEnded:
    """The end of the program."""

    status: int | None
    """The exit status; None if the holder was killed, or the connection closed."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The end of the connection, because another client has attached."""


class TerminalClient(HolderConnection):
    """A client that is attached to a terminal; it is the only one that gets the output."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        super().__init__(sock, path)
        self.holder = ""
        """The holder's process, in the form of `host.process.identity()`."""
        self.cols = self.rows = 0
        self.picture = b""
        """The last picture that a client has given `keep()`, of the screen at `picture_offset`."""
        self.picture_offset = 0
        self.output = b""
        """The output from `output_offset` to the time of attaching."""
        self.output_offset = 0
        self._input_bytes = 0
        """The size of the input that the program has not read yet."""
        self._out = bytearray()
        self._is_sent = asyncio.Event()
        self._last: TerminalEnded | Replaced | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._is_watched = self._is_stuck = self._is_over = False

    # -- starting and attaching ----------------------------------------------------------------

    @classmethod
    async def start(cls, launch: TerminalLaunch, *, deadline: float) -> Self:
        """Start a holder and its CLI; return an attached client.

        The terminal ends at `deadline`, on `boottime()`, unless `beat()` moves it. Raises
        `LaunchFailed` if the CLI can't be executed, and TimeoutError if the holder doesn't answer.
        """
        terminal = cls(start_holder(launch.run_dir), launch.socket_path)
        try:
            body = start_body(launch, deadline)
            head = f"START {PROTOCOL} pty {len(body)}\n".encode()
            if launch.cwd_fd is None:
                await terminal._send(head)
            else:
                socket.send_fds(terminal._sock, [head], [launch.cwd_fd])
            await terminal._send(body)
            await terminal._read_launch()
        except BaseException:
            terminal._close()
            raise
        return terminal

    @classmethod
    async def attach(cls, path: Path, *, key: str) -> Self | None:
        """Return a client that has attached in place of the attached one.

        None if the terminal is gone or refuses. Raises TimeoutError if the holder doesn't answer.
        """
        return await cls._attach(path, f"ATTACH {PROTOCOL} pty {key}\n")

    def close(self) -> None:
        """Close the connection; the program continues."""
        self._close()

    # -- while attached ------------------------------------------------------------------------

    async def read(self) -> TerminalOutput | TerminalEnded | Replaced:
        """Wait for the next event. After `TerminalEnded` or `Replaced`, return the same again."""
        while self._last is None:
            try:
                event = await self._event()
            except (OSError, EOFError, ValueError):  # the holder was killed, or close() was called
                event = TerminalEnded(None)
            if isinstance(event, TerminalOutput):
                return event
            if event is not None:
                self._last = event
                self._close()
        return self._last

    async def write(self, data: bytes) -> bool:
        """Type `data`; return False, without typing, if too much input waits for the program.

        Only `read()` learns what the program has read. Raises ValueError for more than 1.1 MB.
        """
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError("a piece of input is 1.1 MB long at most")
        if self._input_bytes >= MAX_INPUT_BYTES or not self._put(b"IN %d\n" % len(data) + data):
            return False
        self._input_bytes += len(data)
        return True

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the terminal's window, and notify the program even of the same size.

        Raises ValueError for a size that no window has.
        """
        if not (1 <= cols <= 1000 and 1 <= rows <= 1000):
            raise ValueError(f"{cols} × {rows} is no size of a window")
        if self._put(b"SIZE %d %d\n" % (cols, rows)):
            self.cols, self.rows = cols, rows

    async def keep(self, offset: int, picture: bytes) -> None:
        """Have the holder keep a picture of the screen at `offset`, and discard earlier output.

        Return once the picture is sent, or after ten seconds. Raises ValueError for more than
        256 KB.
        """
        if len(picture) > MAX_PICTURE_BYTES:
            raise ValueError("a picture is 256 KB large at most")
        if self._put(b"KEEP %d %d\n" % (offset, len(picture)) + picture):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_sent.wait(), ANSWER_S)

    def beat(self, deadline: float) -> None:
        """Let the terminal live until `deadline` on `boottime()`.

        A beat that can't be sent is lost; then the terminal ends at its earlier deadline.
        """
        self._put(f"BEAT {deadline}\n".encode())

    # -- the protocol --------------------------------------------------------------------------

    def _put(self, message: bytes) -> bool:
        """Queue a message, to be sent as fast as the holder reads; False if the queue is full."""
        if self._sock.fileno() < 0 or len(self._out) + len(message) > MAX_UNSENT_BYTES:
            return False
        self._out += message
        self._is_sent.clear()
        self._flush()
        return True

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            asyncio.get_running_loop().add_writer(self._sock, self._flush)
            self._is_stuck = True
            return
        except OSError:  # the holder is gone, which read() reports
            self._out.clear()
        if self._is_stuck:
            asyncio.get_running_loop().remove_writer(self._sock)
            self._is_stuck = False
        self._is_sent.set()

    async def _event(self) -> TerminalOutput | TerminalEnded | Replaced | None:
        """Return the event of the next message; None for a message that is only for this client."""
        while (message := self._take()) is None:  # only a whole one, so that read() is cancellable
            await self._receive()
        words, body = message
        match words:
            case ["OUT", offset, _]:
                return TerminalOutput(int(offset), body)
            case ["EXIT", *status]:
                return TerminalEnded(int(status[0]) if status else None)
            case ["REPLACED"]:
                return Replaced()
            case ["TAKEN", size]:
                self._input_bytes -= int(size)
        return None

    def _take(self) -> tuple[list[str], bytes] | None:
        """Return the words and the body of the next message; None until it is complete."""
        head, newline, rest = self._buffer.partition(b"\n")
        words = head.decode().split()
        size = int(words[-1]) if newline and words[:1] == ["OUT"] else 0
        if not newline or len(rest) < size:
            return None
        self._buffer = rest[size:]
        return words, rest[:size]

    async def _receive(self) -> None:
        """Wait for bytes.

        The socket's reader stays registered, because adding it again would delay each key.
        """
        if self._is_over:
            raise EOFError("the holder closed the connection")
        loop = asyncio.get_running_loop()
        if not self._is_watched:
            loop.add_reader(self._sock, self._arrive)
            self._is_watched = True
        self._arrival = loop.create_future()
        await self._arrival

    def _arrive(self) -> None:
        """Receive bytes; stop watching the socket while much is received and not read."""
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._buffer += data
        self._is_over = not data
        if self._is_over or len(self._buffer) > MAX_MESSAGE_BYTES:
            self._is_watched = False
            asyncio.get_running_loop().remove_reader(self._sock)
        self._wake()

    def _wake(self) -> None:
        if self._arrival and not self._arrival.done():
            self._arrival.set_result(None)

    async def _read_hello(self, words: list[str]) -> bool:
        if words[:3] != ["HELLO", PROTOCOL, "pty"]:
            return False
        self.pid, self.holder = int(words[3]), " ".join(words[4:8])
        self.cols, self.rows, self._input_bytes = map(int, words[8:11])
        self.picture_offset, self.output_offset, end, size = map(int, words[11:15])
        async with asyncio.timeout(ANSWER_S):
            while len(self._buffer) < size:
                await self._receive()
            self.picture, self._buffer = self._buffer[:size], self._buffer[size:]
            await self._catch_up(end)
        return True

    async def _catch_up(self, end: int) -> None:
        """Read the output that the holder has kept, up to the offset `end`."""
        pieces: list[bytes] = []
        at = self.output_offset
        while at < end and self._last is None:
            match await self._event():
                case TerminalOutput(offset, data):
                    if offset != at:  # the program writes faster than this reads
                        pieces.clear()
                        self.output_offset = offset
                    pieces.append(data)
                    at = offset + len(data)
                case TerminalEnded() | Replaced() as last:
                    self._last = last
        self.output = b"".join(pieces)

    def _close(self) -> None:
        if self._sock.fileno() >= 0:
            with contextlib.suppress(RuntimeError):  # without a running loop, nothing is watched
                asyncio.get_running_loop().remove_reader(self._sock)
                asyncio.get_running_loop().remove_writer(self._sock)
        self._is_over = True
        self._wake()
        super()._close()


async def beat_terminal(path: Path, *, key: str, deadline: float) -> bool:
    """Let a terminal live until `deadline`, on `boottime()`, without attaching.

    False if the terminal is gone, refuses or doesn't answer.
    """
    return await _ask(path, f"BEAT {PROTOCOL} pty {key} {deadline}\n", ANSWER_S) == "ALIVE"


async def end_terminal(
    path: Path, *, key: str, grace_s: float = 1.0, interrupt: bool = False
) -> bool:
    """End a terminal's process tree, and wait until it is gone.

    With `interrupt`, the program gets ESC first, and two seconds to react. False if the holder
    refuses or doesn't answer, in which case processes may be left.
    """
    timeout_s = END_S + grace_s + (INTERRUPT_S if interrupt else 0)
    message = f"END {PROTOCOL} pty {key} {grace_s} {int(interrupt)}\n"
    return await _ask(path, message, timeout_s) in ("ENDED", "")


async def _ask(path: Path, message: str, timeout_s: float) -> str:
    """Send a request without attaching; return the holder's answer, empty if it is gone."""
    connection = HolderConnection(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)
    try:
        await connection._connect()
        await connection._send(message.encode())
        answer = " ".join(await connection._answer(timeout_s))
        if answer == "ENDED":  # wait for the end of the holder, which closes the connection
            await connection._answer(timeout_s)
        return answer
    except TimeoutError:
        return "no answer"
    except (OSError, EOFError):
        return ""
    finally:
        connection._close()
