"""The clocks of leases and of messages, and time zones."""

import os
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

#: The file with the id of this boot. Containers on one machine share the id.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boottime() -> float:
    """Return the seconds since boot, including the time in suspend (CLOCK_BOOTTIME).

    A lease therefore also expires for a worker whose machine was suspended.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def now_ms() -> int:
    """Return the milliseconds since 1970, the unit of timestamps in messages and records."""
    return int(time.time() * 1000)


def format_duration(milliseconds: int) -> str:
    """Return a duration as text for people, in its largest unit, such as "5 min"."""
    seconds = max(milliseconds, 0) // 1000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h"
    return f"{seconds // 86400} days"


def format_exact_duration(milliseconds: float) -> str:
    """Return a duration as people write it: `0.4 s`, `48 s`, `2 min 48 s` or `1 h 3 min`."""
    if milliseconds < 9_950:
        return f"{max(milliseconds, 0) / 1000:.1f} s".replace(".0 s", " s")
    seconds = round(milliseconds / 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s".removesuffix(" 0 s")
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min".removesuffix(" 0 min")


def boot_id() -> str:
    """Return the id of this boot of this machine; `unknown` if the kernel provides none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


def named_zone(name: str | None) -> ZoneInfo | None:
    """Return the time zone with the IANA name `name`; None if `name` is empty or unknown."""
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):  # "Europe" is a directory
        return None


def local_time(timestamp_ms: int, zone: str | None) -> datetime:
    """Return a time in the zone named `zone`, or in the host's zone if that is None or unknown."""
    tz = named_zone(zone)
    # A platform's timestamp may be out of range, for which `fromtimestamp()` would raise.
    seconds = min(max(timestamp_ms / 1000, 0), 32_503_680_000)
    return datetime.fromtimestamp(seconds, tz=tz).astimezone(tz)


def host_zone() -> str:
    """Return the IANA name of this host's time zone; UTC if the zone has no name."""
    linked_name = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    name_file = Path("/etc/timezone")  # for hosts whose /etc/localtime is a copy, not a link
    for name in (
        os.environ.get("TZ", "").removeprefix(":"),
        linked_name,
        name_file.read_text().strip() if name_file.is_file() else "",
    ):
        if zone := named_zone(name):
            return zone.key
    return "UTC"
