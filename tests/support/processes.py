"""Processes that a test has caused."""

import contextlib
import os
import signal
from pathlib import Path

from remoteclaw.config.home import Home


def marked_processes(home: Home) -> list[int]:
    """Return the agents, their tools and their holders that belong to a state directory."""
    wanted = os.fsencode(home.path)
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            # Behind each test all processes of the machine are looked at.
            environment, command = _read(f"/proc/{name}/environ"), _read(f"/proc/{name}/cmdline")
            if b"REMOTECLAW_HOLDER=" not in environment and b"program.main()" not in command:
                continue
            cwd = os.fsencode(os.readlink(f"/proc/{name}/cwd"))
            if wanted in environment or wanted in cwd or wanted in command:
                found.append(int(name))
    return found


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


def is_killed(pid: int) -> bool:
    """Whether a process is gone, or has got a SIGKILL and goes.

    To be asked once instead of waited for: what killed holders leave behind is killed some time
    later by every `up` of this machine, those of other tests included.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    pending = int(status.partition("SigPnd:")[2].split()[0], 16)
    # Once it has taken the signal it is pending no more, and its memory goes before itself.
    is_ending = "VmSize:" not in status
    return is_ending or not is_alive(pid) or bool(pending >> signal.SIGKILL - 1 & 1)


def children(pid: int) -> list[int]:
    """Return a process's children."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[1]) == pid:
                    found.append(int(name))
    return found


def everything(pid: int) -> list[int]:
    """Return a process and all processes below it."""
    return [pid, *(below for child in children(pid) for below in everything(child))]


def proportional_mb(pid: int) -> float:
    """Return the memory of a process, what it shares counted in part."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return int(rollup.partition("Pss:")[2].split()[0]) / 1024


def parent(pid: int) -> int:
    """Return a process's parent: of an agent, its holder."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[1])
