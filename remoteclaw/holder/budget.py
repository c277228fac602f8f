"""The budget of agents on a host: warm ones end for new ones, the oldest first."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from remoteclaw.clock import boottime
from remoteclaw.holder.runs import ask_for_room, listens
from remoteclaw.host.locks import lock

__all__ = ["make_room"]

#: The longest wait for an agent that makes room, in seconds; claude takes 0.1.
END_S = 5.0
#: The longest wait for another process that makes room, in seconds.
LOCK_S = 6.0
#: The age up to which a run directory needs no holder, in seconds: it is just starting.
YOUNG_S = 5.0
#: The interval of these waits, in seconds.
LOOK_S = 0.01


@contextlib.contextmanager
def make_room(runs: Path, *, most: int, reserve_bytes: int) -> Iterator[None]:
    """End warm agents until one more fits; hold the room while the caller makes its run directory.

    `most` agents may live in `runs`, and so many bytes of the host's memory stay free.
    The least recently used ends first. One at work never does: if none waits, the caller's agent is
    started all the same, because the number of workers limits how many work.
    """
    # Without the lock after a while: its owner may be frozen.
    held = lock(runs.parent / "room.lock", wait_s=LOCK_S)
    try:
        waiting = sorted(_parked(runs))
        while waiting and (_count(runs) >= most or _free_bytes() < reserve_bytes):
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


def _count(runs: Path) -> int:
    """Return how many agents there are: a directory without a holder is none, unless it is new."""
    count = 0
    for run in runs.iterdir():
        with contextlib.suppress(OSError):
            count += listens(run) or time.time() - run.stat().st_mtime < YOUNG_S
    return count


def _free_bytes() -> int:
    """Return how much memory programs can still get, without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 1 << 62  # a kernel that doesn't say


def _end_if_parked(run: Path) -> None:
    """Ask a holder to end its agent, which it does if that is parked; wait for the end."""
    ask_for_room(run)
    until = boottime() + END_S
    while (run / "parked").exists() and listens(run) and boottime() < until:
        time.sleep(LOOK_S)
