"""The clock that leases, deadlines and agents' time limits are measured on, and the host's zone."""

import os
import time
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = ["boottime", "host_zone"]


def boottime() -> float:
    """Return seconds since boot, the time that the machine slept included (CLOCK_BOOTTIME).

    A lease must not look fresh to a worker that slept through it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def host_zone() -> str:
    """Return the IANA name of this host's time zone; UTC if it has no name."""
    linked = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    written = Path("/etc/timezone")  # where the other one is a copy
    for name in (
        os.environ.get("TZ", "").removeprefix(":"),
        linked,
        written.read_text().strip() if written.is_file() else "",
    ):
        try:
            return ZoneInfo(name).key
        except (ZoneInfoNotFoundError, ValueError, OSError):  # "Europe" is a directory
            continue
    return "UTC"
