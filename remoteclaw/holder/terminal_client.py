"""The client of a holder that keeps a terminal: start, attach, output, input, size, beat, end.

Closing a connection, in whatever way, ends nothing: the program works on, and the next client goes
on from the byte where this one was.
"""

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from remoteclaw.holder.terminal_launch import TerminalLaunch, start_body
from remoteclaw.holder.wire import ANSWER_S, END_S, PROTOCOL, READ_BYTES, Connection, start_holder

#: The input that may wait for the program, in bytes; `holder/terminal.py` has the same.
INPUT_BYTES = 64 * 1024
#: The longest piece of input and the largest picture, in bytes.
MESSAGE_BYTES = 256 * 1024
#: What may wait to be sent to a holder that reads nothing, in bytes.
WAITING_BYTES = 1024 * 1024
#: The time that an interrupt has before the end, in seconds; `holder/terminal.py` has the same.
INTERRUPT_S = 2.0
#: The name of the file in which a holder leaves what remains.
ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Output:
    """What the program has written, from a byte of a certain number on."""

    offset: int
    """Beyond the end of the last one if this client was too slow for what was between."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The program has ended; without a status, its holder was killed."""

    status: int | None


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another client has attached."""


class TerminalClient(Connection):
    """The one client of a terminal that gets its output."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        super().__init__(sock, path)
        self.holder = ""
        """The holder's process, as `host.process.identity()` names it."""
        self.cols = self.rows = 0
        self.picture = b""
        """What the client before kept last, which shows the screen at `picture_offset`."""
        self.picture_offset = 0
        self.output = b""
        """The output from `output_offset` on, at the time of the attaching."""
        self.output_offset = 0
        self._input = 0  # how much of it waits for the program
        self._out = bytearray()
        self._is_sent = asyncio.Event()
        self._last: Ended | Replaced | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._is_watched = self._is_stuck = self._is_over = False

    # -- coming and going ----------------------------------------------------------------------

    @classmethod
    async def start(cls, launch: TerminalLaunch, *, deadline: float) -> Self:
        """Start a holder and its CLI, attached; `deadline`, on `boottime()`, counts until a beat.

        Raises `LaunchFailed` when the CLI can't be executed and TimeoutError when the holder does
        not answer.
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
            await terminal._started()
        except BaseException:
            terminal._close()
            raise
        return terminal

    @classmethod
    async def attach(cls, path: Path, *, key: str) -> Self | None:
        """Attach instead of the client that is attached now; None when it is gone or refuses.

        Raises TimeoutError when the holder does not answer.
        """
        return await cls._attached(path, f"ATTACH {PROTOCOL} pty {key}\n")

    def close(self) -> None:
        """Leave; the program works on."""
        self._close()

    # -- staying -------------------------------------------------------------------------------

    async def read(self) -> Output | Ended | Replaced:
        """Return what is next; `Ended` and `Replaced` are the last, and are told again."""
        while self._last is None:
            try:
                event = await self._event()
            except (OSError, EOFError, ValueError):  # killed, or closed by us
                event = Ended(None)
            if isinstance(event, Output):
                return event
            if event is not None:
                self._last = event
                self._close()
        return self._last

    async def write(self, data: bytes) -> bool:
        """Type; False, and nothing is typed, when too much waits for the program already.

        What the program has taken is known by `read()`.
        Raises ValueError for more than 256 KB.
        """
        if len(data) > MESSAGE_BYTES:
            raise ValueError("a piece of input is 256 KB long at most")
        if self._input >= INPUT_BYTES or not self._put(b"IN %d\n" % len(data) + data):
            return False
        self._input += len(data)
        return True

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the terminal's window; the program is told even if it is the same.

        Raises ValueError for a size that no window has.
        """
        if not (1 <= cols <= 1000 and 1 <= rows <= 1000):
            raise ValueError(f"{cols} × {rows} is no size of a window")
        if self._put(b"SIZE %d %d\n" % (cols, rows)):
            self.cols, self.rows = cols, rows

    async def keep(self, offset: int, picture: bytes) -> None:
        """Keep a picture of the screen after `offset` bytes instead of the output before that.

        Returns once it is sent, or the holder has read nothing for ten seconds.
        Raises ValueError for more than 256 KB.
        """
        if len(picture) > MESSAGE_BYTES:
            raise ValueError("a picture is 256 KB large at most")
        if self._put(b"KEEP %d %d\n" % (offset, len(picture)) + picture):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_sent.wait(), ANSWER_S)

    def beat(self, deadline: float) -> None:
        """Let the terminal live until `deadline` on `boottime()`.

        Too late or too full to be sent is the same as not sent: it ends.
        """
        self._put(f"BEAT {deadline}\n".encode())

    # -- the wire ------------------------------------------------------------------------------

    def _put(self, message: bytes) -> bool:
        """Send a message, as soon as the holder reads; False if it hasn't for long."""
        if self._sock.fileno() < 0 or len(self._out) + len(message) > WAITING_BYTES:
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
        except OSError:  # it is gone, as read() will say
            self._out.clear()
        if self._is_stuck:
            asyncio.get_running_loop().remove_writer(self._sock)
            self._is_stuck = False
        self._is_sent.set()

    async def _event(self) -> Output | Ended | Replaced | None:
        """Return the next message as what it means to us; None if that is nothing to others."""
        while (message := self._take()) is None:  # whole, so that a read() can be cancelled
            await self._receive()
        words, body = message
        match words:
            case ["OUT", offset, _]:
                return Output(int(offset), body)
            case ["EXIT", *status]:
                return Ended(int(status[0]) if status else None)
            case ["REPLACED"]:
                return Replaced()
            case ["TAKEN", size]:
                self._input -= int(size)
        return None

    def _take(self) -> tuple[list[str], bytes] | None:
        """Take the next message, if all of it is there."""
        head, newline, rest = self._buffer.partition(b"\n")
        words = head.decode().split()
        size = int(words[-1]) if newline and words[:1] == ["OUT"] else 0
        if not newline or len(rest) < size:
            return None
        self._buffer = rest[size:]
        return words, rest[:size]

    async def _receive(self) -> None:
        """Wait for more. The socket stays watched: to begin again costs more than a key."""
        if self._is_over:
            raise EOFError("the holder closed the connection")
        loop = asyncio.get_running_loop()
        if not self._is_watched:
            loop.add_reader(self._sock, self._arrive)
            self._is_watched = True
        self._arrival = loop.create_future()
        await self._arrival

    def _arrive(self) -> None:
        """Take what has come, but not much more than somebody waits for."""
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._buffer += data
        self._is_over = not data
        if self._is_over or len(self._buffer) > MESSAGE_BYTES:
            self._is_watched = False
            asyncio.get_running_loop().remove_reader(self._sock)
        self._wake()

    def _wake(self) -> None:
        if self._arrival and not self._arrival.done():
            self._arrival.set_result(None)

    async def _greeted(self, words: list[str]) -> bool:
        if words[:3] != ["HELLO", PROTOCOL, "pty"]:
            return False
        self.pid, self.holder = int(words[3]), " ".join(words[4:8])
        self.cols, self.rows, self._input = map(int, words[8:11])
        self.picture_offset, self.output_offset, end, size = map(int, words[11:15])
        async with asyncio.timeout(ANSWER_S):
            while len(self._buffer) < size:
                await self._receive()
            self.picture, self._buffer = self._buffer[:size], self._buffer[size:]
            await self._catch_up(end)
        return True

    async def _catch_up(self, end: int) -> None:
        """Read the output that was kept."""
        pieces: list[bytes] = []
        at = self.output_offset
        while at < end and self._last is None:
            match await self._event():
                case Output(offset, data):
                    if offset != at:  # there is more than is kept, faster than we read
                        pieces.clear()
                        self.output_offset = offset
                    pieces.append(data)
                    at = offset + len(data)
                case Ended() | Replaced() as last:
                    self._last = last
        self.output = b"".join(pieces)

    def _close(self) -> None:
        if self._sock.fileno() >= 0:
            with contextlib.suppress(RuntimeError):  # without a loop nothing is watched
                asyncio.get_running_loop().remove_reader(self._sock)
                asyncio.get_running_loop().remove_writer(self._sock)
        self._is_over = True
        self._wake()
        super()._close()


