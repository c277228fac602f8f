"""Memory and descriptors of a soak's processes, and a check for doubled processes."""

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.config.home import Home
from tests.support.processes import descriptors, marked_processes, parent, private_mb

#: The time for which two processes must exist to count, in seconds: a forked process looks like its
#: parent until it executes another program.
STAYS_S = 0.5


@dataclass(frozen=True)
class Sample:
    """The state of all processes at one time."""

    at_s: float
    gateway: int
    """The gateway's process id, which changes with each kill."""
    gateway_mb: float
    gateway_descriptors: int
    holders: int
    holder_mb: float
    """The memory of the largest holder."""
    holder_descriptors: int
    processes: int

    def line(self) -> str:
        """Return the sample as a line of text."""
        return (
            f"{self.at_s / 60:5.1f} min  gateway {self.gateway_mb:5.1f} MB "
            f"{self.gateway_descriptors:3} fd  {self.holders} holders, max {self.holder_mb:4.1f} "
            f"MB {self.holder_descriptors} fd  {self.processes} processes"
        )


def take_sample(home: Home, gateway: int, *, began: float) -> Sample:
    """Take one sample. Raises `OSError` if the gateway is gone."""
    pids = marked_processes(home)
    holders = [pid for pid in pids if _is_holder(pid)]
    sizes, opened = [0.0], [0]
    for pid in holders:
        try:
            size, count = private_mb(pid), descriptors(pid)
        except OSError:  # the process has just ended
            continue
        sizes.append(size)
        opened.append(count)
    return Sample(
        at_s=time.monotonic() - began,
        gateway=gateway,
        gateway_mb=private_mb(gateway),
        gateway_descriptors=descriptors(gateway),
        holders=len(holders),
        holder_mb=max(sizes),
        holder_descriptors=max(opened),
        processes=len(pids),
    )


def doubled_processes(home: Home) -> list[str]:
    """Return the conversations with two processes, and the sessions with two holders."""
    first = _several(home)
    if not first:
        return []
    time.sleep(STAYS_S)
    second = _several(home)
    return [f"{name}: {sorted(pids)}" for name, pids in first.items() if second.get(name) == pids]


def _several(home: Home) -> dict[str, frozenset[int]]:
    processes: defaultdict[str, set[int]] = defaultdict(set)
    for pid in marked_processes(home):
        try:
            for name in _conversations(pid):
                processes[name].add(pid)
        except OSError:  # the process has just ended
            continue
    return {
        name: frozenset(pids)
        for name, pids in processes.items()
        if len({pid for pid in pids if not _is_below(pid, pids)}) > 1
    }


def _conversations(pid: int) -> set[str]:
    """Return the conversations of a process, by its arguments or its open files."""
    arguments = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    if _is_holder(pid):
        session = Path(arguments[-2]) / "session"
        return {f"holder of {session.read_text()}"} if session.exists() else set()
    options = [each for each in arguments if each.startswith(("--resume=", "--session-id="))]
    found = {option.partition("=")[2] for option in options}
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
    """Whether the process is a descendant of one of `others`."""
    try:
        while pid > 1:
            pid = parent(pid)
            if pid in others:
                return True
    except OSError:
        pass
    return False
