"""The lease of a terminal: only its holder has it, for as long as the holder lives."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from remoteclaw.clock import boottime
from remoteclaw.errors import CallRefused, LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.terminals.state import HeldLease, TerminalTurn
from remoteclaw.fleet.terminals.terminals import TerminalEnding
from remoteclaw.fleet.turns.inbound import GRACE_MS, Accepted
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import SessionKey
from tests.support.leases import accept, acquire, let_pass, opened
from tests.support.stack import message
from tests.support.terminals import place_of

HOLD_S = 600.0
SESSION = SessionKey.of(message("hello"), agent="main")


async def held(fleet: Fleet) -> tuple[Lease, HeldLease]:
    """Open a terminal and give its lease to a holder."""
    accepted = await opened(fleet)
    lease = await acquire(fleet, accepted)
    assert await lease.turns.begin([accepted.entry_id])
    own = TerminalTurn(lease)
    await own.place(place_of(accepted.entry_id))
    await own.hold(place_of(accepted.entry_id), "1 2 3", hold_s=HOLD_S)
    (found,) = await fleet.terminals.held("here")
    return lease, found


async def renew(lease: Lease, *, lease_ms: int = 30_000) -> None:
    await lease.run_fenced("renew", lease_ms=lease_ms, grace_ms=GRACE_MS)


async def test_a_late_renewal_of_the_worker_is_refused_and_changes_nothing(fleet: Fleet) -> None:
    lease, found = await held(fleet)

    with pytest.raises(LeaseLost):
        await renew(lease)
    with pytest.raises(LeaseLost):
        await lease.turns.finish("done", reply=[])

    await let_pass(fleet, 60_000)
    await fleet.sweeper.sweep()
    assert await fleet.leases.acquire(lease.sid, worker="other", host="here") is None
    assert (await fleet.terminals.renew(found, hold_s=HOLD_S)).newest == found.place.turn


async def test_a_terminal_lease_that_redis_lost_is_restored_with_the_same_epoch(
    fleet: Fleet,
) -> None:
    """The terminal's holder can continue; the record of where it runs is written again, too."""
    accepted = await opened(fleet)
    lease = await acquire(fleet, accepted)
    assert await lease.turns.begin([accepted.entry_id])
    own, client = TerminalTurn(lease), fleet.scripts.client
    before = await client.dump(keys.state(lease.sid))
    await own.place(place_of(accepted.entry_id))
    await own.hold(place_of(accepted.entry_id), "1 2 3", hold_s=HOLD_S)
    (found,) = await fleet.terminals.held("here")
    assert before is not None

    await client.restore(keys.state(lease.sid), 0, before, replace=True)
    with pytest.raises(LeaseLost):
        await fleet.terminals.renew(found, hold_s=HOLD_S)
    await own.hold(place_of(accepted.entry_id), "1 2 3", hold_s=HOLD_S)

    assert await fleet.terminals.held("here") == [found]
    assert (await fleet.terminals.renew(found, hold_s=HOLD_S)).newest == found.place.turn


async def test_a_terminal_lease_can_be_taken_over_only_after_it_expires(fleet: Fleet) -> None:
    lease, found = await held(fleet)
    with pytest.raises(LeaseLost):  # of an earlier terminal whose gateway was slow
        await fleet.terminals.renew(replace(found, epoch=f"{int(found.epoch) - 1}"), hold_s=HOLD_S)
    await let_pass(fleet, 500_000)
    await fleet.terminals.renew(found, hold_s=HOLD_S)
    await let_pass(fleet, 500_000)
    assert await fleet.leases.acquire(lease.sid, worker="other", host="here") is None

    await let_pass(fleet, 110_000)
    after = await fleet.leases.acquire(lease.sid, worker="other", host="here")

    assert after is not None
    assert after.state.held == "here 1 2 3"
    for epoch in (found.epoch, after.epoch):  # the new owner settles the terminal, and is no holder
        with pytest.raises(LeaseLost):
            await fleet.terminals.renew(replace(found, epoch=epoch), hold_s=HOLD_S)
    assert await fleet.terminals.held("here") == []


async def test_a_dead_holder_loses_its_terminal_lease_for_good(fleet: Fleet) -> None:
    lease, found = await held(fleet)

    assert await fleet.sweeper.release_dead("here", lambda _label: False) == 1

    with pytest.raises(LeaseLost):
        await fleet.terminals.renew(found, hold_s=HOLD_S)
    assert await fleet.terminals.held("here") == []
    assert await fleet.leases.acquire(lease.sid, worker="other", host="here") is not None


async def test_leftovers_of_a_dead_holder_end_before_its_session_is_free(
    fleet: Fleet,
) -> None:
    lease, _ = await held(fleet)
    loop, leases = asyncio.get_running_loop(), []

    def end_left() -> None:
        taking = fleet.leases.acquire(lease.sid, worker="other", host="here")
        leases.append(asyncio.run_coroutine_threadsafe(taking, loop).result())

    assert await fleet.sweeper.release_dead("here", lambda _: False, end_left=end_left) == 1

    assert leases == [None]
    assert await fleet.leases.acquire(lease.sid, worker="other", host="here") is not None


