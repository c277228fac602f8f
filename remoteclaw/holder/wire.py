"""The connection to a holder, and its start: the common parts of the clients of both modes."""

import asyncio
import contextlib
import errno
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

PROTOCOL = "1"
#: The size of a read, in bytes: a larger buffer costs 50 µs, even for a single key.
READ_BYTES = 65536
#: How long to wait for an answer of the holder, in seconds. It takes milliseconds, unless the
#: machine is out of memory or the process is stopped.
ANSWER_S = 10.0
#: How long to wait for a holder's HELLO on attaching, or for the end of its process tree, in
#: seconds. A tree gets a second of grace, then SIGKILL until no process is left.
END_S = 15.0

_children: set[int] = set()
_HERE = str(Path(__file__).parent)
# Imported instead of run as a script, so that Python caches its bytecode: 3 ms of a cold start.
_BOOTSTRAP = "import sys; sys.path.insert(0, sys.argv[1]); import program; program.main()"


class LaunchFailed(Exception):
    """Raised if the CLI can't be executed; `errno` says why."""

    def __init__(self, errno: int) -> None:
        super().__init__(os.strerror(errno))
        self.errno = errno


class HolderConnection:
    """The client's end of a connection to a holder."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        """`path` is the path of the holder's socket."""
        self.path = path
        self.pid = 0
        """The CLI's process id."""
        self._sock = sock
        self._buffer = b""
        self.descriptors: tuple[int, ...] = ()
        """The descriptors that the holder has sent, which the client closes."""

    @classmethod
    async def _attach(cls, path: Path, message: str) -> Self | None:
        """Return a client that has attached with `message`; None if the holder is gone or refuses.

        Raises TimeoutError if the holder doesn't answer.
        """
        client = cls(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)
        is_attached = False
        try:
            await client._connect()
            await client._send(message.encode())
            is_attached = await client._read_hello(await client._answer(END_S))
        except TimeoutError:
            raise
        except (OSError, EOFError):
            pass
        finally:
            if not is_attached:
                client._close()
        return client if is_attached else None

    async def _connect(self) -> None:
        self._sock.setblocking(False)
        async with asyncio.timeout(END_S):
            while True:
                try:
                    return self._sock.connect(str(self.path))
                except BlockingIOError:  # the holder's backlog is full
                    await asyncio.sleep(0.02)

    async def _send(self, data: bytes) -> None:
        async with asyncio.timeout(ANSWER_S):
            await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def _read_launch(self) -> None:
        """Read the HELLO of a new holder; raises `LaunchFailed` if it sends FAILED."""
        words = await self._answer()
        if words[0] == "FAILED":
            raise LaunchFailed(int(words[1]))
        if not await self._read_hello(words):
            raise EOFError("the holder is of another version")

    async def _read_hello(self, words: list[str]) -> bool:
        """Read the rest of HELLO, whose line is `words`.

        False if it is no HELLO of this mode and version.
        """
        return False

    async def _answer(self, timeout_s: float = ANSWER_S) -> list[str]:
        """Return the words of the next line."""
        async with asyncio.timeout(timeout_s):
            return (await self._line()).split()

    async def _line(self) -> str:
        while b"\n" not in self._buffer:
            await self._receive()
        line, _rest, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    async def _receive(self) -> None:
        await _until_readable(self._sock)
        data, descriptors, _flags, _address = socket.recv_fds(
            self._sock, READ_BYTES, 3, socket.MSG_CMSG_CLOEXEC
        )
        if descriptors:
            self.descriptors = tuple(descriptors)
        if not data:
            raise EOFError("the holder closed the connection")
        self._buffer += data

    def _close(self) -> None:
        self._sock.close()


def start_holder(run_dir: Path) -> socket.socket:
    """Start a holder; return the client's end of its first connection, for START."""
    ours, theirs = socket.socketpair()
    with theirs:
        _children.add(_spawn(theirs, run_dir))
    reap_holders()
    ours.setblocking(False)
    return ours


def _spawn(sock: socket.socket, run_dir: Path) -> int:
    """Start a holder whose standard input is `sock`; return its process id."""
    log = str(run_dir / "holder.log")
    return os.posix_spawn(
        sys.executable,
        # The holder doesn't use the run directory's argument. It is for people who list processes,
        # and for `host.process.end_orphans()`.
        [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, _HERE, str(run_dir)],
        {"LC_ALL": "C.UTF-8"},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, sock.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT, 0o600),
        ],
        setsid=True,
    )


def encode_fields(fields: Sequence[str]) -> bytes:
    """Return the body of START; raises `LaunchFailed` if a field contains a NUL."""
    body = b"\0".join(os.fsencode(field) for field in fields)
    if body.count(b"\0") != len(fields) - 1:
        raise LaunchFailed(errno.EINVAL)
    return body


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _until_readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sock, lambda: _set(ready))
    try:
        await ready
    finally:
        loop.remove_reader(sock)


def reap_holders() -> None:
    """Reap those children of this process that are holders and have ended."""
    for pid in list(_children):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _children.discard(pid)
