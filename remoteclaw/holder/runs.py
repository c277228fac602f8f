"""Run directories and their budget: one for each agent, with the socket of its holder.

A holder removes its own; those of killed holders are removed here.
Terminals have theirs among them, and their names tell: they are no warm agents, make no room for
others and are counted on their own.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.clock import boot_id, boottime
from remoteclaw.host.locks import lock

#: What the names of terminals' run directories have behind their prefix; no other name has it,
#: because the rest of it is hexadecimal.
TERMINAL = "tty"

#: The longest wait for holders that end, in seconds: each ends its tree in less.
END_S = 15.0
#: The age at which a run directory of another boot is removed, in seconds: a machine that shares
#: the state directory may use it, and its holders can't be reached from here.
ELSEWHERE_S = 86_400.0
#: The longest wait for an agent that makes room, in seconds; claude takes 0.1.
ROOM_S = 5.0
#: The longest wait for another process that makes room, in seconds.
LOCK_S = 6.0
#: The age up to which a run directory needs no holder, in seconds: it is just starting.
YOUNG_S = 5.0
#: The interval of these waits, in seconds.
LOOK_S = 0.01


async def holders_ended(runs: Path, *, prefix: str, wait_s: float = END_S) -> list[Path]:
    """Wait until no holder listens in the run directories whose names begin with `prefix`.

    Return those where one does after `wait_s`: it is frozen.
    """
    until = boottime() + wait_s
    while (left := await asyncio.to_thread(_listening, runs, prefix)) and boottime() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return left


def _listening(runs: Path, prefix: str) -> list[Path]:
    return [run for run in runs.glob(f"{prefix}*") if listens(run)]


def run_name(prefix: str) -> str:
    """Return a name for a new run directory, which ends with the boot that it belongs to."""
    return f"{prefix}{secrets.token_hex(5)}{_boot()}"


def terminal_run_name(prefix: str) -> str:
    """Return a name for a terminal's run directory, no longer than an agent's."""
    return f"{prefix}{TERMINAL}{secrets.token_hex(3)}{_boot()}"


def is_terminal(run: Path) -> bool:
    """Whether a run directory is a terminal's."""
    return TERMINAL in run.name


def _boot() -> str:
    return boot_id()[:4]


def remove_dead_runs(runs: Path, *, older_than_s: float) -> None:
    """Remove the run directories whose holder was killed before it could."""
    for run in runs.iterdir():
        age_s = older_than_s if run.name.endswith(_boot()) else max(older_than_s, ELSEWHERE_S)
        with contextlib.suppress(FileNotFoundError):
            if time.time() - run.stat().st_mtime >= age_s and not listens(run):
                shutil.rmtree(run, ignore_errors=True)


def listens(run: Path) -> bool:
    """Whether the holder of a run directory lives."""
    return _holder_pid(run) is not None


def ask_for_room(run: Path) -> None:
    """Ask a holder to end its agent, which it does only while that is parked."""
    if pid := _holder_pid(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)


def _holder_pid(run: Path) -> int | None:
    """Return the process that listens in a run directory; None if there is none.

    0 stands for one that can't be named: it is too busy to be asked, or in another pid namespace.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.setblocking(False)
            sock.connect(str(run / "holder.sock"))
        except BlockingIOError:
            return 0  # others wait for it already
        except OSError:
            return None
        pid = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4)
        return int.from_bytes(pid, sys.byteorder)


@contextlib.contextmanager
def make_room(runs: Path, *, most: int | None, reserve_bytes: int) -> Iterator[None]:
    """End warm agents until one more fits; hold the room while the caller makes its run directory.

    `most` agents may live in `runs`, and so many bytes of the host's memory stay free. For a
    terminal `most` is None: it takes no agent's place, only memory.
    The least recently used ends first. One at work never does: if none waits, the caller's agent is
    started all the same, because the number of workers limits how many work.
    """
    # Without the lock after a while: its owner may be frozen.
    held = lock(runs.parent / "room.lock", wait_s=LOCK_S)
    try:
        waiting = sorted(_parked(runs))
        while waiting and (_is_full(runs, most) or _free_bytes() < reserve_bytes):
            _, run = waiting.pop(0)
            _end_if_parked(run)
        yield
    finally:
        if held is not None:
            os.close(held)


def _parked(runs: Path) -> Iterator[tuple[float, Path]]:
    """Yield every run directory whose agent waits, with the time since when it does."""
    for run in runs.iterdir():
        with contextlib.suppress(OSError):
            yield (run / "parked").stat().st_mtime, run


def _is_full(runs: Path, most: int | None) -> bool:
    agents = [run for run in runs.iterdir() if not is_terminal(run)]
    return most is not None and len(_living(agents)) >= most


def terminals(runs: Path) -> list[Path]:
    """Return the run directories of this host's terminals; those that just start are among them."""
    return _living([run for run in runs.iterdir() if is_terminal(run)])


def _living(runs: Sequence[Path]) -> list[Path]:
    """Return those with a holder: a directory without one is none, unless it is new."""
    found = []
    for run in runs:
        with contextlib.suppress(OSError):
            if listens(run) or time.time() - run.stat().st_mtime < YOUNG_S:
                found.append(run)
    return found


def _free_bytes() -> int:
    """Return how much memory programs can still get, without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 1 << 62  # a kernel that doesn't say


@dataclass(frozen=True, slots=True)
class WarmAgent:
    """An agent of this host that waits for its session's next message."""

    path: str
    """Where its holder listens."""
    since_ms: int
    memory_bytes: int
    """What it and what it has started hold in memory and share with no other process."""


def warm_agents(runs: Path) -> Sequence[WarmAgent]:
    """Return the agents that wait in the run directories, the longest waiting first."""
    found = []
    for since, run in sorted(_parked(runs)):
        if pid := _holder_pid(run):
            path = str(run / "holder.sock")
            found.append(WarmAgent(path, int(since * 1000), _memory(pid)))
    return found


def _memory(root: int) -> int:
    """Return what a process and its descendants hold alone; 0 where the kernel doesn't say."""
    pages, queue = 0, [root]
    while queue:
        process = Path(f"/proc/{queue.pop()}")
        with contextlib.suppress(OSError):
            resident, shared = (process / "statm").read_text().split()[1:3]
            pages += int(resident) - int(shared)
            for task in (process / "task").iterdir():
                queue += map(int, (task / "children").read_text().split())
    return pages * os.sysconf("SC_PAGESIZE")


def _end_if_parked(run: Path) -> None:
    """Ask a holder to end its agent, which it does if that is parked; wait for the end."""
    ask_for_room(run)
    until = boottime() + ROOM_S
    while (run / "parked").exists() and listens(run) and boottime() < until:
        time.sleep(LOOK_S)
