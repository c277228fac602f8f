"""When a provider takes requests again, as sentences of CLIs say it."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import ErrorEvent, NoticeEvent, TextEvent
from remoteclaw.runtimes.model_wait import BEGUN_S, FRESH_S, Patience, retry_at_ms

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
def test_a_sentence_names_a_time(text: str, when: str) -> None:
    assert retry_at_ms(text, NOW_MS) == at(when)


@pytest.mark.parametrize("text", ["", "resets soon", "retry in a while"])
def test_a_sentence_names_none(text: str) -> None:
    assert retry_at_ms(text, NOW_MS) is None


# -- how long is waited ---------------------------------------------------------------------------

BUSY = ErrorEvent(ErrorCategory.RETRYABLE, "busy")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_turn_that_has_said_nothing_is_not_waited_for() -> None:
    patience = Patience(Clock())

    assert patience.wait(BUSY, 3.0) == NoticeEvent("The model is busy; trying again in 3 s.")
    assert patience.left_s == FRESH_S
    assert patience.wait(BUSY, FRESH_S + 1) == BUSY
    assert patience.left_s is None


def test_a_turn_that_has_done_something_is_waited_for_longer() -> None:
    clock = Clock()
    patience = Patience(clock)
    patience.note(TextEvent("I begin."))

    assert isinstance(patience.wait(BUSY, 60.0), NoticeEvent)
    clock.now = BEGUN_S + 1

    assert patience.wait(BUSY) == BUSY
    assert patience.left_s is None


def test_an_answer_ends_the_wait() -> None:
    clock = Clock()
    patience = Patience(clock)
    patience.wait(BUSY)
    patience.note(TextEvent("here"))
    clock.now = BEGUN_S + 1

    assert isinstance(patience.wait(BUSY), NoticeEvent)


@pytest.mark.parametrize("category", [ErrorCategory.AUTH, ErrorCategory.USAGE_LIMIT])
def test_what_does_not_pass_in_minutes_is_not_waited_for(category: ErrorCategory) -> None:
    failure = ErrorEvent(category, "why")

    assert Patience(Clock()).wait(failure) == failure
