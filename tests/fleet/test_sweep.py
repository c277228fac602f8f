"""The sweeper, and the leases of dead workers."""

import math

import pytest

from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.turns.inbound import GRACE_MS
from tests.support.leases import accept, acquire, hints, idle, let_pass

# -- the sweeper -----------------------------------------------------------------------------------


async def test_the_sweeper_hints_a_session_whose_hint_was_lost(fleet: Fleet) -> None:
    await accept(fleet)
    await fleet.scripts.client.delete("rq:queue:agents")
    assert await fleet.sweeper.sweep() == 0  # the hint may still be on its way

    await let_pass(fleet, GRACE_MS + 1)

    assert await fleet.sweeper.sweep() == 1
    assert await hints(fleet) == 1


async def test_the_sweeper_adds_no_hint_to_a_queue_that_has_one(fleet: Fleet) -> None:
    await accept(fleet)
    await let_pass(fleet, GRACE_MS + 1)

    assert await fleet.sweeper.sweep() == 0
    assert await hints(fleet) == 1


async def test_the_sweeper_hints_a_session_whose_worker_is_gone(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    await acquire(fleet, accepted)
    await let_pass(fleet, 29_000)
    assert await fleet.sweeper.sweep() == 0

    await let_pass(fleet, 1_000 + GRACE_MS)

    assert await fleet.sweeper.sweep() == 1


async def test_the_sweeper_waits_longer_before_each_further_hint(fleet: Fleet) -> None:
    await accept(fleet)
    hinted = []
    for _ in range(4):
        await fleet.scripts.client.delete("rq:queue:agents")
        await let_pass(fleet, GRACE_MS + 1)
        hinted.append(await fleet.sweeper.sweep())

    assert hinted == [1, 1, 0, 1]


async def test_a_session_that_waits_for_half_a_minute_is_logged_once(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    accepted = await accept(fleet)
    for checks in range(6):
        await let_pass(fleet, GRACE_MS * 2**checks + 1)
        await fleet.sweeper.sweep()

    sid = accepted.session.sid[:8]
    assert caplog.messages == [f"session {sid}: waits for a worker of agents, for 32 s"]


async def test_a_session_without_a_host_does_not_wait_for_all_sessions_of_the_hosts(
    fleet: Fleet,
) -> None:
    """Workers serve their host's queue first, which is never empty under steady load."""
    client = fleet.scripts.client
    await accept(fleet)
    for host, length in (("busy", 3), ("quiet", 1), ("gone", 0)):
        queue = keys.lane_on("agents", host)
        await client.sadd(keys.RQ_QUEUES, keys.rq_queue(queue))
        if host != "gone":
            await client.set(keys.host(queue), "")
        if length:
            await client.rpush(keys.rq_queue(queue), *["another's"] * length)
    swept = []
    for _ in range(2):
        await let_pass(fleet, 2 * GRACE_MS + 1)
        swept.append(await fleet.sweeper.sweep())

    assert swept == [0, 1]
    assert await client.llen(keys.rq_queue("agents@quiet")) == 2


async def test_a_lost_hint_is_repeated_even_if_the_queue_is_never_empty(fleet: Fleet) -> None:
    """It isn't repeated soon, or a long queue would grow; other hints don't delay it forever."""
    await accept(fleet, from_="alice")
    await fleet.scripts.client.delete("rq:queue:agents")
    await accept(fleet, from_="bob")

    sweeps = 0
    while not await fleet.sweeper.sweep():
        await let_pass(fleet, 61_000)
        sweeps += 1

    assert 3 < sweeps < 10


# -- dead workers ----------------------------------------------------------------------------------


async def test_a_dead_workers_lease_ends_at_once(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    assert await fleet.leases.acquire(accepted.session.sid, worker="here pid 1", host="here")
    checked: list[str] = []

    def is_alive(name: str) -> bool:
        checked.append(name)
        return True

    assert await fleet.sweeper.release_dead("elsewhere", lambda _: False) == 0
    assert await fleet.sweeper.release_dead("here", is_alive) == 0
    assert await fleet.leases.acquire(accepted.session.sid, worker="other", host="here") is None
    assert await fleet.sweeper.release_dead("here", lambda _: False) == 1

    assert checked == ["pid 1"]
    assert await fleet.leases.acquire(accepted.session.sid, worker="other", host="here")


async def test_ending_a_lease_does_not_end_its_successor(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    old = await acquire(fleet, accepted)
    await let_pass(fleet, 31_000)
    await acquire(fleet, accepted)

    ended = await fleet.scripts.run(
        "expire",
        sid=old.sid,
        epoch=old.epoch,
        is_deliberate=False,
        deadline=math.inf,
    )

    assert ended == 0
    assert await fleet.leases.acquire(accepted.session.sid, worker="other", host="here") is None


async def test_a_leftover_hint_takes_no_session_from_its_host(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)  # by the host "here"
    await lease.turns.begin([accepted.entry_id])
    await lease.turns.finish("done", reply=[])
    await lease.close()
    await fleet.scripts.client.set(keys.host("agents@here"), 1)
    await accept(fleet, "again")

    sid = accepted.session.sid
    assert await fleet.leases.acquire(sid, worker="test", host="elsewhere") is None
    assert await fleet.leases.acquire(sid, worker="test", host="here")


async def test_a_session_whose_host_stays_busy_moves_to_another_host(fleet: Fleet) -> None:
    lease, accepted = await idle(fleet)
    await lease.close()
    await fleet.scripts.client.set(keys.host("agents@here"), 1)
    await accept(fleet, "again")
    sid = accepted.session.sid

    for _ in range(8):
        await let_pass(fleet, 61_000)
        await fleet.sweeper.sweep()

    assert await fleet.leases.acquire(sid, worker="test", host="elsewhere")


async def test_a_session_moves_as_soon_as_its_host_counts_as_gone(fleet: Fleet) -> None:
    """And not at the next of its checks, which can be half a minute later."""
    lease, _ = await idle(fleet)
    await lease.close()
    client, here = fleet.scripts.client, keys.host("agents@here")
    await client.set(here, 1)
    await accept(fleet, "again")
    await let_pass(fleet, 2001)
    await fleet.sweeper.sweep()
    await client.pexpire(here, 3000)  # it has missed two beats
    await let_pass(fleet, 2001)
    await fleet.sweeper.sweep()
    await client.delete(here)

    await let_pass(fleet, 3002)

    assert await fleet.sweeper.sweep() == 1


async def test_a_session_that_no_worker_serves_does_not_fill_the_queue(fleet: Fleet) -> None:
    await accept(fleet)

    for _ in range(100):
        await let_pass(fleet, 61_000)
        await fleet.sweeper.sweep()

    assert await hints(fleet) < 15
