"""Messages that join a running turn: accepted, refused or too late, and after crashes."""

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.model import QueueConfig
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import Turn
from remoteclaw.session.queue import OpenTurn
from remoteclaw.session.steering import MAX_STEERED, Steering
from remoteclaw.session.waiting import decode_all
from tests.support.conversations import append, busy, drain, dying, go, renewed
from tests.support.processes import is_alive
from tests.support.stack import Stack, said
from tests.support.waiting import HANG_S, eventually


@pytest.fixture
async def agent(agent: Stack) -> Stack:
    """A stack whose queue mode is `steer`."""
    agent.configure(agent.agent, queue={"mode": "steer"})
    return agent


async def wait_for_live_text(stack: Stack, text: str) -> None:
    """Wait until the live text of a running turn contains `text`."""

    async def is_live() -> bool:
        client: Any = stack.fleet.scripts.client
        return any(
            [
                text.encode() in await client.get(key)
                async for key in client.scan_iter(keys.live("*"))
            ]
        )

    await eventually(is_live)


async def results(stack: Stack, *accepted: Accepted) -> list[tuple[str, str]]:
    """Return each message's status and its reply without the list of earlier messages."""
    outcomes = [await stack.outcome(each) for each in accepted]
    return [(each.status, re.sub(r", knew [^&]*(?= &|$)", "", said(each))) for each in outcomes]


async def test_a_message_joins_the_running_turn(agent: Stack) -> None:
    first, task = await busy(agent)
    second = await agent.append("two")
    await wait_for_live_text(agent, "& two")
    third = await agent.append("three")
    await wait_for_live_text(agent, "& three")
    go(agent)
    await task

    together = "heard wait & two & three"
    assert await results(agent, first, second, third) == [
        ("done", together),
        ("steered", together),
        ("steered", together),
    ]
    assert (await agent.outcome(third)).turn == first.entry_id
    replies = agent.fleet.replies.reader("test", "default", token="test").replies()
    reply = await anext(replies)
    assert reply.entries == (first.entry_id, second.entry_id, third.entry_id)
    await replies.aclose()


async def test_a_message_joins_the_turn_even_if_a_result_is_waiting(agent: Stack) -> None:
    """An entry that is not from a person waits for its own turn, and does not block others."""
    first, task = await busy(agent)
    result = await agent.write(first.session, "tick", "cron")
    second = await agent.append("two")
    await wait_for_live_text(agent, "two")
    go(agent)
    await task

    ticked = await agent.fleet.outcomes.read(first.session.sid, result)
    assert ticked is not None
    assert said(ticked).startswith("heard tick, ")
    assert (await agent.outcome(second)).status == "steered"


async def test_a_message_that_arrives_too_late_to_join_has_its_own_turn(agent: Stack) -> None:
    first, task = await busy(agent, "deaf")
    second = await agent.append("two")
    await agent.reached(second, "steered")
    go(agent)
    await task

    assert await results(agent, first, second) == [("done", "heard deaf"), ("done", "heard two")]
    outcome = await agent.outcome(second)
    assert outcome.turn == second.entry_id
    # The message was not in a failed turn, so no failure counts against it.
    assert "steered" not in [step.name for step in outcome.steps]


async def test_an_entry_that_only_a_newer_worker_can_read_is_not_overtaken(agent: Stack) -> None:
    first, task = await busy(agent)
    client = agent.fleet.scripts.client
    await client.xadd(keys.inbound(first.session.sid), {"entry": '{"v": 99}'})
    third = await agent.append("three")
    go(agent)
    await task

    assert await results(agent, first) == [("done", "heard wait")]
    outcome = await agent.fleet.outcomes.read(third.session.sid, third.entry_id)
    assert outcome is not None
    assert outcome.status == "accepted"


async def test_a_message_does_not_join_ahead_of_a_waiting_message(
    agent: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.connection.LISTEN_S", 0.05)
    first = await agent.append("wait")
    second = await agent.append("two")
    task = drain(agent, first)
    await agent.reached(first, "output")
    third = await agent.append("three")
    await renewed(agent, first, times=5)  # each renewal reports the newest message
    go(agent)
    await task

    assert await results(agent, first, second, third) == [
        ("done", "heard wait"),
        ("done", "heard two"),
        ("done", "heard three"),
    ]


async def test_a_stop_ends_the_turn_and_the_messages_that_joined_it(agent: Stack) -> None:
    first, task = await busy(agent)
    second = await agent.append("two")
    await wait_for_live_text(agent, "& two")
    await agent.fleet.sessions.stop(first.session.sid)
    third = await agent.append("three")
    await task

    statuses = [status for status, _ in await results(agent, first, second, third)]
    assert statuses == ["stopped", "stopped", "done"]


async def test_a_joined_message_that_kills_the_agent_fails_with_the_turn(agent: Stack) -> None:
    first, task = await busy(agent)
    second = await agent.append("die")
    third = await agent.append("three")
    await agent.outcome(first)
    go(agent)
    await task

    statuses = [status for status, _ in await results(agent, first, second, third)]
    assert statuses == ["failed", "failed", "done"]


# -- crashes --------------------------------------------------------------------------------------


async def crashed(stack: Stack, first: Accepted, *joined: Accepted, phase: str = "output") -> None:
    """Leave a session in the state of a worker that was killed in a turn with joined messages."""
    async with dying(stack, first) as lease:
        await lease.turns.note_phase(phase)
        assert await lease.turns.join([each.entry_id for each in joined])


async def owner(stack: Stack, accepted: Accepted) -> Lease:
    lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="dead", host="here")
    assert lease is not None
    return lease


