"""The one clock that leases, deadlines and agents' time limits are measured on."""

import time

__all__ = ["boottime"]


def boottime() -> float:
    """Return seconds since boot, the time that the machine slept included (CLOCK_BOOTTIME).

    A lease must not look fresh to a worker that slept through it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
