"""The pauses before a failed turn is retried."""

import pytest

from remoteclaw.errors import ErrorCategory
from remoteclaw.session.retry import (
    LIMIT_MIN_PAUSE_MS,
    LIMIT_PAUSE_MS,
    MAX_LIMIT_MS,
    PAUSES_MS,
    next_try_ms,
)
from tests.support.rows import for_each

NOW_MS = 1_795_000_000_000
HOURS_MS = 5 * 3_600_000


def pause_ms(category: ErrorCategory, tries: int, retry_after_ms: int | None = None) -> int | None:
    """Return the pause after `tries` tries with the maximum jitter, or None after the last one."""
    retry_at_ms = None if retry_after_ms is None else NOW_MS + retry_after_ms
    at_ms = next_try_ms(
        category, tries=tries, retry_at_ms=retry_at_ms, now_ms=NOW_MS, draw=lambda _, most: most
    )
    return at_ms and at_ms - NOW_MS


@for_each(
    ("tries", "retry_after_ms", "expected"),
    [
        (1, None, 2_400),
        (5, None, 360_000),
        (6, None, None),
        (1, 90_000, 90_000),
        (4, 1_000, 144_000),
        (1, 2 * MAX_LIMIT_MS, 2_400),
        (6, 90_000, None),
    ],
)
def test_a_busy_model_is_retried_a_limited_number_of_times(
    tries: int, retry_after_ms: int | None, expected: int | None
) -> None:
    assert pause_ms(ErrorCategory.RETRYABLE, tries, retry_after_ms) == expected
    assert pause_ms(ErrorCategory.UNREACHABLE, tries, retry_after_ms) == expected
    assert sum(PAUSES_MS) < 10 * 60_000


@pytest.mark.parametrize(
    ("retry_after_ms", "expected"),
    [
        (HOURS_MS, HOURS_MS),
        (3_000, LIMIT_MIN_PAUSE_MS),
        (-1_000, LIMIT_MIN_PAUSE_MS),
        (None, LIMIT_PAUSE_MS),
        (2 * MAX_LIMIT_MS, LIMIT_PAUSE_MS),
    ],
)
def test_a_turn_is_retried_when_its_usage_limit_ends(
    retry_after_ms: int | None, expected: int
) -> None:
    assert pause_ms(ErrorCategory.USAGE_LIMIT, 100, retry_after_ms) == expected
