"""Retry times in sentences of CLIs, and how long a turn waits for the model."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import ErrorEvent, NoticeEvent, TextEvent
from remoteclaw.runtimes.model_wait import (
    MAX_WAIT_AFTER_OUTPUT_S,
    MAX_WAIT_BEFORE_OUTPUT_S,
    ModelWait,
    retry_at_ms,
)

NOW = datetime(2026, 11, 22, 1, 30, tzinfo=ZoneInfo("UTC"))
NOW_MS = round(NOW.timestamp() * 1000)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("Please retry in 33.5s.", "2026-11-22T01:30:33.500Z"),
        ("Suggested retry after 60s.", "2026-11-22T01:31Z"),
        ("Retrying after 5293ms...", "2026-11-22T01:30:05.293Z"),
        ("try again in 2 hours 5 minutes", "2026-11-22T03:35Z"),
    ],
)
def test_the_retry_time_is_read_from_a_sentence(text: str, when: str) -> None:
    assert retry_at_ms(text, NOW_MS) == at(when)


@pytest.mark.parametrize("text", ["", "resets soon", "retry in a while"])
def test_a_sentence_without_a_time_has_no_retry_time(text: str) -> None:
    assert retry_at_ms(text, NOW_MS) is None


# -- the wait for the model -----------------------------------------------------------------------

BUSY = ErrorEvent(ErrorCategory.RETRYABLE, "busy")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_turn_without_output_waits_only_briefly_for_the_model() -> None:
    wait = ModelWait(Clock())

    assert wait.note_failure(BUSY, 3.0) == NoticeEvent("The model is busy; trying again in 3 s.")
    assert wait.remaining_s == MAX_WAIT_BEFORE_OUTPUT_S
    assert wait.note_failure(BUSY, MAX_WAIT_BEFORE_OUTPUT_S + 1) == BUSY
    assert wait.remaining_s is None


def test_a_turn_with_output_waits_longer_for_the_model() -> None:
    clock = Clock()
    wait = ModelWait(clock)
    wait.note(TextEvent("I begin."))

    assert isinstance(wait.note_failure(BUSY, 60.0), NoticeEvent)
    clock.now = MAX_WAIT_AFTER_OUTPUT_S + 1

    assert wait.note_failure(BUSY) == BUSY
    assert wait.remaining_s is None


def test_output_of_the_model_ends_the_wait() -> None:
    clock = Clock()
    wait = ModelWait(clock)
    wait.note_failure(BUSY)
    wait.note(TextEvent("here"))
    clock.now = MAX_WAIT_AFTER_OUTPUT_S + 1

    assert isinstance(wait.note_failure(BUSY), NoticeEvent)


@pytest.mark.parametrize("category", [ErrorCategory.AUTH, ErrorCategory.USAGE_LIMIT])
def test_a_failure_that_does_not_pass_in_minutes_is_not_waited_for(category: ErrorCategory) -> None:
    failure = ErrorEvent(category, "why")

    assert ModelWait(Clock()).note_failure(failure) == failure
