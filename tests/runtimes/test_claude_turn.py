"""How claude's lines are read; the recorded ones are from 2.1.197."""

from typing import Any

import pytest

from remoteclaw.events import NoticeEvent, TextEvent, TextResetEvent
from remoteclaw.runtimes.claude_exchange import Activity, Exchange
from remoteclaw.runtimes.claude_text import AnswerReading

INIT = {"type": "system", "subtype": "init"}
STARTED = {"type": "system", "subtype": "task_started", "task_id": "b1"}
NOTIFIED = {"type": "system", "subtype": "task_notification", "task_id": "b1"}
RESULT = {"type": "result", "num_turns": 1}
ECHO = {"type": "user", "uuid": "ours", "isReplay": True}


def delta(text: str) -> dict[str, Any]:
    content = {"type": "text_delta", "text": text}
    return {"type": "stream_event", "event": {"type": "content_block_delta", "delta": content}}


@pytest.mark.parametrize(
    ("retry", "notice"),
    [
        (
            {"retry_delay_ms": 557.2, "error_status": 401, "error": "authentication_failed"},
            "The model refuses the sign-in; trying again in 1 s.",
        ),
        (
            {"retry_delay_ms": 1159.5, "error_status": 429, "error": "rate_limit"},
            "The model is busy; trying again in 1 s.",
        ),
        (
            {"retry_delay_ms": 2462.7, "error_status": 529, "error": "overloaded"},
            "The model is busy; trying again in 2 s.",
        ),
        (
            {"retry_delay_ms": 543.1, "error_status": None, "error": "unknown"},
            "The model can't be reached; trying again in 1 s.",
        ),
    ],
)
def test_a_repeated_request_says_why(retry: dict[str, Any], notice: str) -> None:
    line = {"type": "system", "subtype": "api_retry", **retry}

    assert AnswerReading().read(line) == [NoticeEvent(notice)]


def test_a_background_task_may_make_it_speak_until_it_has_spoken() -> None:
    activity = Activity()
    assert not activity.may_speak

    for line, may_speak in ((INIT, True), (STARTED, True), (RESULT, True), (NOTIFIED, True)):
        activity.note(line)
        assert activity.may_speak is may_speak
    assert activity.is_unasked

    activity.note(INIT)
    activity.note(RESULT)
    assert not activity.may_speak


def test_a_command_that_only_took_long_does_not() -> None:
    activity = Activity()

    for line in (INIT, STARTED, NOTIFIED, RESULT):
        activity.note(line)

    assert not activity.may_speak


def test_text_is_passed_on_at_once_while_nothing_else_can_speak() -> None:
    exchange = Exchange("ours", holds_back=False)

    assert exchange.read(delta("hel"), is_unasked=False) == [TextEvent("hel")]
    assert exchange.read(ECHO, is_unasked=False) == []
    assert exchange.read(delta("lo"), is_unasked=False) == [TextEvent("lo")]


def test_text_is_held_back_until_it_is_known_to_be_the_answer() -> None:
    exchange = Exchange("ours", holds_back=True)

    assert exchange.read(delta("hel"), is_unasked=False) == []
    assert exchange.read(ECHO, is_unasked=False) == [TextEvent("hel")]
    assert exchange.read(delta("lo"), is_unasked=False) == [TextEvent("lo")]


def test_text_of_a_turn_of_its_own_is_dropped_or_taken_back() -> None:
    for holds_back, taken_back in ((True, []), (False, [TextResetEvent(9)])):
        exchange = Exchange("ours", holds_back=holds_back)
        exchange.read(delta("by myself"), is_unasked=False)

        assert not exchange.is_answered_by(RESULT, is_unasked=False)
        assert exchange.drop() == taken_back

        assert exchange.read(delta("to you"), is_unasked=False) == []
        assert exchange.read(ECHO, is_unasked=False) == [TextEvent("to you")]
        assert exchange.is_answered_by(RESULT, is_unasked=False)


def test_a_message_that_its_own_turn_takes_up_is_answered_from_there() -> None:
    """Claude reads what comes while it uses tools, and has one result for both."""
    exchange = Exchange("ours", holds_back=True)
    exchange.read(delta("by myself"), is_unasked=True)

    assert exchange.read(ECHO, is_unasked=True) == []
    assert exchange.read(delta("to you"), is_unasked=True) == [TextEvent("to you")]
    assert exchange.is_answered_by(RESULT, is_unasked=True)
    assert exchange.reading.text == "to you"


def test_what_no_model_was_asked_about_is_an_answer_without_an_echo() -> None:
    exchange = Exchange("ours", holds_back=False)

    assert exchange.is_answered_by({"type": "result", "num_turns": 0}, is_unasked=False)
    assert not exchange.is_answered_by({"type": "result", "num_turns": 0}, is_unasked=True)
    assert not exchange.is_answered_by({"type": "result"}, is_unasked=False)
