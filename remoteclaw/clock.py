"""The clock of leases and deadlines, and time zones."""

import os
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

#: Differs from machine to machine and from boot to boot; the containers of a machine share it.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boottime() -> float:
    """Return seconds since boot, the time that the machine slept included (CLOCK_BOOTTIME).

    A lease must not look fresh to a worker that slept through it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def now_ms() -> int:
    """Return milliseconds since 1970, as messages and records count them."""
    return int(time.time() * 1000)


def in_words(milliseconds: int) -> str:
    """Return a duration as people say it, in its largest unit."""
    seconds = max(milliseconds, 0) // 1000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h"
    return f"{seconds // 86400} days"


def boot_id() -> str:
    """Return the id of this boot of this machine; `unknown` where the kernel has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


def named_zone(name: str | None) -> ZoneInfo | None:
    """Return the time zone with an IANA name; None for no name and for one that isn't known."""
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):  # "Europe" is a directory
        return None


def local_time(timestamp_ms: int, zone: str | None) -> datetime:
    """Return a time in a zone that is named, else in the host's."""
    here = named_zone(zone)
    # A platform's timestamp can be nonsense; a wrong clock must not cost the message.
    seconds = min(max(timestamp_ms / 1000, 0), 32_503_680_000)
    return datetime.fromtimestamp(seconds, tz=here).astimezone(here)


def host_zone() -> str:
    """Return the IANA name of this host's time zone; UTC if it has no name."""
    linked = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    written = Path("/etc/timezone")  # where the other one is a copy
    for name in (
        os.environ.get("TZ", "").removeprefix(":"),
        linked,
        written.read_text().strip() if written.is_file() else "",
    ):
        if zone := named_zone(name):
            return zone.key
    return "UTC"
