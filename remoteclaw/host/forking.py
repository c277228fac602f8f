"""The fork server: a process that has imported RemoteClaw's modules, and forks its programs.

A fork shares the server's memory and has nothing to import. Each fork runs `python -m MODULE` with
its own arguments, environment and descriptors. It ends when the server ends in any way, and the
server ends when its owner does.
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
from remoteclaw.host.run_main import run_and_exit

#: The maximum size of an order, in bytes: the kernel's default limit for a message on a socket.
MAX_ORDER_BYTES = 200_000
#: The maximum number of descriptors that a program gets, including its streams.
MAX_DESCRIPTORS = 8
#: The file with this process's name in `top`.
_COMM = Path("/proc/self/comm")
#: How long a server may take to end before it is killed, in seconds.
GRACE_S = 1.0


def server_command(orders: socket.socket, modules: Sequence[str], *, owner: int = 0) -> list[str]:
    """Return the command line of a server that imports `modules` and inherits the socket `orders`.

    With an `owner`, the pid of its parent, the server is killed when that process dies. Without
    one, it ends when `orders` is closed.
    With -P, Python doesn't import files of the current directory as modules.
    """
    return [sys.executable, "-P", "-m", __name__, str(orders.fileno()), str(owner), *modules]


def fork(
    server: socket.socket,
    module: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    streams: Sequence[int],
) -> socket.socket:
    """Have a server run `python -m MODULE ARGUMENTS` in the current directory.

    `streams` become the program's descriptors 0, 1, 2 and so on. The returned socket receives the
    program's pid, and later its exit status, or minus the number of the signal that ended it. It
    closes without these messages if the server ends.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, contextlib.suppress(ConnectionError):  # the server has been killed
        order = json.dumps([[module, *arguments], dict(env), os.getcwd()]).encode()
        socket.send_fds(server, [order], [theirs.fileno(), *streams])
    return ours


class ForkedProcess:
    """A process that a fork server has forked, with a part of `asyncio.subprocess.Process`' API."""

    def __init__(self, status: socket.socket, pid: int | None, *, is_child: bool = False) -> None:
        """`status` receives the exit status.

        `pid` is None if the server was killed before the fork. `is_child` says that this process
        has forked the process itself.
        """
        self.pid = pid
        self._is_child = is_child
        self.returncode: int | None = None
        self._ending = asyncio.create_task(self._end(status))

    async def wait(self) -> int:
        """Wait until the process has ended; return its exit status, or minus its signal."""
        return await asyncio.shield(self._ending)

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it still runs."""
        if self.pid is not None and self.returncode is None:
            os.kill(self.pid, number)

    async def _end(self, status: socket.socket) -> int:
        with status:
            received = await asyncio.get_running_loop().sock_recv(status, 16)
        if self._is_child and self.pid is not None:
            _, wait_status = await asyncio.to_thread(os.waitpid, self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(wait_status)
        else:
            # Without a status, the server was killed, and the kernel killed the process with it.
            self.returncode = int(received or -signal.SIGKILL)
        return self.returncode


class ForkServer:
    """The owner's side of a fork server, which it starts again after a kill."""

    def __init__(self, *modules: str, log: Path) -> None:
        self._modules = modules
        self._log = log
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None
        self._orders: socket.socket | None = None
        self._first: tuple[socket.socket, int] | None = None
        """The status socket and the pid of the server that `fork_first()` has forked."""
        self._starting = asyncio.Lock()

    def fork_first(self) -> None:
        """Import the modules, and fork the first server from this process, which shares them.

        Call this only while this process has no other thread, no event loop and no connection.
        """
        _import_all(self._modules)
        owner = os.getpid()
        self._orders, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        status, exit_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        null, file = os.open(os.devnull, os.O_RDONLY), open_log(self._log)
        # The last descriptor is never written to: it closes when the server ends.
        descriptors = [null, file, file, orders.fileno(), exit_status.fileno()]
        directory = os.getcwd()

        def run_server() -> None:
            os.dup2(file, 2)  # a traceback must not go to the user's terminal
            die_with_parent(owner)
            if not sys.flags.safe_path:
                del sys.path[0]  # as -P does
            _set_up(os.environ.copy(), directory, descriptors)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            _serve_and_run(3)

        # Until the server has its own process group, Ctrl-C reaches it, too.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        if not (pid := os.fork()):
            run_and_exit(run_server)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        for descriptor in (null, file):
            os.close(descriptor)
        orders.close()
        exit_status.close()
        status.setblocking(False)
        self._first = status, pid

    async def start(self) -> socket.socket:
        """Start the server unless it runs; return the socket on which it takes orders.

        A new server may still be importing its modules when this returns.
        """
        async with self._starting:
            if self._first:
                self._process, self._first = ForkedProcess(*self._first, is_child=True), None
            if (
                self._orders is None
                or self._process is None
                or self._process.returncode is not None
            ):
                await self.end()
                self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    self._process = await spawn(
                        server_command(theirs, self._modules, owner=os.getpid()),
                        env=os.environ,
                        log=self._log,
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
    ) -> ForkedProcess:
        """Run `python -m MODULE ARGUMENTS` in a fork; its output is appended to `log`.

        The sockets become its descriptors 3, 4 and so on.
        """
        server = await self.start()
        null, file = os.open(os.devnull, os.O_RDONLY), open_log(log)
        try:
            streams = [null, file, file, *(each.fileno() for each in sockets)]
            status = fork(server, module, arguments, env=env, streams=streams)
        finally:
            os.close(null)
            os.close(file)
        status.setblocking(False)
        pid = await asyncio.get_running_loop().sock_recv(status, 16)
        return ForkedProcess(status, int(pid) if pid else None)

    async def end(self) -> None:
        """End the server and all its forks."""
        if self._orders and self._process:
            self._orders.close()
            await stop(self._process, grace_s=GRACE_S)


