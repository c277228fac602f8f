"""The holder's client: start, attach, beat, PARK and END.

The connection itself is the dead man's switch: if this process dies or closes it without PARK, the
agent's tree is ended.
"""

import asyncio
import contextlib
import errno
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["HolderClient", "HolderLaunch", "LaunchFailed"]

PROTOCOL = "1"
#: The longest wait for an answer of the holder, in seconds: it takes milliseconds, unless the
#: machine is out of memory or the process is stopped.
ANSWER_S = 10.0
#: The longest wait for the end of a tree, in seconds: one of grace, then SIGKILL until all is gone.
END_S = 15.0

_children: set[int] = set()
_HERE = str(Path(__file__).parent)
# Imported instead of run as a script, so that Python caches its byte code: 3 ms of a cold start.
_BOOTSTRAP = "import sys; sys.path.insert(0, sys.argv[1]); import program; program.main()"


class LaunchFailed(Exception):
    """Raised when the CLI could not be executed; `errno` says why."""

    def __init__(self, errno: int) -> None:
        super().__init__(os.strerror(errno))
        self.errno = errno


@dataclass(frozen=True, slots=True)
class HolderLaunch:
    """The data with which a holder starts its CLI."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    run_dir: Path
    """A 0700 directory of this process alone; the holder removes it when it ends."""
    key: str
    """The secret for those that attach later."""
    lifeline: str = ""
    """Path of a FIFO; when its writer is gone, the agent ends. Empty for none."""

    @property
    def socket_path(self) -> Path:
        """The path of the holder's socket."""
        return self.run_dir / "holder.sock"


