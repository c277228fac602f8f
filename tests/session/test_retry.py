"""The pauses before a failed turn is retried."""

import pytest

from remoteclaw.errors import ErrorCategory
from remoteclaw.session.retry import MAX_LIMIT_MS, PAUSES_MS, LastNotice, next_try_ms
from tests.support.rows import for_each

NOW_MS = 1_795_000_000_000
HOURS_MS = 5 * 3_600_000


def pause_ms(
    category: ErrorCategory,
    tries: int,
    retry_after_ms: int | None = None,
    told: LastNotice = LastNotice(),  # noqa: B008 - it is frozen
) -> int | None:
    """Return the pause after `tries` tries with the maximum jitter, or None after the last one."""
    retry_at_ms = None if retry_after_ms is None else NOW_MS + retry_after_ms
    at_ms = next_try_ms(
        category,
        tries=tries,
        retry_at_ms=retry_at_ms,
        now_ms=NOW_MS,
        told=told,
        draw=lambda _, most: most,
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
    ("told", "retry_after_ms", "expected"),
    [
        # (category, end, refusals) of the last notice; the pause
        (None, HOURS_MS, HOURS_MS + 60_000),
        (None, 3_000, 63_000),
        (None, -1_000, 18_000),
        (None, None, 2_160_000),
        (None, 2 * MAX_LIMIT_MS, 2_160_000),
        # refused again after the announced end, whatever the provider says about its end now
        ((-1_000, 0), None, 18_000),
        ((-1_000, 0), -1_000, 18_000),
        ((-20_000, 1), None, 72_000),
        ((-20_000, 1), 1_000, 72_000),
        ((-90_000, 2), None, 360_000),
        ((-400_000, 3), None, 2_160_000),
        ((-4_000_000, 30), 30_000, 2_160_000),
        # a new end
        ((-4_000_000, 3), HOURS_MS, HOURS_MS + 60_000),
        # no end was announced
        ((-NOW_MS, 5), None, 2_160_000),
    ],
)
def test_a_turn_is_retried_after_its_usage_limit_ends(
    told: tuple[int, int] | None, retry_after_ms: int | None, expected: int
) -> None:
    category = ErrorCategory.USAGE_LIMIT
    last = LastNotice(category, NOW_MS + told[0], told[1]) if told else LastNotice()

    assert pause_ms(category, 100, retry_after_ms, LastNotice.parse(str(last))) == expected
    assert last == LastNotice.parse(str(last))


def test_sessions_that_wait_for_the_same_end_do_not_come_at_once() -> None:
    """And none comes before it, by a clock that differs by some seconds."""
    end_ms = NOW_MS + HOURS_MS
    times = {
        next_try_ms(
            ErrorCategory.USAGE_LIMIT,
            tries=1,
            retry_at_ms=end_ms,
            now_ms=NOW_MS,
            told=LastNotice(),
        )
        for _ in range(100)
    }
    assert all(at_ms is not None and 5_000 <= at_ms - end_ms <= 60_000 for at_ms in times)
    assert len(times) > 50


def test_a_notice_of_another_failure_counts_no_refusals_of_a_limit() -> None:
    told = LastNotice(ErrorCategory.RETRYABLE, 0, 9)

    assert pause_ms(ErrorCategory.USAGE_LIMIT, 1, -1_000, told) == 18_000