async def beat_terminal(path: Path, *, key: str, deadline: float) -> bool:
    """Let a terminal live until `deadline`; False when it is gone, refuses or doesn't answer."""
    return await _told(path, f"BEAT {PROTOCOL} pty {key} {deadline}\n", ANSWER_S) == "ALIVE"


async def end_terminal(
    path: Path, *, key: str, grace_s: float = 1.0, interrupt: bool = False
) -> bool:
    """End a terminal's program and all that it has started, and wait until it is gone.

    With `interrupt` it gets an ESC first, and two seconds. False means that the holder refused or
    did not answer, and that processes may be left.
    """
    patience_s = END_S + grace_s + (INTERRUPT_S if interrupt else 0)
    message = f"END {PROTOCOL} pty {key} {grace_s} {int(interrupt)}\n"
    return await _told(path, message, patience_s) in ("ENDED", "")


async def _told(path: Path, message: str, patience_s: float) -> str:
    """Return the holder's answer to a client that doesn't stay; empty if it is gone."""
    connection = Connection(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)
    try:
        await connection._connect()
        await connection._send(message.encode())
        answer = " ".join(await connection._answer(patience_s))
        if answer == "ENDED":  # then its process goes, which closes the connection
            await connection._answer(patience_s)
        return answer
    except TimeoutError:
        return "no answer"
    except (OSError, EOFError):
        return ""
    finally:
        connection._close()