class HolderClient:
    """An attached holder: the CLI's pipes, and a connection that keeps the CLI alive."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        self._sock = sock
        self._buffer = b""
        self.path = path
        self.pid = 0
        """The CLI's process id."""
        self.pipes: tuple[int, ...] = ()
        self.state = b""
        """The state that the last worker left when it parked the agent; empty for a new one."""
        self.output = b""
        """The output of the CLI while it was parked."""

    # -- coming --------------------------------------------------------------------------------

    @classmethod
    async def start(cls, launch: HolderLaunch, *, epoch: int, deadline: float) -> Self:
        """Start a holder and its CLI, attached; `deadline` is on `boottime()`.

        Raises `LaunchFailed` when the CLI can't be executed and TimeoutError when the holder does
        not answer.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            pid = _spawn(theirs, launch.run_dir)
        ours.setblocking(False)
        holder = cls(ours, launch.socket_path)
        try:
            body = _launch_data(launch, epoch, deadline)
            await holder._send(f"START {PROTOCOL} {len(body)}\n".encode() + body)
            words = await holder._answer()
            if words[0] == "FAILED":
                raise LaunchFailed(int(words[1]))
            await holder._receive_body(words)
        except BaseException:
            holder._close()
            raise
        finally:
            _children.add(pid)
            _reap()
        return holder

    @classmethod
    async def attach(cls, path: Path, *, key: str, epoch: int, deadline: float) -> Self | None:
        """Attach to a parked agent; None when it has ended, or had to be ended, or refuses.

        Raises TimeoutError when the holder does not answer.
        """
        holder = cls(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)
        try:
            await holder._connect()
            await holder._send(f"ATTACH {PROTOCOL} {epoch} {key} {deadline}\n".encode())
            words = await holder._answer(END_S)
            if words[0] == "HELLO":
                await holder._receive_body(words)
                return holder
        except TimeoutError:
            holder._close()
            raise
        except (OSError, EOFError):
            pass
        holder._close()
        return None

    def take_pipes(self) -> tuple[int, ...]:
        """Return the CLI's standard input, output and error; the caller closes them."""
        pipes, self.pipes = self.pipes, ()
        return pipes

    # -- staying -------------------------------------------------------------------------------

    def beat(self, deadline: float) -> None:
        """Let the agent live until `deadline` on `boottime()`.

        Too late or too full to be sent is the same as not sent: the agent ends.
        """
        with contextlib.suppress(OSError):
            self._sock.send(f"BEAT {deadline}\n".encode())

    async def gone(self) -> int | None:
        """Wait until the agent has ended by itself; return its exit status.

        None means that the holder was killed, and that processes of the agent may be left.
        Not to be awaited while `park()` or `end()` runs.
        """
        status = None
        with contextlib.suppress(OSError, EOFError):
            while True:
                words = (await self._line()).split()
                if words[:1] == ["EXIT"]:
                    status = int(words[1])
        self._close()
        return status

    # -- going ---------------------------------------------------------------------------------

    async def park(self, *, epoch: int, warm_s: float, state: bytes) -> bool:
        """Leave the agent warm for `warm_s` seconds; False when it is gone instead.

        The caller has closed the pipes: from here on the holder reads them.
        Raises TimeoutError when the holder does not answer.
        """
        if self._sock.fileno() < 0:
            return False
        try:
            await self._send(f"PARK {epoch} {warm_s} {len(state)}\n".encode() + state)
            words = await self._answer()
            return words == ["PARKED"]
        except TimeoutError:
            raise
        except (OSError, EOFError):
            return False
        finally:
            self._close()

    async def end(self) -> bool:
        """End the agent's whole tree and wait until it is gone.

        False means that the holder did not answer, and that processes may be left.
        """
        if self._sock.fileno() < 0:
            return True
        try:
            await self._send(b"END\n")
            while (await self._answer(END_S)) != ["ENDED"]:
                pass
            return True
        except (OSError, EOFError, TimeoutError):
            return False
        finally:
            self._close()
            _reap()

    def drop(self) -> None:
        """Close the connection without PARK: the holder ends the agent's tree."""
        self._close()

    # -- the wire ------------------------------------------------------------------------------

    async def _connect(self) -> None:
        self._sock.setblocking(False)
        async with asyncio.timeout(END_S):
            while True:
                try:
                    return self._sock.connect(str(self.path))
                except BlockingIOError:  # too many wait for it already
                    await asyncio.sleep(0.02)

    async def _send(self, data: bytes) -> None:
        async with asyncio.timeout(ANSWER_S):
            await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def _answer(self, timeout_s: float = ANSWER_S) -> list[str]:
        async with asyncio.timeout(timeout_s):
            return (await self._line()).split()

    async def _line(self) -> str:
        while b"\n" not in self._buffer:
            await self._receive()
        line, _rest, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    async def _receive_body(self, words: list[str]) -> None:
        """Read the rest of a HELLO: its words are HELLO 1 pipes PID STATE-SIZE OUTPUT-SIZE."""
        self.pid, state_size, output_size = (int(word) for word in words[3:6])
        async with asyncio.timeout(ANSWER_S):
            while len(self._buffer) < state_size + output_size:
                await self._receive()
        self.state = self._buffer[:state_size]
        self.output = self._buffer[state_size : state_size + output_size]
        self._buffer = self._buffer[state_size + output_size :]

    async def _receive(self) -> None:
        await _readable(self._sock)
        data, descriptors, _flags, _address = socket.recv_fds(
            self._sock, 262144, 3, socket.MSG_CMSG_CLOEXEC
        )
        if descriptors:
            self.pipes = tuple(descriptors)
        if not data:
            raise EOFError("the holder closed the connection")
        self._buffer += data

    def _close(self) -> None:
        """Close the connection, and the pipes if they were not taken."""
        self._sock.close()
        for descriptor in self.take_pipes():
            os.close(descriptor)


def _spawn(sock: socket.socket, run_dir: Path) -> int:
    """Start a holder whose standard input is the socket; return its process id."""
    log = str(run_dir / "holder.log")
    return os.posix_spawn(
        sys.executable,
        # The run directory is for people who look at the list of processes.
        [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, _HERE, str(run_dir)],
        {"LC_ALL": "C.UTF-8"},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, sock.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT, 0o600),
        ],
        setsid=True,
    )


def _launch_data(launch: HolderLaunch, epoch: int, deadline: float) -> bytes:
    """Return the body of START."""
    fields = [launch.key, str(launch.socket_path), str(launch.run_dir), launch.lifeline]
    fields += [launch.cwd, str(epoch), str(deadline), str(len(launch.argv)), *launch.argv]
    fields += [f"{name}={value}" for name, value in launch.env.items()]
    body = b"\0".join(os.fsencode(field) for field in fields)
    if body.count(b"\0") != len(fields) - 1:
        raise LaunchFailed(errno.EINVAL)  # a NUL in one of them would shift the others
    return body


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sock, lambda: _set(ready))
    try:
        await ready
    finally:
        loop.remove_reader(sock)


def _reap() -> None:
    """Collect the holders of this process that have ended; most outlive it and never need this."""
    for pid in list(_children):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _children.discard(pid)
