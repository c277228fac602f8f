"""Redis' clock is set, or Redis loses its last second: leases, the sweeper and claims."""

from typing import Any

import pytest

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.inbound import GRACE_MS
from tests.support.leases import accept, acquire, begun, let_pass, postpone

HOUR_MS = 3_600_000


async def lose_all_since(fleet: Fleet, sid: str, state: Any) -> None:
    """Have a session's state be as it was, as after a restart without the last writes."""
    await fleet.scripts.client.delete(keys.state(sid))
    await fleet.scripts.client.hset(keys.state(sid), mapping=state)


# -- a lost second --------------------------------------------------------------------------------


async def test_a_lost_lease_is_noticed_and_the_next_attempt_hears_of_it(fleet: Fleet) -> None:
    accepted = await accept(fleet)
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


# -- a clock that is set back ---------------------------------------------------------------------


async def test_a_clock_that_is_set_back_makes_no_lease_longer(fleet: Fleet) -> None:
    dead, alive = await accept(fleet), await accept(fleet, from_="bob")
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
    lease, _ = await begun(fleet)
    until_ms = await postpone(fleet, lease, 2 * HOUR_MS)
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
