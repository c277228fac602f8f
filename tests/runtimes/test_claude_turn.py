"""Events from claude's lines; the recorded lines are from version 2.1.197."""

from typing import Any

import pytest

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import (
    AgentEvent,
    AgentUsage,
    DoneEvent,
    ErrorEvent,
    NoticeEvent,
    PlanEvent,
    TextEvent,
    TextResetEvent,
    UsageEvent,
)
from remoteclaw.runtimes.claude.peer import ClaudePeer
from remoteclaw.runtimes.claude.text import AnswerReader
from remoteclaw.runtimes.claude.turn import ClaudeConversation, ClaudeTurn
from tests.support.silent import SilentPipes

RESULT = {"type": "result", "num_turns": 1}


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
def test_the_notice_about_a_retried_request_names_the_reason(
    retry: dict[str, Any], notice: str
) -> None:
    line = {"type": "system", "subtype": "api_retry", **retry}

    assert AnswerReader("ours").read(line) == [NoticeEvent(notice)]


# -- whole turns ----------------------------------------------------------------------------------


ECHO = {"type": "user"}


async def events_of(*lines: dict[str, Any]) -> list[AgentEvent]:
    """Return a turn's events from these lines; an ECHO repeats its message."""
    pipes = SilentPipes()
    turn = ClaudeTurn(pipes, ClaudePeer(pipes), ClaudeConversation("ours"))
    echo = {**ECHO, "uuid": turn._answer.message_id}
    sent = [echo if line is ECHO else line for line in lines]
    return [event for line in sent for event in await turn.take(line)]


async def events_after_echo(*lines: dict[str, Any]) -> list[AgentEvent]:
    """Return a turn's events from these lines, which follow the echo of its message."""
    return await events_of(ECHO, *lines)


async def test_text_is_passed_on_before_claude_confirms_the_message() -> None:
    *events, done = await events_of(delta("hel"), ECHO, delta("lo"), RESULT)

    assert events == [TextEvent("hel"), TextEvent("lo")]
    assert isinstance(done, DoneEvent)


async def test_text_of_an_unrequested_turn_is_withdrawn() -> None:
    *events, done = await events_of(delta("by myself"), RESULT, delta("to you"), ECHO, RESULT)

    assert events == [TextEvent("by myself"), TextResetEvent(9), TextEvent("to you")]
    assert isinstance(done, DoneEvent)
    assert done.result.text == "to you"


async def test_a_result_without_a_model_request_needs_no_echo() -> None:
    refused, done = await events_of({"type": "result", "num_turns": 0, "result": "not today"})

    assert refused == TextEvent("not today")
    assert isinstance(done, DoneEvent)


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
async def test_a_malformed_line_of_claude_is_skipped(line: dict[str, Any]) -> None:
    *events, done = await events_after_echo(line, delta("answer"), RESULT)

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
async def test_a_result_with_malformed_fields_still_ends_the_turn(fields: dict[str, Any]) -> None:
    text, done = await events_after_echo({**RESULT, "result": "answer", **fields})

    assert text == TextEvent("answer")
    assert isinstance(done, DoneEvent)
    assert done.result.text == "answer"


async def failure(**fields: Any) -> ErrorEvent:
    """Return the error of a turn whose result has these fields."""
    error, done = await events_after_echo({**RESULT, "is_error": True, **fields})
    assert isinstance(error, ErrorEvent)
    assert isinstance(done, DoneEvent)
    return error


async def test_a_failure_with_malformed_fields_is_still_a_failure() -> None:
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
async def test_claudes_error_code_takes_precedence_over_its_error_text(
    kind: str, status: int | None, category: ErrorCategory
) -> None:
    synthetic = {"model": "<synthetic>", "content": []}
    error, _ = await events_after_echo(
        {"type": "assistant", "error": kind, "message": synthetic},
        {**RESULT, "is_error": True, "result": "something", "api_error_status": status},
    )

    assert isinstance(error, ErrorEvent)
    assert error.category is category


