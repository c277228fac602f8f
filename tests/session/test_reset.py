"""Resets: earlier messages are answered first, and the next conversation has nothing of the old."""

import asyncio
from typing import Any

import pytest

from remoteclaw.config.model import QueueOverride
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.protocols import Conversation
from remoteclaw.session.notices import RESET, SECOND_TRY
from tests.support.conversations import (
    answers,
    append,
    busy,
    configure,
    drain,
    dying,
    ended,
    go,
    prompts,
    recorded,
    renewed,
    talk,
)
from tests.support.processes import is_alive
from tests.support.stack import Stack
from tests.support.waiting import eventually

MODES = ("collect", "followup", "steer", "interrupt")


# -- in a chat ------------------------------------------------------------------------------------


async def test_the_commands_new_and_reset_begin_a_new_conversation(agent: Stack) -> None:
    replies = await talk(agent, "/NEW@its_bot", "one", "two", "/reset", "three", "four")

    assert replies == [
        RESET,
        "heard one, knew -",
        "heard two, knew one",
        RESET,
        "heard three, knew -",
        "heard four, knew three",
    ]


async def test_text_after_the_command_begins_the_new_conversation(agent: Stack) -> None:
    replies = await talk(agent, "one", "/new\n\n  two ", "three")

    assert replies == ["heard one, knew -", "heard two, knew -", "heard three, knew two"]
    assert "/new" not in prompts(agent)


async def test_prompts_after_a_reset_do_not_mention_the_old_conversation(agent: Stack) -> None:
    """The record ends with the conversation, so a new agent gets no notes."""
    await talk(agent, "a secret", "/new")
    before = len(prompts(agent))
    last = await agent.append("two")
    await drain(agent, last)

    assert "secret" not in prompts(agent)[before:]
    assert "conversation_before" not in prompts(agent)[before:]
    assert await recorded(agent, last) == ["two"]


async def test_prompts_after_a_reset_do_not_have_earlier_thread_messages(agent: Stack) -> None:
    thread = {"thread_id": "t", "thread_context": "a secret"}
    await talk(agent, "one", **thread)
    assert "a secret" in prompts(agent)
    before = len(prompts(agent))

    await talk(agent, "/new two", "/new", "three", **thread)

    assert "secret" not in prompts(agent)[before:]


async def test_the_agent_of_the_old_conversation_ends(agent: Stack) -> None:
    first = await agent.append("one")
    await drain(agent, first)
    pid = int((await agent.reached(first, "spawned")).rpartition(" ")[2])
    assert is_alive(pid)

    await talk(agent, "/new")

    await eventually(lambda: not is_alive(pid))


async def test_a_reset_keeps_the_settings_of_the_session(agent: Stack) -> None:
    first = await agent.append("one")
    await drain(agent, first)
    await agent.fleet.sessions.configure(first.session, QueueOverride(mode="steer"))
    before = await agent.fleet.sessions.view(first.session.sid)
    await talk(agent, "/new")
    after = await agent.fleet.sessions.view(first.session.sid)

    assert before is not None
    assert after is not None
    assert (after.queue_settings, after.lane, after.host) == (
        before.queue_settings,
        before.lane,
        before.host,
    )
    assert before.session_ids
    assert after.session_ids == {}


async def test_a_session_whose_agent_cannot_start_can_be_reset(agent: Stack) -> None:
    first = await agent.append("one")
    await drain(agent, first)
    agent.configure({"runtime": "demo", "command": ["not-there"]})
    assert await talk(agent, "/new") == [RESET]
    agent.configure(agent.agent)

    assert await talk(agent, "two") == ["heard two, knew -"]


async def test_a_reset_is_in_the_trace_of_its_message(agent: Stack) -> None:
    command = await agent.append("/new")
    await drain(agent, command)

    outcome = await agent.outcome(command)
    assert outcome.status == "done"
    assert [step.name for step in outcome.steps] == ["accepted", "begun", "reset", "finished"]
    assert await agent.reached(command, "reset") == "/new"


async def test_no_more_ended_conversations_are_kept_than_configured(agent: Stack) -> None:
    configure(agent, sessions={"keep_archived": 2}, record={"keep_days": 2})
    first = await agent.append("one")
    await drain(agent, first)
    await talk(agent, "/new two", "/new three", "/new", "/new", "/new four", "/new")

    assert await ended(agent, first) == ["four", "three"]
    names = [name async for name in agent.fleet.scripts.client.scan_iter(keys.archive("*") + "*")]
    assert len(names) == 3
    for name in names:
        ttl = await agent.fleet.scripts.client.pttl(name)
        assert 1.9 < ttl / 24 / 3600 / 1000 <= 2


@pytest.mark.parametrize(
    "sections", [{"sessions": {"keep_archived": 0}}, {"record": {"keep_days": 0}}]
)
async def test_the_archive_can_be_disabled(agent: Stack, sections: dict[str, Any]) -> None:
    first = await agent.append("one")
    await drain(agent, first)
    await talk(agent, "/new", "two")
    configure(agent, **sections)

    assert await talk(agent, "/new", "three") == [RESET, "heard three, knew -"]

    assert await ended(agent, first) == []
    assert "two" not in await recorded(agent, first)
    assert [
        name async for name in agent.fleet.scripts.client.scan_iter(keys.archive("*") + "*")
    ] == []


