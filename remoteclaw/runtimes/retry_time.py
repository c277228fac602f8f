"""The end of a provider's limit, read from a CLI's sentence.

A fallback: where a CLI has a field for it, the field counts.
"""

import re
import time
from datetime import UTC, datetime, timedelta

from remoteclaw.clock import named_zone

__all__ = ["retry_at_ms"]

#: "resets 3:39am (Europe/Berlin)", "resets Nov 25, 3pm", "try again at Nov 25th, 2026 6:27 AM".
_AT = re.compile(
    r"(?:resets|again at) (?:(?P<month>[A-Z][a-z]{2}) (?P<day>\d{1,2})(?:st|nd|rd|th)?,? "
    r"(?:(?P<year>\d{4}),? )?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[AaPp])[Mm]\b(?: \((?P<zone>[\w/+-]+)\))?"
)
#: "retry in 33.5s", "Suggested retry after 60s", "Retrying after 5293ms", "try again in 2 hours".
_IN = re.compile(
    r"\b(?:retry(?:ing)?|try again) (?:in|after) "
    r"((?:\d{1,9}(?:\.\d+)? ?(?:ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)\b ?)+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|mil|[smhd])")
_MS = {"ms": 1, "mil": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: A time of day that has passed by no more is today's: a limit is asked about when it should have
#: ended, by clocks that differ, and its sentence leaves the seconds out.
_LATELY = timedelta(minutes=10)
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def retry_at_ms(text: str, now_ms: int | None = None) -> int | None:
    """Return the time that a sentence names, in milliseconds since 1970; None if it names none."""
    now_ms = round(time.time() * 1000) if now_ms is None else now_ms
    if match := _IN.search(text):
        parts = _PART.findall(match[1].lower())
        return now_ms + round(sum(float(count) * _MS[unit] for count, unit in parts))
    if match := _AT.search(text):
        try:
            return _next(match, now_ms)
        except ValueError:  # no such day, or no such hour
            return None
    return None


def _next(match: re.Match[str], now_ms: int) -> int:
    """Return when a time of day comes next, or came lately, on the day that is named or on any."""
    zone = named_zone(match["zone"])
    now = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone)
    hour = int(match["hour"]) % 12 + (12 if match["half"] in "Pp" else 0)
    at = now.replace(hour=hour, minute=int(match["minute"] or 0), second=0, microsecond=0)
    if match["month"]:
        if match["month"] not in _MONTHS:
            raise ValueError
        year = int(match["year"] or now.year)
        at = at.replace(year=year, month=_MONTHS.index(match["month"]) + 1, day=int(match["day"]))
        if not match["year"] and at < now - timedelta(days=1):
            at = at.replace(year=year + 1)
    elif at < now - _LATELY:
        at += timedelta(days=1)
    return round(at.timestamp() * 1000)
