"""A check whether this computer can run another terminal."""

import os
from pathlib import Path

_MEMORY = Path("/proc/meminfo")


class Overloaded(Exception):
    """Raised if nothing more should be started; its text is a sentence."""


def check_load(max_load: float, min_memory_mb: int) -> None:
    """Raise `Overloaded` if this computer has too high a load, or too little available memory.

    `max_load` is the maximum load average of the last minute for each processor that this process
    may use. For both arguments, 0 means no limit.
    """
    processors = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    if max_load and load > max_load * processors:
        raise Overloaded(
            f"This host has too much to do (load {load:.0f}, {processors} processors; [terminals] "
            f"max_load is {max_load:g} for each): open it again in a while."
        )
    if min_memory_mb and (free_mb := _available_mb()) < min_memory_mb:
        raise Overloaded(
            f"This host has too little memory left ({free_mb} MB; [terminals] min_memory_mb is "
            f"{min_memory_mb}): park a terminal, or open it again in a while."
        )


def _available_mb() -> int:
    """Return the memory that can be used without swapping, in megabytes."""
    for line in _MEMORY.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) // 1024
    raise AssertionError("Linux has MemAvailable since 3.14")