# -- while the session is busy --------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_messages_and_resets_are_answered_in_order(agent: Stack, mode: str) -> None:
    configure(agent, queue={"mode": mode})
    first, task = await busy(agent)
    two, new, three, reset, four = await append(
        agent, "two", "/new", "three", "/reset four", "five"
    )
    go(agent)
    await task

    replies = await answers(agent, two, new, three, reset)
    joined = {"heard wait, knew - & two"} if mode == "steer" else set()
    assert replies[0] in {"heard two, knew wait"} | joined
    assert replies[1:] == [RESET, "heard three, knew -", "heard four, knew -"]
    assert await answers(agent, four) == ["heard five, knew four"]
    expected = "interrupted" if mode == "interrupt" else "done"
    assert (await agent.outcome(first)).status == expected


async def test_a_reset_never_joins_a_running_turn_and_no_message_overtakes_it(
    agent: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.connection.LISTEN_S", 0.05)
    configure(agent, queue={"mode": "steer"})
    first, task = await busy(agent)
    command = await agent.append("/new three")
    four = await agent.append("four")
    await renewed(agent, first, times=5)  # each renewal reports the newest message
    go(agent)
    await task

    assert await answers(agent, first, command, four) == [
        "heard wait, knew -",
        "heard three, knew -",
        "heard four, knew three",
    ]


# -- crashes --------------------------------------------------------------------------------------


async def crash_in(stack: Stack, accepted: Accepted, *, reset: bool, phase: str = "") -> None:
    """Leave a session in the state of a worker that was killed in the turn of a reset."""
    async with dying(stack, accepted) as lease:
        if reset:
            await lease.reset(accepted.entry_id, "/new", keep_ms=60_000, keep=10)
        if phase:
            await lease.turns.note_phase(phase)


@pytest.mark.parametrize("reset", [False, True])
async def test_a_reset_ends_one_conversation_despite_a_crash(agent: Stack, reset: bool) -> None:
    await talk(agent, "one")
    command = await agent.append("/new")
    await crash_in(agent, command, reset=reset)

    await drain(agent, command)

    assert await answers(agent, command) == [RESET]
    assert await talk(agent, "two") == ["heard two, knew -"]
    lines: Any = await agent.fleet.scripts.client.lrange(keys.archive(command.session.sid), 0, -1)
    assert len(lines) == 1


async def test_a_retry_does_not_end_the_conversation_that_the_first_attempt_began(
    agent: Stack,
) -> None:
    await talk(agent, "one")
    command = await agent.append("/new two")
    async with dying(agent, command) as lease:
        await lease.reset(command.entry_id, "/new", keep_ms=60_000, keep=10)
        await lease.remember("main|demo|/elsewhere", Conversation("of-the-new-conversation"))
        await lease.remember(
            f"main|demo|{agent.home.path}/workspaces/main", Conversation("of-the-new-one-too")
        )
        await lease.turns.note_phase("output")

    await drain(agent, command)

    assert await answers(agent, command) == [f"{SECOND_TRY}\n\nheard two, knew -"]
    view = await agent.fleet.sessions.view(command.session.sid)
    assert view is not None
    assert set(view.session_ids.values()) == {"of-the-new-conversation", "of-the-new-one-too"}


async def test_a_message_that_joined_the_turn_of_a_reset_is_repeated_with_it(agent: Stack) -> None:
    """The repeated batch then has more entries than the command."""
    configure(agent, queue={"mode": "steer"})
    await talk(agent, "one")
    command, two = await append(agent, "/new wait", "two")
    async with dying(agent, command) as lease:
        await lease.reset(command.entry_id, "/new", keep_ms=60_000, keep=10)
        assert await lease.turns.join([two.entry_id])
    go(agent)

    await drain(agent, command)

    assert await answers(agent, command, two) == ["heard wait + two, knew -"] * 2


async def test_a_reset_that_kills_its_worker_becomes_a_dead_letter(agent: Stack) -> None:
    await talk(agent, "one")
    command = await agent.append("/new two")
    for _ in range(3):
        await crash_in(agent, command, reset=True, phase="output")

    await drain(agent, command)

    assert (await agent.outcome(command)).status == "dead"
    assert await talk(agent, "three") == ["heard three, knew -"]


# -- stock workers --------------------------------------------------------------------------------


async def test_a_reset_does_not_affect_another_session(stack: Stack) -> None:
    await stack.start_worker()
    await stack.start_worker()
    for user in ("alice", "bob"):
        await stack.ask("hello", from_=user)

    first, second = await asyncio.gather(
        stack.ask("/new memory", from_="alice"), stack.ask("memory", from_="bob")
    )

    assert first == "You said nothing before."
    assert "- hello" in second
