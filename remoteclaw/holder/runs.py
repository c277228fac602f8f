"""Run directories, one for each agent process, and the limits on their number and memory.

A run directory has the socket of its holder, which removes it at its end; this module removes those
of killed holders. The run directories of terminals have another name: terminals are no warm agents,
make no room for others and are counted separately.
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

#: The tag in the name of a terminal's run directory. No other name contains it, because the rest of
#: a name is hexadecimal.
TERMINAL_TAG = "tty"

#: How long to wait for holders to end, in seconds; each ends its tree sooner.
HOLDERS_END_S = 15.0
#: The age at which a run directory of another boot is removed, in seconds. It can belong to a
#: machine that shares the state directory, whose holders can't be reached from here.
OTHER_BOOT_S = 86_400.0
#: How long to wait for a parked agent to end, in seconds; claude takes 0.1.
ROOM_S = 5.0
#: How long to wait for another process that makes room, in seconds.
LOCK_S = 6.0
#: A run directory younger than this, in seconds, counts without a holder, which is still starting.
STARTING_S = 5.0
#: The interval of checks, in seconds.
POLL_S = 0.01


async def wait_for_holders(runs: Path, *, prefix: str, wait_s: float = HOLDERS_END_S) -> list[Path]:
    """Wait until no run directory whose name begins with `prefix` has a holder.

    Return the run directories that still have one after `wait_s`, because it is frozen.
    """
    until = boottime() + wait_s
    while (left := await asyncio.to_thread(_with_holder, runs, prefix)) and boottime() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return left


def _with_holder(runs: Path, prefix: str) -> list[Path]:
    return [run for run in runs.glob(f"{prefix}*") if has_holder(run)]


def run_name(prefix: str) -> str:
    """Return a name for a new run directory; its end identifies the boot of the machine."""
    return f"{prefix}{secrets.token_hex(5)}{_boot()}"


def terminal_run_name(prefix: str) -> str:
    """Return a name for a terminal's new run directory, as short as an agent's."""
    return f"{prefix}{TERMINAL_TAG}{secrets.token_hex(3)}{_boot()}"


def is_terminal(run: Path) -> bool:
    """Whether a run directory belongs to a terminal."""
    return TERMINAL_TAG in run.name


def _boot() -> str:
    return boot_id()[:4]


def remove_dead_runs(runs: Path, *, older_than_s: float) -> None:
    """Remove run directories that are older than `older_than_s` and whose holder was killed."""
    for run in runs.iterdir():
        age_s = older_than_s if run.name.endswith(_boot()) else max(older_than_s, OTHER_BOOT_S)
        with contextlib.suppress(FileNotFoundError):
            if time.time() - run.stat().st_mtime >= age_s and not has_holder(run):
                shutil.rmtree(run, ignore_errors=True)


def has_holder(run: Path) -> bool:
    """Whether a holder listens on the socket of a run directory."""
    return _holder_pid(run) is not None


def _ask_for_room(run: Path) -> None:
    """Ask a holder to end its agent, which it does only if the agent is parked."""
    if pid := _holder_pid(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)


def _holder_pid(run: Path) -> int | None:
    """Return the pid of the holder of a run directory; None if it has no holder.

    0 if the pid is unknown, because the holder is too busy or in another pid namespace.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.setblocking(False)
            sock.connect(str(run / "holder.sock"))
        except BlockingIOError:
            return 0  # its backlog is full
        except OSError:
            return None
        pid = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4)
        return int.from_bytes(pid, sys.byteorder)


@contextlib.contextmanager
def make_room(runs: Path, *, max_agents: int | None, reserve_bytes: int) -> Iterator[None]:
    """End warm agents until one more agent fits; keep the room while the body makes its directory.

    Afterwards at most `max_agents` agents are in `runs`, with the caller's, and `reserve_bytes` of
    the host's memory are free. `max_agents` is None for a terminal, which doesn't count as an agent
    and only needs memory. The agent that has waited longest ends first. An agent at work never
    ends: without a warm agent, the caller's is started anyway, because the number of workers limits
    the agents at work.
    """
    # After LOCK_S, continue without the lock: its owner may be frozen.
    held = lock(runs.parent / "room.lock", wait_s=LOCK_S)
    try:
        waiting = sorted(_parked(runs))
        while waiting and (_is_full(runs, max_agents) or _free_bytes() < reserve_bytes):
            _, run = waiting.pop(0)
            _end_if_parked(run)
        yield
    finally:
        if held is not None:
            os.close(held)


def _parked(runs: Path) -> Iterator[tuple[float, Path]]:
    """Yield the time since which an agent is parked, and its run directory, for each such agent."""
    for run in runs.iterdir():
        with contextlib.suppress(OSError):
            yield (run / "parked").stat().st_mtime, run


def _is_full(runs: Path, max_agents: int | None) -> bool:
    agents = [run for run in runs.iterdir() if not is_terminal(run)]
    return max_agents is not None and len(_alive(agents)) >= max_agents


def has_terminals(runs: Path) -> bool:
    """Whether this host has terminals; true also for a while after the kill of a holder."""
    return any(map(is_terminal, runs.iterdir())) if runs.is_dir() else False


def terminal_runs(runs: Path) -> list[Path]:
    """Return the run directories of this host's terminals, including those that are starting."""
    return _alive([run for run in runs.iterdir() if is_terminal(run)])


def _alive(runs: Sequence[Path]) -> list[Path]:
    """Return the run directories that have a holder, or are so new that it is still starting."""
    alive = []
    for run in runs:
        with contextlib.suppress(OSError):
            if has_holder(run) or time.time() - run.stat().st_mtime < STARTING_S:
                alive.append(run)
    return alive


def _free_bytes() -> int:
    """Return the memory that programs can use without swapping, in bytes."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 1 << 62  # the kernel doesn't report it, so there is no limit


@dataclass(frozen=True, slots=True)
class WarmAgent:
    """An agent on this host that waits for the next message of its session."""

    path: str
    """The path of its holder's socket."""
    since_ms: int
    """Since when the agent waits, in milliseconds since 1970."""
    memory_bytes: int
    """The memory of its process tree that no other process shares."""


def warm_agents(runs: Path) -> Sequence[WarmAgent]:
    """Return the warm agents of this host, those that wait longest first."""
    agents = []
    for since, run in sorted(_parked(runs) if runs.is_dir() else ()):
        if pid := _holder_pid(run):
            path = str(run / "holder.sock")
            agents.append(WarmAgent(path, int(since * 1000), _memory_bytes(pid)))
    return agents


def has_warm_agents(runs: Path) -> bool:
    """Whether this host has warm agents."""
    return runs.is_dir() and any(_parked(runs))


def end_warm_agents(runs: Path, path: str | None = None) -> int:
    """End the warm agents of this host, or only the one of the holder at `path`.

    Return their number. An agent at work never ends.
    """
    ended = 0
    for _, run in sorted(_parked(runs) if runs.is_dir() else ()):
        if path in (None, str(run / "holder.sock")) and has_holder(run):
            _end_if_parked(run)
            ended += not has_holder(run)
    return ended


def _memory_bytes(root: int) -> int:
    """Return the unshared memory of a process and its descendants; 0 if it can't be read."""
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
    """Ask a holder to end its agent, and wait until it is gone or at work again."""
    _ask_for_room(run)
    until = boottime() + ROOM_S
    while (run / "parked").exists() and has_holder(run) and boottime() < until:
        time.sleep(POLL_S)
