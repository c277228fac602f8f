"""The time limits of a turn: silence, total time and start, and the cases to which none applies."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge import Limits, conduct
from remoteclaw.bridge.time_limits import SILENCE_S, TurnTimer
from remoteclaw.config.home import Home
from remoteclaw.errors import ErrorCategory, Overdue
from remoteclaw.events import (
    AgentEvent,
    CompactionEvent,
    PermissionEvent,
    TextEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.protocols import BridgeCallbacks, Decision, TurnSources
from tests.support.bridges import acp_script, agent_bridge, demo_bridge, script
from tests.support.rows import for_each
from tests.support.stack import message
from tests.support.waiting import HANG_S

LIMITS = Limits(stall_s=60, turn_s=1000)
TOOL = ToolUseEvent("look", "1", {})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def timer_after(*steps: AgentEvent | float) -> TurnTimer:
    """Return a timer after `steps` in their order: events, and numbers of seconds that pass."""
    clock = Clock()
    timer = TurnTimer(clock)
    for step in steps:
        if isinstance(step, float):
            clock.now += step
        else:
            timer.note(step)
    return timer


@for_each(
    ("steps", "is_overdue"),
    [
        ((59.0,), False),
        ((61.0,), True),
        ((59.0, ThinkingEvent("hm"), 59.0), False),
        ((TOOL, 500.0), False),
        ((TOOL, 500.0, ToolResultEvent("1", ""), 59.0), False),
        ((TOOL, 500.0, ToolResultEvent("1", ""), 61.0), True),
        ((TOOL, ToolUseEvent("look", "2", {}), ToolResultEvent("1", ""), 61.0), False),
        ((TOOL, TextEvent("done with it"), 61.0), True),
        ((PermissionEvent("1", "look", {}), 500.0), False),
        ((TOOL, 1001.0), True),
        ((CompactionEvent("began"), 500.0), False),
        ((CompactionEvent("began"), 500.0, CompactionEvent("done"), 61.0), True),
    ],
)
def test_the_stall_limit_applies_unless_a_tool_runs_or_a_request_is_open(
    steps: tuple[AgentEvent | float, ...], is_overdue: bool
) -> None:
    assert bool(timer_after(*steps).overdue(LIMITS)) is is_overdue


def test_the_time_of_earlier_attempts_counts_towards_turn_s() -> None:
    clock = Clock()
    timer = TurnTimer(clock, used_s=950.0)
    timer.note(TOOL)
    clock.now += 49.0

    assert not timer.overdue(LIMITS)
    clock.now += 2.0
    assert timer.overdue(LIMITS) == Overdue("turn_s", 1000)


@pytest.mark.parametrize(("verdict", "is_overdue"), [("allow", False), ("deny", True)])
def test_a_decision_restarts_the_silence_timer(verdict: Any, is_overdue: bool) -> None:
    clock = Clock()
    timer = TurnTimer(clock)
    timer.note(TOOL)
    timer.note(PermissionEvent("1", "look", {}))
    clock.now += 500.0

    timer.decided(Decision(verdict))

    assert not timer.overdue(LIMITS)
    assert timer.silence_s == 0
    clock.now += 61.0  # the tool runs, unless it was denied
    assert bool(timer.overdue(LIMITS)) is is_overdue


def test_waits_for_people_that_overlap_count_once() -> None:
    clock = Clock()
    timer = TurnTimer(clock)
    for step in ("1", 3.0, "2", 5.0, "end", 7.0, "end", 11.0, "end"):
        match step:
            case float():
                clock.now += step
            case "end":
                timer.decided(Decision("allow"))
            case name:
                timer.note(PermissionEvent(str(name), "look", {}))

    assert timer.people.seconds == 15.0


def test_a_notice_says_once_until_when_the_turn_waits() -> None:
    timer = timer_after(SILENCE_S + 1)

    notice = timer.notice(LIMITS)

    assert re.fullmatch(r"\(No response from the model yet; I wait until \d\d:\d\d\.\)", notice)
    assert timer.notice(LIMITS) == ""
    assert timer_after(SILENCE_S - 1).notice(LIMITS) == ""
    assert timer_after(TOOL, SILENCE_S + 1).notice(LIMITS) == ""


async def test_a_silent_agent_is_stopped_and_the_person_is_informed(
    home: Home, directory: Path
) -> None:
    body = (
        "turn(); say(type='text', text='I begin')\n"
        "turn(); say(type='done', aborted=True)\n"
        "turn(); say(type='text', text='fine'); say(type='done')\n"
    )
    shown: list[str] = []
    command = script(directory, body)
    async with demo_bridge(home, command=command, limits=Limits(stall_s=0.9)) as (bridge, *_):
        callbacks = BridgeCallbacks(on_live_text=lambda _, text: shown.append(text))
        result = await bridge.handle(message("hello"), callbacks)
        after = await bridge.handle(message("hello"))

    assert result.error_category is ErrorCategory.TIMEOUT
    assert result.error == "the limit stall_s = 0.9 was passed"
    assert [payload.text.partition(".")[0] for payload in result.payloads] == [
        "I begin",
        "main gave no sign of life for 0",
    ]
    assert any("No response from the model yet" in text for text in shown)
    assert after.payloads[0].text == "fine"  # the same process, because it obeyed the stop


async def test_the_stall_limit_does_not_apply_while_a_tool_runs(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conduct, "ABORT_S", 0.1)  # a stopped turn would end the agent
    body = (
        "turn(); say(type='tool_use', id='1', name='build', input={})\n"
        "time.sleep(2.4)\n"
        "say(type='tool_result', id='1', output='built')\n"
        "say(type='text', text='built'); say(type='done')\n"
    )
    command = script(directory, body)
    async with demo_bridge(home, command=command, limits=Limits(stall_s=0.9)) as (bridge, *_):
        result = await bridge.handle(message("hello"))

    assert result.error is None
    assert result.payloads[0].text == "built"


async def test_the_stall_limit_applies_after_a_permission_that_no_person_decided(
    home: Home, directory: Path
) -> None:
    """Not every agent reports that a denied tool has ended."""
    body = (
        "prompt = begin()\n"
        "say(jsonrpc='2.0', id=0, method='session/request_permission', params=dict(\n"
        "    toolCall=dict(toolCallId='1', title='x'),\n"
        "    options=[dict(optionId='once', kind='allow_once')]))\n"
        "asked(); asked('session/cancel')\n"
        "answer(prompt, stopReason='cancelled'); asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with (
        asyncio.timeout(HANG_S),
        agent_bridge(home, "acp", limits=Limits(stall_s=0.9), command=command) as (bridge, *_),
    ):
        result = await bridge.handle(message("hello"))

    assert result.error == "the limit stall_s = 0.9 was passed"


async def test_a_turn_is_stopped_after_turn_s(home: Home, directory: Path) -> None:
    body = "turn()\nfor _ in range(1000): say(type='text', text='more '); time.sleep(0.05)\n"
    command = script(directory, body)
    async with demo_bridge(home, command=command, limits=Limits(turn_s=1.9)) as (bridge, *_):
        result = await bridge.handle(message("hello"))

    assert result.error_category is ErrorCategory.TIMEOUT
    assert result.payloads[0].text.startswith("more more")
    assert "main took longer than 1.9 s in all, so it was stopped." in result.payloads[-1].text


async def test_a_start_is_stopped_after_start_s(home: Home, directory: Path) -> None:
    command = acp_script(directory, "asked('nothing')\n")
    async with agent_bridge(home, "acp", command=command, limits=Limits(start_s=0.4)) as (
        bridge,
        *_,
    ):
        result = await bridge.handle(message("hello"))

    assert result.error_category is ErrorCategory.TIMEOUT
    assert result.error == "the limit start_s = 0.4 was passed"
    assert result.payloads[-1].text.startswith("main did not start within 0.4 s. Send")


def test_any_output_of_the_agent_restarts_the_silence_timer() -> None:
    clock, printed = Clock(), [0.0]
    timer = TurnTimer(clock, lambda: printed[0])
    clock.now = 100.0
    assert timer.overdue(LIMITS)

    printed[0] = 70.0  # part of a tool call, which is not an event yet

    assert not timer.overdue(LIMITS)
    assert timer.silence_s == 30.0


async def test_the_stall_limit_does_not_apply_before_the_prompt_is_sent(
    home: Home, directory: Path
) -> None:
    body = "prompt = begin(); text('here'); answer(prompt, stopReason='end_turn')\n"
    slow = f"time.sleep(1.2)\n{body}"

    async def history(_seen: str | None) -> list[dict[str, str]]:
        await asyncio.sleep(0.1)
        return []

    command = acp_script(directory, slow)
    limits = Limits(start_s=20, stall_s=1)
    async with agent_bridge(home, "acp", command=command, limits=limits) as (bridge, *_):
        result = await bridge.handle(message("hello"), sources=TurnSources(history=history))

    assert result.error is None
    assert result.payloads[0].text == "here"
