"""How claude's lines are read; the recorded ones are from 2.1.197."""

from typing import Any

import pytest

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import (
    AgentEvent,
    DoneEvent,
    ErrorEvent,
    NoticeEvent,
    TextEvent,
    TextResetEvent,
)
from remoteclaw.runtimes.claude_exchange import ClaudeActivity, Exchange
from remoteclaw.runtimes.claude_peer import ClaudePeer
from remoteclaw.runtimes.claude_text import AnswerReading
from remoteclaw.runtimes.claude_turn import ClaudeTurn, Conversation
from tests.support.silent import SilentPipes

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
    activity = ClaudeActivity()
    assert not activity.may_speak

    for line, may_speak in ((INIT, True), (STARTED, True), (RESULT, True), (NOTIFIED, True)):
        activity.note(line)
        assert activity.may_speak is may_speak
    assert activity.is_unasked

    activity.note(INIT)
    activity.note(RESULT)
    assert not activity.may_speak


def test_a_command_that_only_took_long_does_not() -> None:
    activity = ClaudeActivity()

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


# -- whole turns ----------------------------------------------------------------------------------


async def said(*lines: dict[str, Any]) -> list[AgentEvent]:
    """Return what a turn makes of these lines, behind the repetition of its message."""
    pipes = SilentPipes()
    turn = ClaudeTurn(pipes, ClaudePeer(pipes), Conversation("ours"))
    echo = {"type": "user", "uuid": turn._exchange.message_id}
    return [event for line in (echo, *lines) for event in await turn.take(line)]


@pytest.mark.parametrize(
    "line",
    [
        {"type": "stream_event", "event": "x"},
        {"type": "assistant", "message": {"content": ["x"]}},
        {"type": "assistant", "message": "x"},
        {"type": "user", "message": {"content": [1]}},
        {"type": "control_request", "request": 7},
        {"type": "system", "subtype": "task_started", "task_id": []},
        {"type": ["system"]},
    ],
    ids=str,
)
async def test_a_line_of_another_shape_costs_only_what_it_says(line: dict[str, Any]) -> None:
    *events, done = await said(line, delta("answer"), RESULT)

    assert events == [TextEvent("answer")]
    assert isinstance(done, DoneEvent)


@pytest.mark.parametrize(
    "fields",
    [
        {"usage": {"input_tokens": "many"}},
        {"usage": "x"},
        {"session_id": {"a": 1}},
        {"total_cost_usd": "1"},
        {"num_turns": "x", "duration_ms": [], "stop_reason": 3, "terminal_reason": {}},
    ],
    ids=str,
)
async def test_a_result_of_another_shape_is_still_the_result(fields: dict[str, Any]) -> None:
    text, done = await said({**RESULT, "result": "answer", **fields})

    assert text == TextEvent("answer")
    assert isinstance(done, DoneEvent)
    assert done.result.text == "answer"


async def failure(**fields: Any) -> ErrorEvent:
    """Return the failure of a turn that ends like this."""
    error, done = await said({**RESULT, "is_error": True, **fields})
    assert isinstance(error, ErrorEvent)
    assert isinstance(done, DoneEvent)
    return error


async def test_a_failure_of_another_shape_is_still_a_failure() -> None:
    error = await failure(result={"a": 1}, errors=[{"a": 1}], api_error_status=[])

    assert (error.category, error.detail) == (ErrorCategory.FATAL, "claude failed")


@pytest.mark.parametrize(
    ("kind", "status", "category"),
    [
        ("overloaded", 529, ErrorCategory.RETRYABLE),
        ("model_not_found", 404, ErrorCategory.UNKNOWN_MODEL),
        ("billing_error", 400, ErrorCategory.BILLING),
        ("authentication_failed", None, ErrorCategory.AUTH),
        ("rate_limit", 429, ErrorCategory.RETRYABLE),
    ],
)
async def test_claudes_own_word_for_a_failure_goes_before_its_sentence(
    kind: str, status: int | None, category: ErrorCategory
) -> None:
    synthetic = {"model": "<synthetic>", "content": []}
    error, _ = await said(
        {"type": "assistant", "error": kind, "message": synthetic},
        {**RESULT, "is_error": True, "result": "something", "api_error_status": status},
    )

    assert isinstance(error, ErrorEvent)
    assert error.category is category
