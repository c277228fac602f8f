"""Programs of ours, each time in a process of its own, without the cost of starting Python.

A program that is started imports for up to a second of processor time. Here one process has
imported all of `remoteclaw` and RQ; for each program it forks one that becomes it: with arguments,
environment, directory, streams, signals and an exit status of its own.
What is about the start itself uses `REMOTECLAW` or `RQ` and `subprocess`.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NoReturn

from tests.support.waiting import HANG_S

__all__ = ["REMOTECLAW", "RQ", "Process", "run_command", "start_program"]

ROOT = Path(__file__).parents[2]
REMOTECLAW = str(Path(sys.executable).with_name("remoteclaw"))
RQ = str(Path(sys.executable).with_name("rq"))
#: Where their `main` is; any other program is a module with a `__main__`.
_MODULES = {REMOTECLAW: "remoteclaw.cli", RQ: "rq.cli"}
#: Programs, and what only a terminal needs.
_NOT_IMPORTED = ("__main__", "program", "demo_agent", "console", "editor")


class Process:
    """A program that runs; a `subprocess.Popen` as far as tests need one."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        told.settimeout(HANG_S)
        sign, (self._handle,), _, _ = socket.recv_fds(told, 16, 1)
        self.pid = int(sign)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit status, minus its signal, or None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float = HANG_S) -> int:
        """Wait until it has ended; return its exit status, or minus its signal."""
        code = self._ended(timeout)
        assert code is not None, f"process {self.pid} still runs after {timeout} s"
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def _ended(self, within_s: float) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], within_s)[0]:
            self.returncode = int(self._told.recv(16))
            self._told.close()
            os.close(self._handle)
        return self.returncode


def start_program(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Process:
    """Start `REMOTECLAW`, `RQ` or a module with some arguments; it writes to the end of a file."""
    with log.open("ab") as file, Path(os.devnull).open("rb") as nothing:
        return _start(argv, env, nothing, file, file)


def run_command(
    *arguments: str, env: Mapping[str, str], stdin: bytes = b""
) -> "subprocess.CompletedProcess[str]":
    """Run `remoteclaw` with some arguments and see what comes of it."""
    argv = [REMOTECLAW, *arguments]
    with TemporaryFile() as source, TemporaryFile() as output, TemporaryFile() as errors:
        source.write(stdin)
        source.seek(0)
        code = _start(argv, env, source, output, errors).wait()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(
            argv, code, output.read().decode(), errors.read().decode()
        )


def _start(argv: Sequence[str], env: Mapping[str, str], *streams: IO[bytes]) -> Process:
    here, there = socket.socketpair()
    with there, TemporaryFile() as order:
        order.write(json.dumps([argv, dict(env), os.getcwd()]).encode())
        order.seek(0)
        passed = [there.fileno(), order.fileno(), *(stream.fileno() for stream in streams)]
        socket.send_fds(_forking(), [b"."], passed)
    return Process(here)


@functools.cache
def _forking() -> socket.socket:
    """Start the process that forks; return where it takes orders. It ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno())],
        cwd=ROOT,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(orders: socket.socket) -> None:
    """Fork for each order, until there are no more."""
    import remoteclaw

    for module in pkgutil.walk_packages(remoteclaw.__path__, "remoteclaw."):
        if module.name.rpartition(".")[2] not in _NOT_IMPORTED:
            importlib.import_module(module.name)
    importlib.import_module("rq.cli")
    gc.collect()
    gc.freeze()  # what is never looked at is never copied
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        sign, passed, _, _ = socket.recv_fds(orders, 1, 5)
        if not sign:
            return
        if not os.fork():
            orders.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run(*passed)
        for descriptor in passed:
            os.close(descriptor)


def _run(answer: int, order: int, *streams: int) -> NoReturn:
    """Fork once more, into the program, and tell which process it is and how it ends."""
    with open(order, "rb") as file:
        (program, *arguments), env, directory = json.load(file)
    if pid := os.fork():
        with socket.socket(fileno=answer) as told, contextlib.suppress(BrokenPipeError):
            socket.send_fds(told, [str(pid).encode()], [os.pidfd_open(pid)])
            _, status = os.waitpid(pid, 0)
            told.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(answer)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.path[0] = str(Path(program).parent)  # of a script; `python -m` has its directory there
    sys.path[1:1] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [program, *arguments]
    sys.modules["__main__"].__package__ = ""  # by which click would name the program
    sys.stdin, sys.stdout, sys.stderr = (
        open(0, encoding="utf-8", errors="surrogateescape"),  # noqa: SIM115 - as Python has them
        open(1, "w", encoding="utf-8"),  # noqa: SIM115
        open(2, "w", encoding="utf-8", errors="backslashreplace"),  # noqa: SIM115
    )
    code = 0
    try:
        if program in _MODULES:
            importlib.import_module(_MODULES[program]).main()
        else:
            runpy.run_module(program, run_name="__main__")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if isinstance(left.code, str):
            sys.stderr.write(f"{left.code}\n")
    except BaseException:  # noqa: BLE001 - as Python itself does
        code = 1
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
