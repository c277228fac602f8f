"""Samples of what a soak's processes take, and whether a conversation ever has two."""

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.config.home import Home
from tests.bench.stage import descriptors, resident_mb
from tests.support.processes import marked_processes, parent

#: How long two processes have to be there to count, in seconds: one that is just starting another
#: program still looks like itself.
STAYS_S = 0.5


@dataclass(frozen=True)
class Sample:
    """One look at all processes."""

    at_s: float
    gateway: int
    """Its process id: another one behind each kill."""
    gateway_mb: float
    gateway_descriptors: int
    holders: int
    holder_mb: float
    """The largest one's."""
    holder_descriptors: int
    processes: int

    def line(self) -> str:
        """Return it as a line of text."""
        return (
            f"{self.at_s / 60:5.1f} min  gateway {self.gateway_mb:5.1f} MB "
            f"{self.gateway_descriptors:3} fd  {self.holders} holders, most {self.holder_mb:4.1f} "
            f"MB {self.holder_descriptors} fd  {self.processes} processes"
        )


def sampled(home: Home, gateway: int, *, began: float) -> Sample:
    """Look once. Raises `OSError` for a gateway that is gone."""
    found = marked_processes(home)
    holders = [pid for pid in found if _is_holder(pid)]
    sizes, opened = [0.0], [0]
    for pid in holders:
        try:
            size, count = resident_mb(pid), descriptors(pid)
        except OSError:  # it has just ended
            continue
        sizes.append(size)
        opened.append(count)
    return Sample(
        at_s=time.monotonic() - began,
        gateway=gateway,
        gateway_mb=resident_mb(gateway),
        gateway_descriptors=descriptors(gateway),
        holders=len(holders),
        holder_mb=max(sizes),
        holder_descriptors=max(opened),
        processes=len(found),
    )


def doubled(home: Home) -> list[str]:
    """Return the conversations that two processes have, and the sessions with two holders."""
    first = _several(home)
    if not first:
        return []
    time.sleep(STAYS_S)
    second = _several(home)
    return [f"{what}: {sorted(pids)}" for what, pids in first.items() if second.get(what) == pids]


def _several(home: Home) -> dict[str, frozenset[int]]:
    having: defaultdict[str, set[int]] = defaultdict(set)
    for pid in marked_processes(home):
        try:
            for what in _conversations(pid):
                having[what].add(pid)
        except OSError:  # it has just ended
            continue
    return {
        what: frozenset(pids)
        for what, pids in having.items()
        if len({pid for pid in pids if not _is_below(pid, pids)}) > 1
    }


def _conversations(pid: int) -> set[str]:
    """Return which conversations a process has, by its arguments or by its open files."""
    words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    if _is_holder(pid):
        session = Path(words[-2]) / "session"
        return {f"holder of {session.read_text()}"} if session.exists() else set()
    found = {word for word in words if word.startswith(("--resume=", "--session-id="))}
    found = {word.partition("=")[2] for word in found}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        name = Path(os.readlink(link)).name
        if name.startswith("rollout-"):
            found.add(name)
    return found


def _is_holder(pid: int) -> bool:
    try:
        return b"program.main()" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _is_below(pid: int, others: set[int]) -> bool:
    """Whether one of these has started it."""
    try:
        while pid > 1:
            pid = parent(pid)
            if pid in others:
                return True
    except OSError:
        pass
    return False
