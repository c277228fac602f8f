"""The pause until a provider takes requests again, read from a CLI's sentence.

Where a CLI has a field for it, the field counts.
"""

import re
import time

#: "retry in 33.5s", "Suggested retry after 60s", "Retrying after 5293ms", "try again in 2 hours".
_IN = re.compile(
    r"\b(?:retry(?:ing)?|try again) (?:in|after) "
    r"((?:\d{1,9}(?:\.\d+)? ?(?:ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)\b ?)+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|mil|[smhd])")
_MS = {"ms": 1, "mil": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def retry_at_ms(text: str, now_ms: int | None = None) -> int | None:
    """Return the time that a sentence names, in milliseconds since 1970; None if it names none."""
    match = _IN.search(text)
    if match is None:
        return None
    now_ms = round(time.time() * 1000) if now_ms is None else now_ms
    parts = _PART.findall(match[1].lower())
    return now_ms + round(sum(float(count) * _MS[unit] for count, unit in parts))
