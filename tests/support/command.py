"""`remoteclaw COMMAND …`, each time in a process of its own, without the cost of starting Python.

A command that is started imports for half a second of processor time. Here one process has
imported all of `remoteclaw`; for each command it forks one that becomes the command: with
arguments, environment, directory, streams, signals and an exit status of its own.
What is about the start itself uses `REMOTECLAW` and `subprocess`.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from tests.support.waiting import HANG_S

__all__ = ["REMOTECLAW", "run_command"]

ROOT = Path(__file__).parents[2]
REMOTECLAW = str(Path(sys.executable).with_name("remoteclaw"))
#: Programs, and what only a terminal needs.
_NOT_IMPORTED = ("__main__", "program", "demo_agent", "console", "editor")


def run_command(
    *arguments: str, env: Mapping[str, str], stdin: bytes = b""
) -> "subprocess.CompletedProcess[str]":
    """Run `remoteclaw` with some arguments and see what comes of it."""
    here, there = socket.socketpair()
    with contextlib.ExitStack() as exits:
        for end in (here, there):
            exits.enter_context(end)
        files = [exits.enter_context(tempfile.TemporaryFile()) for _ in range(4)]
        order, source, *printed = files
        order.write(json.dumps([arguments, dict(env), os.getcwd()]).encode())
        source.write(stdin)
        for file in (order, source):
            file.seek(0)
        passed = [there.fileno(), *(file.fileno() for file in files)]
        socket.send_fds(_forking(), [b"."], passed)
        there.close()
        here.settimeout(HANG_S)
        code = int(here.recv(16) or b"-1")
        for file in printed:
            file.seek(0)
        output, errors = (file.read().decode() for file in printed)
    return subprocess.CompletedProcess([REMOTECLAW, *arguments], code, output, errors)


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
    """Fork for each order, until nobody gives any."""
    import remoteclaw

    for module in pkgutil.walk_packages(remoteclaw.__path__, "remoteclaw."):
        if module.name.rpartition(".")[2] not in _NOT_IMPORTED:
            importlib.import_module(module.name)
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
    """Fork once more, into the command, and tell how it ends."""
    with open(order, "rb") as file:
        arguments, env, directory = json.load(file)
    if pid := os.fork():
        _, status = os.waitpid(pid, 0)
        os.write(answer, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(answer)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.path[0] = str(Path(REMOTECLAW).parent)  # of a script; `python -m` has its directory there
    sys.path[1:1] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [REMOTECLAW, *arguments]
    sys.modules["__main__"].__package__ = ""  # by which click would name the program
    sys.stdin, sys.stdout, sys.stderr = (
        open(0, encoding="utf-8", errors="surrogateescape"),  # noqa: SIM115 - as Python has them
        open(1, "w", encoding="utf-8"),  # noqa: SIM115
        open(2, "w", encoding="utf-8", errors="backslashreplace"),  # noqa: SIM115
    )
    from remoteclaw.cli import main

    code = 1
    try:
        main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 - as Python itself does
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
