"""Processes that a test has started, directly or indirectly."""

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
            # After each test, this reads all processes of the machine, so it must be fast.
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
    """Whether a process is running; a zombie is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


def is_killed(pid: int) -> bool:
    """Whether a process has ended, or has received SIGKILL and is ending.

    Check this once instead of waiting for it: any `up` on this machine, also one of another test,
    later kills what killed holders have left.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    pending = int(status.partition("SigPnd:")[2].split()[0], 16)
    # A signal that was taken is not pending any more; a process that ends frees its memory first.
    is_ending = "VmSize:" not in status
    return is_ending or not is_alive(pid) or bool(pending >> signal.SIGKILL - 1 & 1)


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[1]) == pid:
                    found.append(int(name))
    return found


def family() -> dict[int, list[int]]:
    """Return the ids of the children of each process that has any, zombies left out."""
    found: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] != b"Z":
                found.setdefault(int(fields[1]), []).append(int(name))
    return found


def name_of(pid: int) -> str:
    """Return the name of a process, as `top` shows it; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def everything(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    return [pid, *(below for child in children(pid) for below in everything(child))]


def proportional_mb(pid: int) -> float:
    """Return the proportional memory of a process in MB: shared pages are counted in part."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return int(rollup.partition("Pss:")[2].split()[0]) / 1024


def private_mb(pid: int) -> float:
    """Return the private memory of a process in MB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return (
        sum(
            int(line.split()[1])
            for line in text.splitlines()
            if line.startswith(("Private_Clean", "Private_Dirty"))
        )
        / 1024
    )


def descriptors(pid: int) -> int:
    """Return the number of open files of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def parent(pid: int) -> int:
    """Return the id of a process's parent; that of an agent is its holder."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[1])
