"""The usage of turns and asides, from the totals that CLIs report and record.

tests/contracts/test_usage.py compares them with the requests of the real CLIs.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import AsideFailed
from remoteclaw.events import AgentUsage, DoneEvent, UsageEvent
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.acp.runtime import AcpRuntime
from remoteclaw.runtimes.claude.progress import Totals
from remoteclaw.runtimes.codex.turn import ThreadTokens
from remoteclaw.runtimes.gemini.chats import tokens_of
from remoteclaw.runtimes.opencode.runtime import OpencodeRuntime
from remoteclaw.runtimes.opencode.store import database_path
from tests.support.bridges import acp_script, agent_process, claude_script
from tests.support.waiting import HANG_S

GEMINI_SESSION = "0d743ac0-120e-4bb3-9de2-3a0dca4e8f52"


# -- claude ---------------------------------------------------------------------------------------


def claude_result(cost: float, *tokens: int, **more: Any) -> dict[str, Any]:
    """Return the end of a result of claude, with the totals of its process."""
    names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    models = {"a": dict(zip(names, tokens, strict=True)), "b": {"outputTokens": 1}}
    return {"total_cost_usd": cost, "modelUsage": models, **more}


def test_the_usage_of_a_claude_turn_is_the_growth_of_all_models_totals() -> None:
    totals = Totals()

    first = totals.growth(claude_result(0.5, 100, 6, 1000, 50))
    parked = Totals()
    parked.restore(json.loads(json.dumps(totals.state())))
    second = parked.growth(claude_result(0.75, 300, 8, 5000, 50))

    assert first == (AgentUsage(100, 7, 1000, 50), 0.5)
    assert second == (AgentUsage(200, 2, 4000, 0), 0.25)


@pytest.mark.parametrize("cost", [None, "free", float("nan")])
def test_a_claude_result_without_a_cost_counts_its_tokens(cost: Any) -> None:
    totals = Totals()

    without = totals.growth({**claude_result(0, 100, 6, 0, 0), "total_cost_usd": cost})
    after = totals.growth(claude_result(0.75, 150, 6, 0, 0))

    assert without == (AgentUsage(100, 7), None)
    assert after == (AgentUsage(50), 0.75)


@pytest.mark.parametrize(
    "more",
    [
        {"modelUsage": {}, "total_cost_usd": 0},  # no request was made
        {"modelUsage": "x"},
    ],
)
def test_a_claude_result_without_totals_counts_by_itself(more: dict[str, Any]) -> None:
    """The next growth is that since the last totals."""
    totals = Totals()
    totals.growth(claude_result(0.5, 100, 6, 0, 0))

    without = totals.growth({**claude_result(9, 9, 9, 9, 9, usage={"input_tokens": 3}), **more})
    after = totals.growth(claude_result(0.75, 150, 6, 0, 0))

    assert without == (AgentUsage(3), None)
    assert after == (AgentUsage(50), 0.25)


@pytest.mark.parametrize(
    ("read", "counted"),
    [
        ((500, 4000), AgentUsage(500, 1, 3200)),
        ((500, 300), AgentUsage(0, 1, 0)),
        ((10, 20), AgentUsage(0, 1, 0)),  # the estimate was too high
    ],
)
def test_an_estimate_is_subtracted_from_the_next_growth_of_claudes_totals(
    read: tuple[int, int], counted: AgentUsage
) -> None:
    totals, (uncached, cached) = Totals(), read

    estimates = [totals.estimate(500), totals.estimate(300)]
    grown, _ = totals.growth(claude_result(0.5, uncached, 0, cached, 0))
    following, _ = totals.growth(claude_result(0.6, uncached + 5, 0, cached, 0))

    assert estimates == [AgentUsage(cache_read_tokens=500), AgentUsage(cache_read_tokens=300)]
    assert grown == counted
    assert following == AgentUsage(5)


async def test_a_turn_of_a_claude_that_dies_counts_what_it_has_reported(
    home: Home, directory: Path
) -> None:
    """It has answered a message that joined late, with two requests, and asks a third time."""
    body = (
        "def ask(): say(type='stream_event', event=dict(type='message_start',\n"
        "    message=dict(usage=dict(input_tokens=10, output_tokens=1))))\n"
        "echo(heard()); delta('a'); joined = heard(); ask(); ask()\n"
        "result('a', total_cost_usd=1, modelUsage=dict(m=dict(inputTokens=25)))\n"
        "echo(joined); ask()\n"
    )
    command = claude_script(directory, body)
    async with agent_process(home, "claude", command=command) as (process, _):
        turn = process.turn("one")
        await anext(turn)
        await process.steer("two", "2")
        events = [event async for event in turn]

    assert [event.usage.input_tokens for event in events if isinstance(event, UsageEvent)] == [
        *(10, 20, 35)
    ]
    assert isinstance(events[-1], DoneEvent)
    assert events[-1].result.usage == AgentUsage(35, 1)


# -- codex ----------------------------------------------------------------------------------------


def codex_report(total: int, last: int) -> dict[str, Any]:
    """Return codex's report of a thread's totals and of its last request."""

    def numbers(read: int) -> dict[str, int]:
        return {"inputTokens": read, "cachedInputTokens": read // 2, "outputTokens": read // 100}

    return {"tokenUsage": {"total": numbers(total), "last": numbers(last)}}


def test_a_codex_thread_begins_to_count_where_its_original_ended() -> None:
    """A request that breaks off repeats the last report, perhaps that of the original."""
    copied, broken = ThreadTokens(), ThreadTokens()

    copied.read(codex_report(1100, 100), has_answer=True)
    broken.read(codex_report(1000, 300), has_answer=False)
    nothing = broken.new
    broken.read(codex_report(1100, 100), has_answer=True)

    assert nothing == AgentUsage()
    assert copied.new == broken.new == AgentUsage(50, 1, 50)


def test_a_new_codex_thread_counts_everything_and_each_turn_its_own() -> None:
    """What is reported after the end of a turn, as of a summary, counts with the next one."""
    tokens = ThreadTokens(AgentUsage())
    tokens.read(codex_report(100, 100), has_answer=True)
    first = tokens.new
    tokens.settle()
    tokens = ThreadTokens.of(json.loads(json.dumps(tokens.state())))
    tokens.read(codex_report(400, 300), has_answer=False)
    tokens.read(codex_report(500, 100), has_answer=True)

    assert first == AgentUsage(50, 1, 50)
    assert tokens.new == AgentUsage(200, 4, 200)


def test_a_codex_thread_without_a_report_counts_nothing() -> None:
    tokens = ThreadTokens()
    tokens.settle()

    assert ThreadTokens.of(tokens.state()) == ThreadTokens()
    assert tokens.new == AgentUsage()


# -- ACP ------------------------------------------------------------------------------------------


async def done(turn: AsyncGenerator[Any, None]) -> DoneEvent:
    events = [event async for event in turn]
    assert isinstance(events[-1], DoneEvent)
    return events[-1]


def acp(
    home: Home, directory: Path, body: str, session_id: str | None = None
) -> AbstractAsyncContextManager[Any]:
    return agent_process(home, "acp", session_id, command=acp_script(directory, body))


async def test_an_acp_turn_counts_all_prompts_that_joined_it_and_thoughts(
    home: Home, directory: Path
) -> None:
    body = (
        "one = begin()\n"
        "text('a')\n"
        "two = asked('session/prompt')\n"
        "answer(one, stopReason='end_turn', usage=dict(inputTokens=3, outputTokens=4))\n"
        "usage = dict(inputTokens=30, outputTokens=1, thoughtTokens=9, cachedReadTokens=5)\n"
        "answer(two, stopReason='end_turn', usage=usage)\n"
    )
    async with acp(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("one")
        await anext(turn)
        await process.steer("two", "2")
        event = await done(turn)

    assert event.result.usage == AgentUsage(33, 14, 5)


@pytest.mark.parametrize("reports_at_start", [True, False])
async def test_a_resumed_acp_session_counts_no_earlier_cost(
    home: Home, directory: Path, reports_at_start: bool
) -> None:
    """Without a report at the start, the cost of the first turn is unknown."""
    at_start = "cost(2)\n" if reports_at_start else ""
    body = (
        "def cost(usd): update('usage_update', used=1, size=2, cost=dict(amount=usd))\n"
        "can = dict(sessionCapabilities=dict(resume={}))\n"
        "answer(asked('initialize'), protocolVersion=1, agentCapabilities=can)\n"
        "resuming = asked('session/resume')\n"
        f"{at_start}"
        "answer(resuming)\n"
        "for usd in (2.5, 2.75):\n"
        "    prompt = asked('session/prompt')\n"
        "    cost(usd)\n"
        "    answer(prompt, stopReason='end_turn')\n"
    )
    async with acp(home, directory, body, "s") as (process, _), asyncio.timeout(HANG_S):
        costs = [(await done(process.turn(text))).result.total_cost_usd for text in "ab"]

    assert costs == [0.5 if reports_at_start else None, 0.25]


async def test_what_an_aside_without_an_answer_has_used_counts_with_the_turn(
    home: Home, directory: Path
) -> None:
    """Also if the agent is parked in between."""
    body = (
        "one = begin()\n"
        "text('a')\n"
        "answer(asked('session/new'), sessionId='t')\n"
        "question = asked('session/prompt')\n"
        "answer(one, stopReason='end_turn', usage=dict(inputTokens=3))\n"
        "usage = dict(inputTokens=5, outputTokens=6)\n"
        "answer(question, stopReason='refusal', usage=usage)\n"
        "answer(asked('session/prompt'), stopReason='end_turn', usage=dict(inputTokens=30))\n"
        "asked('nothing')\n"
    )
    async with acp(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("one")
        await anext(turn)
        asking = asyncio.create_task(process.aside("?"))
        first = await done(turn)
        with pytest.raises(AsideFailed, match="refusal"):
            await asking
        process.restore(process.parked_state())
        second = await done(process.turn("two"))

    assert first.result.usage == AgentUsage(3)
    assert second.result.usage == AgentUsage(35, 6)


# -- records of gemini and opencode ---------------------------------------------------------------


def test_the_tokens_of_a_gemini_session_are_those_of_its_messages(directory: Path) -> None:
    """Each message counts once, although gemini may write it again; thoughts are output."""
    chats = directory / ".gemini" / "tmp" / "project" / "chats"
    chats.mkdir(parents=True)
    env = {"HOME": str(directory)}
    assert tokens_of(GEMINI_SESSION, env) == AgentUsage()

    tokens = {"input": 100, "output": 7, "cached": 60, "thoughts": 20, "tool": 3, "total": 130}
    lines = [
        {"sessionId": GEMINI_SESSION, "kind": "main"},
        {"id": "1", "type": "user", "content": 'what is "tokens"?'},
        {"id": "2", "type": "gemini", "tokens": {**tokens, "output": 1}},
        {"id": "2", "type": "gemini", "tokens": tokens},
        {"id": "3", "type": "gemini", "tokens": {"input": 5, "output": None}},
        {"$set": {"messages": [{"id": "2", "tokens": tokens}]}},
    ]
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines)
    (chats / f"session-2026-11-26T14-47-{GEMINI_SESSION[:8]}.jsonl").write_text(
        text + '{"id":"4","tokens":{"input":7'
    )

    assert tokens_of(GEMINI_SESSION, env) == AgentUsage(48, 27, 60)


@pytest.mark.parametrize("table", ["", "CREATE TABLE session (id text, parent_id text)"])
def test_an_older_opencode_without_totals_counts_what_it_reports(
    directory: Path, table: str
) -> None:
    env = {"HOME": str(directory)}
    spec = AgentSpec(runtime="opencode", command=("opencode",), workspace="/", env=env)
    if table:
        database_path(env).parent.mkdir(parents=True)
        with sqlite3.connect(database_path(env)) as connection:
            connection.execute(table)
        connection.close()

    assert OpencodeRuntime().totals(spec, "ses_main") is None
    assert AcpRuntime().totals(spec, "s") is None