async def expire(stack: Stack, accepted: Accepted) -> None:
    await stack.fleet.scripts.client.hset(keys.state(accepted.session.sid), "lease_until_ms", 1)


async def test_a_turn_is_repeated_with_its_joined_messages_after_a_crash(
    agent: Stack,
) -> None:
    one, two, three, four = await append(agent, "one", "two", "three", "four")
    await crashed(agent, one, two, three, phase="accepted")

    await drain(agent, one)

    together = ("done", "heard one + two + three")
    assert await results(agent, one, two, three, four) == [together] * 3 + [("done", "heard four")]


async def test_no_message_joins_a_turn_that_is_being_stopped(agent: Stack) -> None:
    """The message would be stopped with the turn, although it was sent after the stop."""
    one = await agent.append("one")
    lease = await owner(agent, one)
    await lease.turns.begin([one.entry_id])
    await agent.fleet.sessions.stop(lease.sid)
    two = await agent.append("two")

    assert not await lease.turns.join([two.entry_id])
    await expire(agent, one)
    await drain(agent, one)

    assert [status for status, _ in await results(agent, one, two)] == ["stopped", "done"]


async def test_no_message_joins_a_turn_whose_lease_is_lost(agent: Stack) -> None:
    one, two = await append(agent, "one", "two")
    lease = await owner(agent, one)
    await lease.turns.begin([one.entry_id])
    await expire(agent, one)
    await owner(agent, one)

    with pytest.raises(LeaseLost):
        await lease.turns.join([two.entry_id])


async def test_a_killed_worker_loses_no_message_of_a_steered_turn(agent: Stack) -> None:
    agent.configure(agent.agent, queue={"mode": "steer"}, lease_s=2)
    agent.reopen()
    worker = await agent.start_worker()
    first = await agent.append("wait")
    await agent.reached(first, "output")
    second = await agent.append("two")
    await wait_for_live_text(agent, "& two")
    for pid in (*horses(worker.pid), worker.pid):
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(worker.pid))
    go(agent)
    sweeping = asyncio.create_task(agent.fleet.sweeper.run())
    await agent.start_worker()

    (status, reply), other = await results(agent, first, second)
    sweeping.cancel()
    assert status == "done"
    assert reply.endswith("heard wait + two")
    assert other == (status, reply)


def horses(worker: int) -> list[int]:
    """Return the children of a worker."""
    return [int(pid) for pid in Path(f"/proc/{worker}/task/{worker}/children").read_text().split()]


async def test_only_failures_after_joining_count_against_a_joined_message(agent: Stack) -> None:
    """A message that joined the second attempt was in one failed attempt only."""
    one, two = await append(agent, "one", "two")
    lease = await owner(agent, one)
    await lease.turns.begin([one.entry_id])
    await expire(agent, one)
    await crashed(agent, one, two)

    lease = await owner(agent, one)
    first = await lease.turns.begin([one.entry_id, two.entry_id])
    assert first is not None
    assert (len(first.entries), first.failures) == (1, 2)
    await lease.turns.finish("done", reply=[])
    second = await lease.turns.begin([two.entry_id])

    assert second is not None
    assert second.failures == 1


async def test_the_number_of_messages_that_join_a_turn_is_limited(agent: Stack) -> None:
    first = await agent.append("one")
    many = await append(agent, *(f"m{number}" for number in range(MAX_STEERED + 5)))
    lease = await owner(agent, first)
    await lease.turns.begin([first.entry_id])
    answered, *_ = decode_all(await lease.entries_after("0-0"), lease.session)
    queue = QueueConfig(mode="steer")
    turn = OpenTurn(Turn(lease.session, (answered,)), queue, (), can_steer=True, can_aside=False)
    steering = Steering(lease, turn, first.entry_id)

    async def joined_ids() -> list[str]:
        joined = []
        async for entry in steering.entries():
            joined.append(entry.id)
            steering.announce()
        return joined

    ids = [each.entry_id for each in many]
    assert await asyncio.wait_for(joined_ids(), HANG_S) == ids[:MAX_STEERED]


async def test_messages_that_were_answered_before_a_failure_are_done(agent: Stack) -> None:
    one, two, three = await append(agent, "one", "two", "three")
    lease = await owner(agent, one)
    await lease.turns.begin([one.entry_id])
    ids = [two.entry_id, three.entry_id]
    await lease.turns.join(ids)

    error = {"category": "died", "detail": ""}
    answered = [one.entry_id, two.entry_id]
    await lease.turns.finish("failed", reply=[], error=error, taken_up=ids, answered=answered)

    outcomes = [await agent.outcome(each) for each in (one, two, three)]
    assert [outcome.status for outcome in outcomes] == ["done", "steered", "failed"]
    assert [outcome.error for outcome in outcomes] == [None, None, error]
