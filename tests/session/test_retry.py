"""When a turn is asked again, and in which words that is told."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from remoteclaw.errors import ErrorCategory
from remoteclaw.session.retry import (
    LIMIT_AGAIN_MS,
    LIMIT_LOOK_MS,
    LONGEST_MS,
    MOST_LIMITS,
    PAUSES_MS,
    again_at_ms,
    is_told,
    time_in,
)

NOW_MS = 1_795_000_000_000
LIMIT, BUSY = ErrorCategory.USAGE_LIMIT, ErrorCategory.RETRYABLE


def pause_ms(category: ErrorCategory, tries: int, retry_after_ms: int | None = None) -> int | None:
    """Return the pause behind so many tries, with the longest jitter."""
    retry_at_ms = None if retry_after_ms is None else NOW_MS + retry_after_ms
    at_ms = again_at_ms(
        category, tries=tries, retry_at_ms=retry_at_ms, now_ms=NOW_MS, draw=lambda _, most: most
    )
    return at_ms and at_ms - NOW_MS


@pytest.mark.parametrize(
    ("tries", "retry_after_ms", "expected"),
    [
        (1, None, 2_400),
        (5, None, 360_000),
        (6, None, None),
        (1, 90_000, 90_000),
        (4, 1_000, 144_000),
        (1, -5_000, 2_400),
        (1, 2 * LONGEST_MS, 2_400),
        (6, 90_000, None),
    ],
)
def test_a_busy_model_is_asked_a_few_times(
    tries: int, retry_after_ms: int | None, expected: int | None
) -> None:
    assert pause_ms(BUSY, tries, retry_after_ms) == expected
    assert pause_ms(ErrorCategory.UNREACHABLE, tries, retry_after_ms) == expected


def test_all_pauses_are_some_minutes() -> None:
    assert sum(PAUSES_MS) < 10 * 60_000


@pytest.mark.parametrize(
    ("tries", "retry_after_ms", "expected"),
    [
        (1, 5 * 3_600_000, 5 * 3_600_000),
        (1, 3_000, 3_000),
        (2, 3_000, LIMIT_AGAIN_MS),
        (1, -1_000, LIMIT_AGAIN_MS),
        (1, None, LIMIT_LOOK_MS),
        (1, 2 * LONGEST_MS, LIMIT_LOOK_MS),
        (MOST_LIMITS, None, LIMIT_LOOK_MS),
        (MOST_LIMITS + 1, None, None),
    ],
)
def test_a_limit_is_waited_for(
    tries: int, retry_after_ms: int | None, expected: int | None
) -> None:
    assert pause_ms(LIMIT, tries, retry_after_ms) == expected


@pytest.mark.parametrize(
    ("told", "category", "after_ms", "expected"),
    [
        ("", LIMIT, 0, False),
        (f"usage_limit {NOW_MS}", LIMIT, 60_000, True),
        (f"usage_limit {NOW_MS}", LIMIT, 3_600_000, False),
        (f"retryable {NOW_MS}", BUSY, 3_600_000, True),
        (f"retryable {NOW_MS}", LIMIT, 0, False),
    ],
)
def test_a_pause_is_told_once(
    told: str, category: ErrorCategory, after_ms: int, expected: bool
) -> None:
    assert is_told(told, category, NOW_MS + after_ms) is expected


def test_a_time_is_told_in_the_persons_zone_with_the_day_if_it_is_another() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    now_ms = int(datetime(2026, 11, 21, 23, 30, tzinfo=berlin).timestamp() * 1000)
    soon_ms, night_ms = now_ms + 10 * 60_000, now_ms + 4 * 3_600_000 + 9 * 60_000

    assert time_in("Europe/Berlin", soon_ms, now_ms=now_ms) == "23:40 (Europe/Berlin)"
    told = time_in("Europe/Berlin", night_ms, now_ms=now_ms)
    assert told == "Sun 2026-11-22 03:39 (Europe/Berlin)"
    assert time_in("Asia/Tokyo", night_ms, now_ms=now_ms) == "11:39 (Asia/Tokyo)"


@pytest.mark.parametrize("zone", [None, "nonsense", "../etc/passwd", "America"])
def test_without_a_zone_it_is_the_hosts(zone: str | None) -> None:
    here = datetime.fromtimestamp(NOW_MS / 1000).astimezone()
    assert time_in(zone, NOW_MS, now_ms=NOW_MS) == f"{here:%H:%M} ({here.tzname()})"