def _serve(orders: socket.socket) -> list[str]:
    """Fork for each order. In a fork, return its command line; in the server, [] at the end."""
    server = os.getpid()
    status_descriptors: dict[int, int] = {}

    def reap(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                _send(status_descriptors.pop(pid), os.waitstatus_to_exitcode(status))

    signal.signal(signal.SIGCHLD, reap)
    # A SIGTERM to all processes must leave the forks time to end: they are killed with the server.
    # The owner ends the server by closing `orders`.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, MAX_ORDER_BYTES, 1 + MAX_DESCRIPTORS)
        if not order:
            return []
        status_descriptor, *streams = descriptors
        # The fork may end before its pid is in the table, which reap() needs.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        if not (pid := os.fork()):
            die_with_parent(server)
            argv, env, directory = json.loads(order)
            _set_up(env, directory, [*streams, status_descriptor])
            _rename([*argv, ""][1])
            _send(len(streams), os.getpid())  # only now: the owner may send signals from here on
            orders.detach()
            return list(argv)
        status_descriptors[pid] = status_descriptor
        for descriptor in streams:
            os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _send(descriptor: int, number: int) -> None:
    """Send the owner a pid or an exit status, and close the descriptor."""
    with contextlib.suppress(OSError):  # the owner has closed its end
        os.write(descriptor, str(number).encode())
    os.close(descriptor)


def _set_up(env: Mapping[str, str], directory: str, descriptors: Sequence[int]) -> None:
    """Give this fork its own process group, signal handlers, environment and directory.

    `descriptors` become its descriptors 0, 1, 2 and so on; all others are closed.
    """
    os.setpgid(0, 0)  # so that a Ctrl-C at the terminal doesn't reach it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    count = len(descriptors)
    # Copies above the range come first, so that no dup2() overwrites one that is still needed.
    copies = [fcntl.fcntl(each, fcntl.F_DUPFD, count) for each in descriptors]
    for number, each in enumerate(copies):
        os.dup2(each, number)
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
            if number >= count:
                os.close(number)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(directory)
    sys.path[:0] = [
        path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", *sys.path)
    ]


def _rename(name: str) -> None:
    """Give this process a name in `top`, if the system allows it.

    The name has no space: from Python 3.12 on, `os.fork()` splits /proc/self/stat at spaces to
    count threads, and would take the process's nice value for their number.
    """
    with contextlib.suppress(OSError):
        _COMM.write_text(name)


def _import_all(modules: Sequence[str]) -> None:
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.enable()
    gc.collect()
    gc.freeze()  # the collector then doesn't write to these objects, so forks share their memory


def _serve_and_run(orders: int) -> None:
    """Serve orders; in a fork, run its program."""
    _rename("fork-server")
    sys.argv = _serve(socket.socket(fileno=orders))
    if sys.argv:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if (owner_pid := int(sys.argv[2])) != 0:
        die_with_parent(owner_pid)
    _import_all(sys.argv[3:])
    run_and_exit(lambda: _serve_and_run(int(sys.argv[1])))