# -- the plan, and the tokens so far --------------------------------------------------------------


def tool_use(tool: str, call: str = "1", **arguments: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": call, "name": tool, "input": arguments}
    return {"type": "assistant", "message": {"content": [block]}}


def tool_result(call: str = "1", **result: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": "words"}
    return {"type": "user", "message": {"content": [block]}, "tool_use_result": result}


def task_created(number: str, subject: str) -> dict[str, Any]:
    return tool_result(task={"id": number, "subject": subject})


def plans(events: list[AgentEvent]) -> list[list[tuple[str, str]]]:
    found = [event.steps for event in events if isinstance(event, PlanEvent)]
    return [[(step.text, step.state) for step in steps] for steps in found]


async def test_claudes_tasks_are_its_plan() -> None:
    events = await events_after_echo(
        *(task_created("1", "look"), task_created("2", "mend"), task_created("3", "rest")),
        tool_use("TaskUpdate", taskId="1", status="in_progress"),
        tool_result(success=True, taskId="1"),
        tool_use("TaskUpdate", taskId="1", status="completed", subject="look well"),
        tool_result(success=True, taskId="1"),
        tool_use("TaskUpdate", taskId="2", status="completed"),
        tool_result(success=False, taskId="2", error="blocked"),
        tool_use("TaskUpdate", taskId="3", status="deleted"),
        tool_result(success=True, taskId="3"),
        RESULT,
    )

    *_, begun, changed, last = plans(events)
    assert begun == [("look", "in_progress"), ("mend", "pending"), ("rest", "pending")]
    assert changed[0] == ("look well", "completed")
    assert last == [("look well", "completed"), ("mend", "pending")]


async def test_the_todo_list_of_an_older_claude_is_its_plan() -> None:
    todos = [
        {"content": "look", "status": "completed", "activeForm": "Looking"},
        {"content": "mend", "status": "of the future"},
    ]
    events = await events_after_echo(
        tool_use("TodoWrite", todos=todos), tool_use("TodoWrite", todos=todos), RESULT
    )

    assert plans(events) == [[("look", "completed"), ("mend", "pending")]]


async def test_a_plan_of_an_earlier_process_is_known_once_claude_lists_it() -> None:
    tasks = [{"id": "4", "subject": "go on", "status": "in_progress"}]
    subagent = {**task_created("5", "its own"), "parent_tool_use_id": "7"}
    events = await events_after_echo(
        tool_result(tasks=tasks),
        subagent,
        tool_use("TaskUpdate", taskId="9"),
        tool_result(),
        RESULT,
    )

    assert plans(events) == [[("go on", "in_progress")]]


async def test_steps_completed_in_an_earlier_turn_are_not_in_the_plan() -> None:
    pipes, conversation = SilentPipes(), ClaudeConversation("ours")
    first = ClaudeTurn(pipes, ClaudePeer(pipes), conversation)
    done = {"id": "1", "subject": "look", "status": "completed"}
    await first.take(tool_result(tasks=[done, {"id": "2", "subject": "mend", "status": "pending"}]))

    second = ClaudeTurn(pipes, ClaudePeer(pipes), conversation)

    assert plans(await second.take(task_created("3", "test"))) == [
        [("mend", "pending"), ("test", "pending")]
    ]


async def test_token_usage_adds_up_over_all_requests_of_a_turn() -> None:
    def request(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": "stream_event", "event": {"type": kind, **fields}}

    read = {"input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 900}
    begun = request("message_start", message={"usage": {**read, "output_tokens": 1}})
    ended = request("message_delta", usage={"output_tokens": 30})
    events = await events_after_echo(
        begun, ended, {**begun, "parent_tool_use_id": "7"}, begun, RESULT
    )

    sums = [event.usage for event in events if isinstance(event, UsageEvent)]
    assert [usage.new_tokens for usage in sums] == [121, 150, 271]
    assert sums[-1] == AgentUsage(200, 31, 1800, 40)
