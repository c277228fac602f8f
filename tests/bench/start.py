"""The start of the command line and of `up`, and the memory of an idle `up`."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from remoteclaw.config.home import Home
from tests.bench.load import Figure
from tests.support.command import REMOTECLAW
from tests.support.processes import everything, proportional_mb
from tests.support.terminal import Terminal, env
from tests.support.up import running

#: The time after which an `up` without work counts as idle, in seconds.
IDLE_S = 15.0
PYTHON = (sys.executable, "-c", "pass")


def bench_start(rounds: int) -> tuple[list[tuple[str, str, list[float], list[float], str]], Figure]:
    """Return rows of `--help`, `send` and `up`, compared with bare Python, and the idle memory."""
    help_s = pairs(lambda: seconds(REMOTECLAW, "--help"), rounds)
    ready_s = pairs(_ready, max(3, rounds // 6))
    rows = [
        ("remoteclaw --help", "python -c pass", *help_s, "≤ 150 ms"),
        *_send_rows(rounds),
        ("remoteclaw up, ready, 4 workers", "python -c pass", *ready_s, "≤ 2 s"),
    ]
    idle = Figure("up with a chat, idle: all processes", _idle_mb(), "MB", "≤ 250 MB")
    return rows, idle


def pairs(ours: Callable[[], float], rounds: int) -> tuple[list[float], list[float]]:
    """Measure `ours` and a bare Python alternately."""
    both = [(ours(), seconds(*PYTHON)) for _ in range(rounds)]
    return [pair[0] for pair in both], [pair[1] for pair in both]


def seconds(*command: str) -> float:
    """Return the seconds that a command takes."""
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def cpu_s(*command: str, env: Mapping[str, str] | None = None) -> float:
    """Return the processor time of a command, in seconds."""
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return used.ru_utime + used.ru_stime


def _send_rows(rounds: int) -> Iterator[tuple[str, str, list[float], list[float], str]]:
    """Yield the processor time of `send`, without and with a file."""
    with _home() as home, running(home):

        def row(name: str, *more: str) -> tuple[str, str, list[float], list[float], str]:
            both = [
                (cpu_s(REMOTECLAW, "send", "hello", *more, env=env(home)), cpu_s(*PYTHON))
                for _ in range(rounds)
            ]
            ours, bare = [pair[0] for pair in both], [pair[1] for pair in both]
            return f"remoteclaw send{name}, its own CPU", "python -c pass", ours, bare, "≤ 300 ms"

        yield row("")
        yield row(" --attach", "--attach", __file__)


def _ready() -> float:
    with _home() as home:
        started = time.perf_counter()
        with running(home, REMOTECLAW__FLEET__WORKERS="4"):
            return time.perf_counter() - started


def _idle_mb() -> float:
    with _home() as home:
        more = env(home, REMOTECLAW__FLEET__WORKERS="4")
        with Terminal.running(REMOTECLAW, "up", env=more) as terminal:
            terminal.see("›")
            terminal.see_still("›", for_s=IDLE_S)
            mb = sum(map(proportional_mb, everything(terminal.pid)))
            terminal.type("exit\r")
            terminal.leave()
    return mb


@contextlib.contextmanager
def _home() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="rc-") as directory:
        yield Home(Path(directory) / "home")
