"""The fork server: one process that has loaded what programs of ours need, and forks them.

What it forks shares its memory and has nothing to load. Each program is `python -m MODULE` with
arguments, an environment and streams of its own. It ends with the server, in whatever way that one
ends, and the server ends with the process that started it.
"""

import asyncio
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from remoteclaw.host.process import die_with_parent, open_log, spawn, stop
from remoteclaw.host.run_main import run_and_end

#: The largest order, in bytes: what a kernel lets through by default.
MAX_BYTES = 200_000
#: How many descriptors a program may be given, its streams included.
MAX_GIVEN = 8
#: The name of a process in `top`.
_COMM = Path("/proc/self/comm")
#: How long a server may take to end, in seconds.
PATIENCE_S = 1.0


def server_command(orders: socket.socket, modules: Sequence[str]) -> list[str]:
    """Return the command of a server that has loaded some modules; it inherits the socket.

    -P, so that no file of the directory in which it is started is taken for a module.
    """
    return [sys.executable, "-P", "-m", __name__, str(orders.fileno()), *modules]


def fork(
    server: socket.socket,
    module: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    streams: Sequence[int],
) -> socket.socket:
    """Make a server run `python -m MODULE ARGUMENTS` in this directory.

    The streams, and what else it gets, are its descriptors from 0 on.
    The socket that is returned says its process id, and later its exit status or minus its signal.
    It ends without them if the server ends.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, contextlib.suppress(ConnectionError):  # the server was killed
        order = json.dumps([[module, *arguments], dict(env), os.getcwd()]).encode()
        socket.send_fds(server, [order], [theirs.fileno(), *streams])
    return ours


class Forked:
    """A process that a server has forked; as `asyncio.subprocess.Process`, where it is used."""

    def __init__(self, told: socket.socket, pid: int | None, *, is_child: bool = False) -> None:
        """`pid` is None if the server was killed before it could fork it.

        `is_child` is said of one that no server has forked, but this process.
        """
        self.pid = pid
        self._is_child = is_child
        self.returncode: int | None = None
        self._ending = asyncio.create_task(self._end(told))

    async def wait(self) -> int:
        """Wait until it has ended; return its exit status, or minus its signal."""
        return await asyncio.shield(self._ending)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.pid is not None and self.returncode is None:
            os.kill(self.pid, number)

    async def _end(self, told: socket.socket) -> int:
        with told:
            status = await asyncio.get_running_loop().sock_recv(told, 16)
        if self._is_child and self.pid is not None:
            _, ended = await asyncio.to_thread(os.waitpid, self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(ended)
        else:
            self.returncode = int(status or -signal.SIGKILL)  # it is killed with its server
        return self.returncode


class ForkServer:
    """A fork server as its owner has it: started, and started again when it was killed."""

    def __init__(self, *modules: str, log: Path) -> None:
        self._modules = modules
        self._log = log
        self._process: asyncio.subprocess.Process | Forked | None = None
        self._orders: socket.socket | None = None
        self._begun: tuple[socket.socket, int] | None = None
        self._starting = asyncio.Lock()

    def begin(self) -> None:
        """Load the modules, and have the first one be a fork of this process, which shares them.

        Only before this process has a thread, a loop or a connection.
        """
        _load(self._modules)
        owner = os.getpid()
        self._orders, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        told, answer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nothing, file = os.open(os.devnull, os.O_RDONLY), open_log(self._log)
        given = [nothing, file, file, orders.fileno(), answer.fileno()]
        directory = os.getcwd()

        def be() -> None:
            os.dup2(file, 2)  # no traceback goes to the person's terminal
            die_with_parent(owner)
            if not sys.flags.safe_path:
                del sys.path[0]  # as -P does
            _become(os.environ.copy(), directory, given)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            _be_server(3)

        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until it has its own group
        if not (pid := os.fork()):
            run_and_end(be)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        for descriptor in (nothing, file):
            os.close(descriptor)
        orders.close()
        answer.close()
        told.setblocking(False)
        self._begun = told, pid

    async def start(self) -> socket.socket:
        """Start it unless it runs; return where it takes orders. It loads its modules meanwhile."""
        async with self._starting:
            if self._begun:
                self._process, self._begun = Forked(*self._begun, is_child=True), None
            if (
                self._orders is None
                or self._process is None
                or self._process.returncode is not None
            ):
                await self.end()
                self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    self._process = await spawn(
                        server_command(theirs, self._modules),
                        env=os.environ,
                        log=self._log,
                        death_signal=signal.SIGKILL,
                        keep=[theirs.fileno()],
                    )
            return self._orders

    async def fork(
        self,
        module: str,
        *arguments: str,
        env: Mapping[str, str],
        log: Path,
        sockets: Sequence[socket.socket] = (),
    ) -> Forked:
        """Run `python -m MODULE ARGUMENTS`; what it prints is appended to `log`.

        The sockets are its descriptors from 3 on.
        """
        server = await self.start()
        nothing, file = os.open(os.devnull, os.O_RDONLY), open_log(log)
        try:
            streams = [nothing, file, file, *(each.fileno() for each in sockets)]
            told = fork(server, module, arguments, env=env, streams=streams)
        finally:
            os.close(nothing)
            os.close(file)
        told.setblocking(False)
        pid = await asyncio.get_running_loop().sock_recv(told, 16)
        return Forked(told, int(pid) if pid else None)

    async def end(self) -> None:
        """End it, and all that it has forked."""
        if self._orders and self._process:
            self._orders.close()
            await stop(self._process, patience_s=PATIENCE_S)


def _serve(orders: socket.socket) -> list[str]:
    """Fork for each order; return, in the fork, what it is to run. Nothing once they end."""
    server = os.getpid()
    told: dict[int, int] = {}

    def reap(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                _tell(told.pop(pid), os.waitstatus_to_exitcode(status))

    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what it has forked is given time to end
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, MAX_BYTES, 1 + MAX_GIVEN)
        if not order:
            return []
        answer, *streams = descriptors
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # before it is noted
        if not (pid := os.fork()):
            die_with_parent(server)
            argv, env, directory = json.loads(order)
            _become(env, directory, [*streams, answer])
            _rename([*argv, ""][1])
            _tell(len(streams), os.getpid())  # signals reach it from now on
            orders.detach()
            return list(argv)
        told[pid] = answer
        for descriptor in streams:
            os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _tell(answer: int, number: int) -> None:
    """Tell who has ordered a program its process id or its exit status; this ends our part."""
    with contextlib.suppress(OSError):  # nobody waits any more
        os.write(answer, str(number).encode())
    os.close(answer)


def _become(env: Mapping[str, str], directory: str, given: Sequence[int]) -> None:
    """Make this process a program's own: signals, environment and directory.

    Of the descriptors it has those that it is given, from 0 on.
    """
    os.setpgid(0, 0)  # a Ctrl-C at the terminal does not reach it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    beyond = len(given)
    for number, each in enumerate([fcntl.fcntl(each, fcntl.F_DUPFD, beyond) for each in given]):
        os.dup2(each, number)
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # that of the list itself
            if number >= beyond:
                os.close(number)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(directory)
    sys.path[:0] = [
        path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", *sys.path)
    ]


def _rename(name: str) -> None:
    """Give this process a name in `top`, where that is allowed."""
    with contextlib.suppress(OSError):
        _COMM.write_text(name)


def _load(modules: Sequence[str]) -> None:
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.enable()
    gc.collect()
    gc.freeze()  # what the collector never looks at is never copied


def _be_server(orders: int) -> None:
    """Be the server, and in a fork what that one is to run."""
    _rename("fork server")
    sys.argv = _serve(socket.socket(fileno=orders))
    if sys.argv:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _load(sys.argv[2:])
    run_and_end(lambda: _be_server(int(sys.argv[1])))
