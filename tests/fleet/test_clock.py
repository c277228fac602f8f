"""Redis' clock is set, or Redis loses its last second: leases, the sweeper and claims."""

from typing import Any

import pytest

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.inbound import GRACE_MS, Accepted
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.turn import Postponement
from tests.support.stack import message

HOUR_MS = 3_600_000


async def append(fleet: Fleet, **fields: object) -> Accepted:
    return await fleet.inbound.append(message("hello", **fields), agent="main")


async def acquire(fleet: Fleet, accepted: Accepted) -> Lease:
    lease = await fleet.leases.acquire(accepted.session.sid, worker="test", host="here")
    assert lease is not None
    return lease


async def let_pass(fleet: Fleet, milliseconds: int) -> None:
    """Move the clock that the scripts see."""
    await fleet.scripts.client.incrby("test:shift", milliseconds)


async def lose_all_since(fleet: Fleet, sid: str, state: Any) -> None:
    """Have a session's state be as it was, as after a restart without the last writes."""
    await fleet.scripts.client.delete(keys.state(sid))
    await fleet.scripts.client.hset(keys.state(sid), mapping=state)


# -- a lost second --------------------------------------------------------------------------------


async def test_a_lost_lease_is_noticed_and_the_next_attempt_hears_of_it(fleet: Fleet) -> None:
    accepted = await append(fleet)
    state = await fleet.scripts.client.hgetall(keys.state(accepted.session.sid))
    lost = await acquire(fleet, accepted)
    await lost.turns.begin([accepted.entry_id])
    await lose_all_since(fleet, lost.sid, state)

    with pytest.raises(LeaseLost):
        await lost._renew()

    lease = await acquire(fleet, accepted)
    batch = await lease.turns.begin([accepted.entry_id])
    assert batch is not None
    assert (batch.attempt, batch.furthest_phase_before) == (1, "spawned")


async def test_an_epoch_that_was_lost_is_not_given_out_again(fleet: Fleet) -> None:
    """Not even by a clock that is behind, which has no newer number to give."""
    accepted = await append(fleet)
    await (await acquire(fleet, accepted)).release()
    await let_pass(fleet, -HOUR_MS)
    state = await fleet.scripts.client.hgetall(keys.state(accepted.session.sid))
    lost = await acquire(fleet, accepted)
    await lose_all_since(fleet, lost.sid, state)

    lease = await acquire(fleet, accepted)

    assert int(lease.epoch) > int(state[b"epoch"])
    with pytest.raises(LeaseLost):
        await lost._renew()


# -- a clock that is set back ---------------------------------------------------------------------


async def test_a_clock_that_is_set_back_makes_no_lease_longer(fleet: Fleet) -> None:
    dead, alive = await append(fleet), await append(fleet, from_="bob")
    await acquire(fleet, dead)
    living = await acquire(fleet, alive)
    await fleet.sweeper.sweep()
    await let_pass(fleet, -HOUR_MS)

    assert await fleet.sweeper.sweep() == 0
    await let_pass(fleet, 20_000)
    await living._renew()
    assert await fleet.leases.acquire(dead.session.sid, worker="next", host="here") is None
    await let_pass(fleet, 10_000 + GRACE_MS)

    assert await fleet.sweeper.sweep() == 1
    await acquire(fleet, dead)
    assert await fleet.leases.acquire(living.sid, worker="next", host="here") is None


async def test_it_leaves_alone_what_is_postponed(fleet: Fleet) -> None:
    """A plan's limit ends by the clock on the wall."""
    accepted = await append(fleet)
    lease = await acquire(fleet, accepted)
    await lease.turns.begin([accepted.entry_id])
    seconds, _ = await fleet.scripts.client.time()
    until_ms = seconds * 1000 + 2 * HOUR_MS
    what = Postponement(until_ms, why="usage_limit", tries=1, told="", detail="")
    await lease.turns.postpone(what, newest=accepted.entry_id)
    await let_pass(fleet, -HOUR_MS)

    assert await fleet.sweeper.sweep() == 0

    assert await fleet.scripts.client.zscore(keys.ACTIVE, lease.sid) == until_ms


async def test_it_makes_no_claim_of_an_adapter_longer(fleet: Fleet) -> None:
    first, second = (fleet.replies.reader("test", "default") for _ in range(2))
    claim = keys.reader("test", "default")
    assert await first.claim()
    await fleet.scripts.client.pexpire(claim, HOUR_MS)

    assert not await second.claim()

    assert await fleet.scripts.client.pttl(claim) <= 10_000
