"""The clocks of leases and of messages, and time zones."""

import functools
import os
import time
from datetime import date, datetime
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


def local_day(timestamp_ms: int, zone: str | None) -> date:
    """Return the day of a time, in the zone as for `local_time()`."""
    return local_time(timestamp_ms, zone).date()


def zone_offsets(timestamp_ms: int, zone: str | None) -> str:
    """Return a zone's offsets from UTC around a time and for a year after it, for a Redis script.

    They are pairs of numbers: the time from which an offset applies, and the offset, both in
    milliseconds. The script can thus compute the day of its own clock.
    """
    return _zone_offsets(timestamp_ms // _DAY_MS * _DAY_MS, zone)


#: A day in milliseconds.
_DAY_MS = 24 * 3600 * 1000


@functools.lru_cache(maxsize=8)
def _zone_offsets(today_ms: int, zone: str | None) -> str:
    def offset_at(ms: int) -> int:
        offset = local_time(ms, zone).utcoffset()
        return round(offset.total_seconds() * 1000) if offset else 0

    pairs = [(0, offset_at(today_ms - 7 * _DAY_MS))]
    for before in range(today_ms - 7 * _DAY_MS, today_ms + 372 * _DAY_MS, 7 * _DAY_MS):
        if (offset := offset_at(before + 7 * _DAY_MS)) == pairs[-1][1]:
            continue
        low, high = before, before + 7 * _DAY_MS
        while high - low > 1000:  # clocks change at a whole second
            middle = (low + high) // 2000 * 1000
            low, high = (low, middle) if offset_at(middle) == offset else (middle, high)
        pairs.append((high, offset))
    return " ".join(f"{start} {offset}" for start, offset in pairs)


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
