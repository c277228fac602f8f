"""A turn's writes: its batch, its messages and its outcome."""

import asyncio

import fakeredis
import pytest

from remoteclaw.fleet import Fleet, keys
from tests.support.leases import accept, acquire, begun, let_pass
from tests.support.stack import REPLIES
from tests.support.waiting import HANG_S


async def test_an_unfinished_batch_is_repeated_exactly(fleet: Fleet) -> None:
    accepted = await accept(fleet, "one")
    other = await accept(fleet, "two")
    lease = await acquire(fleet, accepted)
    await lease.turns.begin([accepted.entry_id])
    await lease.turns.note_phase("tool", "Bash")
    await let_pass(fleet, 31_000)

    lease = await acquire(fleet, accepted)
    batch = await lease.turns.begin([accepted.entry_id, other.entry_id])

    assert batch is not None
    assert [entry.id for entry in batch.entries] == [accepted.entry_id]
    assert (batch.attempt, batch.furthest_phase_before) == (2, "tool")


async def test_begin_forgets_a_batch_whose_entries_are_gone(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    await fleet.scripts.client.delete(keys.inbound(accepted.session.sid))

    assert await lease.turns.begin([accepted.entry_id]) is None
    assert await lease.close()


async def test_a_message_of_a_turn_is_published_once(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)

    await lease.turns.publish(0, {"text": "a"})
    await lease.turns.publish(0, {"text": "a"})
    await lease.turns.publish(1, {"text": "b"})

    assert await fleet.scripts.client.xlen(REPLIES) == 2


async def test_finish_is_atomic_and_counts_once(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    batch = await lease.turns.begin([accepted.entry_id])

    await lease.turns.finish("done", reply=[{"text": "hi"}], payloads=[{"text": "hi"}])
    lease.turns._batch = batch  # the reply was lost: the caller repeats it
    await lease.turns.finish("failed", reply=[{"text": "no"}], payloads=[{"text": "no"}])

    outcome = await fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
    assert outcome is not None
    assert (outcome.status, outcome.reply) == ("done", ({"text": "hi"},))
    assert await fleet.scripts.client.xlen(REPLIES) == 1
    assert await fleet.scripts.client.xlen(keys.inbound(accepted.session.sid)) == 0


async def test_an_outcome_is_kept_for_seven_days(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    key = keys.outcome(accepted.session.sid, accepted.entry_id)
    assert await fleet.scripts.client.pttl(key) == -1
    lease = await acquire(fleet, accepted)
    await lease.turns.begin([accepted.entry_id])

    await lease.turns.finish("done", reply=[])

    days = await fleet.scripts.client.pttl(key) / (24 * 3600 * 1000)
    assert 6.99 < days <= 7


async def test_waiting_for_an_outcome_ends_with_it(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(
            fleet.outcomes.wait(accepted.session.sid, accepted.entry_id, timeout_s=HANG_S)
        )
        await lease.turns.finish("done", reply=[{"text": "hi"}])

    outcome = waiting.result()
    assert outcome is not None
    assert outcome.status == "done"


async def test_waiting_for_an_outcome_times_out(fleet: Fleet) -> None:
    if isinstance(fleet.scripts.client, fakeredis.FakeAsyncRedis):
        pytest.skip("its subscriptions now and then swallow a cancellation")
    accepted = await accept(fleet)

    assert (
        await fleet.outcomes.wait(accepted.session.sid, accepted.entry_id, timeout_s=0.01) is None
    )
