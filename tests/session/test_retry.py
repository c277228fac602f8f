"""When a turn is asked again."""

import pytest

from remoteclaw.errors import ErrorCategory
from remoteclaw.session.retry import (
    LIMIT_AGAIN_MS,
    LIMIT_LOOK_MS,
    LONGEST_MS,
    PAUSES_MS,
    again_at_ms,
)
from tests.support.rows import for_each

NOW_MS = 1_795_000_000_000
HOURS_MS = 5 * 3_600_000


def pause_ms(category: ErrorCategory, tries: int, retry_after_ms: int | None = None) -> int | None:
    """Return the pause behind so many tries, with the longest jitter."""
    retry_at_ms = None if retry_after_ms is None else NOW_MS + retry_after_ms
    at_ms = again_at_ms(
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
        (1, 2 * LONGEST_MS, 2_400),
        (6, 90_000, None),
    ],
)
def test_a_busy_model_is_asked_a_few_times(
    tries: int, retry_after_ms: int | None, expected: int | None
) -> None:
    assert pause_ms(ErrorCategory.RETRYABLE, tries, retry_after_ms) == expected
    assert pause_ms(ErrorCategory.UNREACHABLE, tries, retry_after_ms) == expected
    assert sum(PAUSES_MS) < 10 * 60_000


@pytest.mark.parametrize(
    ("retry_after_ms", "expected"),
    [
        (HOURS_MS, HOURS_MS),
        (3_000, LIMIT_AGAIN_MS),
        (-1_000, LIMIT_AGAIN_MS),
        (None, LIMIT_LOOK_MS),
        (2 * LONGEST_MS, LIMIT_LOOK_MS),
    ],
)
def test_a_limit_is_waited_for(retry_after_ms: int | None, expected: int) -> None:
    assert pause_ms(ErrorCategory.USAGE_LIMIT, 100, retry_after_ms) == expected
