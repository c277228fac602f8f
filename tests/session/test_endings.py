"""The end of a conversation while tasks, retries or other entries are unfinished in its session."""

from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Batch
from remoteclaw.messages import SessionKey
from remoteclaw.session.notices import RESET
from tests.support.conversations import (
    IDLE_2_H,
    answered,
    answers,
    append,
    busy,
    configure,
    drain,
    go,
    passed,
    talk,
)
from tests.support.leases import started_task
from tests.support.stack import Stack, message, said


async def take_over(stack: Stack, accepted: Accepted) -> Lease:
    """Let the lease of a session expire, and acquire it."""
    await stack.fleet.scripts.client.hset(keys.state(accepted.session.sid), "lease_until_ms", 1)
    lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="x", host="here")
    assert lease is not None
    return lease


async def begin(lease: Lease, *accepted: Accepted) -> Batch:
    batch = await lease.turns.begin([each.entry_id for each in accepted])
    assert batch is not None
    return batch


async def start_task(
    stack: Stack, parent: SessionKey, call: str, lease: Lease | None = None
) -> tuple[SessionKey, str]:
    """Start a task of a session, as its agent if `lease` is given; return its session and entry."""
    caller = None
    if lease:
        await lease.grant(call[0] * 64, ["sessions_spawn"])
        caller = await stack.fleet.calls.caller(parent.sid)
    task = message("a secret plan")
    return await started_task(stack.fleet, parent, task, call=call, caller=caller)


async def test_results_that_wait_at_the_end_of_a_conversation_do_not_reach_the_next_one(
    agent: Stack,
) -> None:
    configure(agent, queue={"mode": "collect"})
    first, task = await busy(agent)
    child, _ = await start_task(agent, first.session, "c1")
    (command,) = await append(agent, "/new")
    await drain(agent, Accepted(child, "", False))
    view = await agent.fleet.sessions.view(first.session.sid)
    assert view is not None
    result = Accepted(first.session, str(view.last_entry), False)
    go(agent)
    await task

    assert await answers(agent, command) == [RESET]
    assert (await agent.outcome(result)).status == "stopped"
    assert await agent.fleet.sessions.children(first.session.sid) == []


async def test_a_new_conversation_does_not_reuse_tasks_of_messages_that_were_tried_alone(
    agent: Stack,
) -> None:
    a, b, c = await append(agent, "a", "b", "/new go")
    for _ in range(2):
        await begin(await take_over(agent, a), a, b)
    lease = await take_over(agent, a)
    assert len((await begin(lease, a, b)).entries) == 1
    first = await start_task(agent, a.session, "1", lease)
    child = await agent.fleet.leases.acquire(first[0].sid, worker="x", host="here")
    assert child is not None
    await child.turns.begin([first[1]])
    await child.turns.finish("done", reply=[])
    await lease.turns.finish("done", reply=[])
    await begin(lease, b)
    await lease.turns.finish("done", reply=[])
    await begin(lease, c)

    assert (await start_task(agent, a.session, "2", lease))[0] != first[0]


async def test_forgetting_removes_archives_that_have_an_earlier_longer_retention(
    agent: Stack,
) -> None:
    (a,) = await append(agent, "a")
    client, lease = agent.fleet.scripts.client, await take_over(agent, a)
    for keep_ms in (365 * 86_400_000, 60_000):
        (each,) = await append(agent, "words")
        await client.set(keys.record(lease.sid), "words")
        await begin(lease, each)
        await lease.reset(each.entry_id, "/new", keep_ms=keep_ms, keep=10)
        await lease.turns.finish("done", reply=[])

    assert await client.pttl(keys.archive(lease.sid)) > 60_000
    await agent.fleet.records.forget(lease.sid)
    assert await client.keys(keys.archive("*") + "*") == []


async def test_a_message_that_joined_a_turn_does_not_end_the_conversation_on_a_retry(
    agent: Stack,
) -> None:
    configure(agent, queue={"mode": "steer"}, **IDLE_2_H)
    first = await answered(agent, "one")
    await passed(agent, first, 3)
    tick = await agent.write(first.session, "tick", "cron", deliver="channel")
    lease = await take_over(agent, first)
    await begin(lease, Accepted(first.session, tick, False))
    (joined,) = await append(agent, "joined")
    assert await lease.turns.join([joined.entry_id])
    await lease.turns.note_phase("output")
    await agent.fleet.scripts.client.hset(keys.state(lease.sid), "lease_until_ms", 1)
    await drain(agent, joined)

    assert "knew one" in (await answers(agent, joined))[0]


@pytest.mark.parametrize(
    "sections", [IDLE_2_H, {"sessions": {"reset": {"daily": "04:00", "timezone": "UTC"}}}]
)
async def test_a_clock_that_was_ahead_ends_one_conversation_at_most(
    agent: Stack, sections: dict[str, Any]
) -> None:
    """After the clock is corrected, the ids of new entries keep its wrong time for a day."""
    configure(agent, **sections)
    first = await answered(agent, "one")
    client, name = agent.fleet.scripts.client, keys.inbound(first.session.sid)
    ahead = int(first.entry_id.partition("-")[0]) + 26 * 3600_000
    await client.xadd(name, {"entry": "x"}, id=f"{ahead}-0")
    await client.xdel(name, f"{ahead}-0")
    replies = await talk(agent, "two", "three", "four")

    assert sum("new conversation" in reply for reply in replies) <= 1
    assert replies[-1].endswith("knew two + three")


async def test_an_entry_that_was_never_begun_is_not_a_second_try(agent: Stack) -> None:
    """The entry arrived between two messages that were tried together and failed twice."""
    configure(agent, queue={"mode": "steer"})
    await talk(agent, "one")
    first = await agent.append("p1")
    lease = await take_over(agent, first)
    await begin(lease, first)
    tick = await agent.write(first.session, "tick", "cron", deliver="channel")
    (second,) = await append(agent, "p2")
    assert await lease.turns.join([second.entry_id])
    await begin(await take_over(agent, first), first)
    await agent.fleet.scripts.client.hset(keys.state(lease.sid), "lease_until_ms", 1)
    await drain(agent, first)

    ticked = await agent.fleet.outcomes.read(first.session.sid, tick)
    assert ticked is not None
    assert "interrupted" not in said(ticked)
