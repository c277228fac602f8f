"""When an agent has taken too long, and what it may take its time for."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge import Limits, conduct
from remoteclaw.bridge.time_limits import SILENCE_S, Pace
from remoteclaw.config.home import Home
from remoteclaw.errors import ErrorCategory, Overdue
from remoteclaw.events import (
    AgentEvent,
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


def pace_after(*steps: AgentEvent | float) -> Pace:
    """Return a pace after events and seconds, in their order."""
    clock = Clock()
    pace = Pace(clock)
    for step in steps:
        if isinstance(step, float):
            clock.now += step
        else:
            pace.note(step)
    return pace


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
    ],
)
def test_silence_counts_while_nothing_is_going_on(
    steps: tuple[AgentEvent | float, ...], is_overdue: bool
) -> None:
    assert bool(pace_after(*steps).overdue(LIMITS)) is is_overdue


def test_earlier_tries_count_to_the_time_that_a_turn_may_take() -> None:
    clock = Clock()
    pace = Pace(clock, used_s=950.0)
    pace.note(TOOL)
    clock.now += 49.0

    assert not pace.overdue(LIMITS)
    clock.now += 2.0
    assert pace.overdue(LIMITS) == Overdue("turn_s", 1000)


@pytest.mark.parametrize(("verdict", "is_overdue"), [("allow", False), ("deny", True)])
def test_after_a_decision_the_time_counts_anew(verdict: Any, is_overdue: bool) -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.note(TOOL)
    pace.note(PermissionEvent("1", "look", {}))
    clock.now += 500.0

    pace.decided(Decision(verdict))

    assert not pace.overdue(LIMITS)
    assert pace.silence_s == 0
    clock.now += 61.0  # the tool runs, unless it was denied
    assert bool(pace.overdue(LIMITS)) is is_overdue


def test_the_person_is_told_once_until_when_it_is_waited() -> None:
    pace = pace_after(SILENCE_S + 1)

    notice = pace.notice(LIMITS)

    assert re.fullmatch(r"\(No word from the model yet; it is given until \d\d:\d\d\.\)", notice)
    assert pace.notice(LIMITS) == ""
    assert pace_after(SILENCE_S - 1).notice(LIMITS) == ""
    assert pace_after(TOOL, SILENCE_S + 1).notice(LIMITS) == ""


async def test_an_agent_that_says_nothing_is_stopped_and_the_person_told(
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
    assert any("No word from the model yet" in text for text in shown)
    assert after.payloads[0].text == "fine"  # the same process: it had stopped when it was told to


async def test_a_tool_may_take_its_time(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conduct, "ABORT_S", 0.1)  # it would be ended
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


async def test_silence_counts_after_a_permission_that_nobody_was_asked_for(
    home: Home, directory: Path
) -> None:
    """Not every agent says that a denied tool has ended."""
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


async def test_a_turn_has_a_time_in_all(home: Home, directory: Path) -> None:
    body = "turn()\nfor _ in range(1000): say(type='text', text='more '); time.sleep(0.05)\n"
    command = script(directory, body)
    async with demo_bridge(home, command=command, limits=Limits(turn_s=1.9)) as (bridge, *_):
        result = await bridge.handle(message("hello"))

    assert result.error_category is ErrorCategory.TIMEOUT
    assert result.payloads[0].text.startswith("more more")
    assert "main took longer than 1.9 s in all, so it was stopped." in result.payloads[-1].text


async def test_a_start_has_a_time(home: Home, directory: Path) -> None:
    command = acp_script(directory, "asked('nothing')\n")
    async with agent_bridge(home, "acp", command=command, limits=Limits(start_s=0.4)) as (
        bridge,
        *_,
    ):
        result = await bridge.handle(message("hello"))

    assert result.error_category is ErrorCategory.TIMEOUT
    assert result.error == "the limit start_s = 0.4 was passed"
    assert result.payloads[-1].text.startswith("main did not start within 0.4 s. Send")


def test_whatever_it_prints_is_a_sign_of_life() -> None:
    clock, printed = Clock(), [0.0]
    pace = Pace(clock, lambda: printed[0])
    clock.now = 100.0
    assert pace.overdue(LIMITS)

    printed[0] = 70.0  # half a tool call, which is no event yet

    assert not pace.overdue(LIMITS)
    assert pace.silence_s == 30.0


async def test_what_comes_before_the_agent_is_asked_is_no_silence(
    home: Home, directory: Path
) -> None:
    body = "prompt = begin(); text('here'); answer(prompt, stopReason='end_turn')\n"
    slow = f"time.sleep(1.2)\n{body}"

    async def history() -> list[dict[str, str]]:
        await asyncio.sleep(0.1)
        return []

    command = acp_script(directory, slow)
    limits = Limits(start_s=20, stall_s=1)
    async with agent_bridge(home, "acp", command=command, limits=limits) as (bridge, *_):
        result = await bridge.handle(message("hello"), sources=TurnSources(history=history))

    assert result.error is None
    assert result.payloads[0].text == "here"