async def test_an_ended_terminal_is_taken_over_on_its_own_host(fleet: Fleet) -> None:
    """Its transcript is in files of its host, which comes first while it has workers."""
    lease, _ = await held(fleet)
    await fleet.sweeper.release_dead("here", lambda _label: False)
    await fleet.scripts.client.set(keys.host("agents@here"), 1)

    assert await fleet.leases.acquire(lease.sid, worker="far", host="far") is None

    await fleet.scripts.client.delete(keys.host("agents@here"))
    assert await fleet.leases.acquire(lease.sid, worker="far", host="far") is not None


async def test_a_session_has_one_terminal_until_its_turn_is_over(fleet: Fleet) -> None:
    lease, found = await held(fleet)
    assert (await opened(fleet, call="2")).entry_id == found.place.turn
    await fleet.sweeper.release_dead("here", lambda _label: False)
    with pytest.raises(TerminalEnding):
        await opened(fleet, call="3")
    after = await acquire(fleet, Accepted(SESSION, found.place.turn, is_duplicate=False))
    await after.turns.begin([found.place.turn])
    assert after.state.terminal is not None
    with pytest.raises(TerminalEnding):
        await opened(fleet, call="3")

    await after.turns.finish("done", reply=[])

    view = await fleet.sessions.view(lease.sid)
    assert view is not None
    assert (view.terminal, view.held, view.terminal_entry) == (None, None, None)
    accepted = await opened(fleet, call="3")
    assert not accepted.is_duplicate
    assert accepted.entry_id != found.place.turn


async def test_messages_wait_in_order_until_the_terminal_has_ended(fleet: Fleet) -> None:
    lease, found = await held(fleet)

    first, second = await accept(fleet, "one", id="a"), await accept(fleet, "two", id="b")

    renewed = await fleet.terminals.renew(found, hold_s=HOLD_S)
    assert renewed.newest_message == renewed.newest == second.entry_id
    assert await fleet.leases.acquire(lease.sid, worker="other", host="here") is None
    entries: Any = await fleet.scripts.client.xrange(keys.inbound(lease.sid))
    assert [each.decode() for each, _ in entries] == [
        found.place.turn,
        first.entry_id,
        second.entry_id,
    ]


async def test_thirteen_openings_of_nine_conversations_are_nine_terminals(fleet: Fleet) -> None:
    limits: Any = {"max": 64, "max_per_person": 64, "opens_per_minute": 600}
    found = [
        await opened(fleet, call=str(number), by=f"p{number}", of=f"u{number % 9}", **limits)
        for number in range(13)
    ]

    assert sum(not each.is_duplicate for each in found) == 9
    assert len(await fleet.terminals.recent()) == 9


async def test_too_many_or_too_frequent_terminals_are_refused(fleet: Fleet) -> None:
    for number in range(2):
        await opened(fleet, call=str(number), of=f"u{number}")
    with pytest.raises(CallRefused, match="2 open terminals, the limit") as person:
        await opened(fleet, call="3", of="u3", max_per_person=2)
    with pytest.raises(CallRefused, match="This host has 2 open terminals") as host:
        await opened(fleet, call="3", of="u3", by="Bob", max=2)
    await opened(fleet, call="3", of="u3")

    with pytest.raises(CallRefused, match="opened at once") as often:
        await opened(fleet, call="4", of="u4", max_per_person=64)

    assert {each.value.code for each in (person, host, often)} == {"TOO_MANY"}
    assert often.value.retry_after_s is not None
    assert 0 < often.value.retry_after_s <= 10
    await let_pass(fleet, 10_000)
    await opened(fleet, call="4", of="u4", max_per_person=64)


async def test_a_terminals_state_change_is_fenced_and_published_once(fleet: Fleet) -> None:
    lease, found = await held(fleet)
    event = {"type": "state", "state": "live"}

    async def change(epoch: str) -> bool:
        return await fleet.terminals.change(
            lease.sid, epoch, event=event, state="live", title='T"it', viewers=2
        )

    with pytest.raises(LeaseLost):
        await change(lease.epoch)
    assert await change(found.epoch)
    assert not await change(found.epoch)

    record = await fleet.terminals.record(lease.sid)
    assert record is not None
    assert (record.state, record.title, record.viewers) == ("live", 'T"it', 2)
    assert [each.data for each in await fleet.terminals.events(lease.sid)] == [event]


async def test_a_stop_reaches_the_holder_of_the_terminal(fleet: Fleet) -> None:
    lease, found = await held(fleet)

    await fleet.sessions.stop(lease.sid)

    renewed = await fleet.terminals.renew(found, hold_s=HOLD_S)
    assert renewed.stop == found.place.turn
    (stopped,) = await fleet.terminals.held("here")
    assert stopped.stop_entry == found.place.turn
    with pytest.raises(TerminalEnding, match="open it again in a moment"):
        await opened(fleet, call="2")
    assert boottime() >= renewed.sent_at
