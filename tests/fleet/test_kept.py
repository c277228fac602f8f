"""The kept batch: a postponed turn waits behind a terminal that opens meanwhile."""

import pytest

from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.terminals.state import HeldLease, TerminalTurn
from remoteclaw.fleet.turns.edits import content_digest
from remoteclaw.fleet.turns.inbound import Accepted, Known
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Batch
from tests.support.leases import accept, acquire, begun, hints, let_pass, opened, postpone
from tests.support.stack import message
from tests.support.terminals import place_of

HOUR_MS = 3_600_000
HOLD_S = 600.0


async def kept(fleet: Fleet) -> tuple[Accepted, Accepted, Accepted]:
    """Postpone a message for an hour, append another one, and open a terminal."""
    lease, first = await begun(fleet)
    await postpone(fleet, lease, HOUR_MS, usage=Usage(input_tokens=7))
    second = await accept(fleet, "second", id="2")
    await fleet.scripts.client.delete("rq:queue:agents")
    return first, second, await opened(fleet)


async def begin(lease: Lease) -> Batch | None:
    """Begin the next batch as a drain does: with the oldest entry."""
    ((oldest, _), *_) = await lease.entries()
    return await lease.turns.begin([oldest.decode()])


async def hold(fleet: Fleet, terminal: Accepted) -> HeldLease:
    """Begin a terminal's turn, and give the lease to its holder."""
    lease = await acquire(fleet, terminal)
    assert ids_of(await begin(lease)) == [terminal.entry_id]
    own = TerminalTurn(lease)
    await own.place(place_of(terminal.entry_id))
    await own.hold(place_of(terminal.entry_id), "1 2 3", hold_s=HOLD_S)
    (held,) = await fleet.terminals.held("here")
    return held


async def settle(fleet: Fleet, held: HeldLease) -> Lease:
    """End a terminal's turn, and return the lease of the worker that has settled it."""
    await fleet.sweeper.release_dead("here", lambda _label: False)
    lease = await acquire(fleet, Accepted(held.session, held.place.turn, False))
    batch = await begin(lease)
    assert ids_of(batch) == [held.place.turn]
    await lease.turns.finish("done", reply=[])
    return lease


def ids_of(batch: Batch | None) -> list[str]:
    assert batch is not None
    return [entry.id for entry in batch.entries]


async def view_of(fleet: Fleet, accepted: Accepted) -> SessionView:
    view = await fleet.sessions.view(accepted.session.sid)
    assert view is not None
    return view


async def test_a_terminal_opens_at_once_in_a_postponed_session(fleet: Fleet) -> None:
    first, _, terminal = await kept(fleet)

    assert await hints(fleet) == 1
    held = await hold(fleet, terminal)

    assert held.place.turn == terminal.entry_id
    view = await view_of(fleet, first)
    assert (view.turn, view.waiting, view.kept_size) == (terminal.entry_id, 3, 1)
    assert view.postponed == "retryable"
    assert view.postponed_until_ms


async def test_a_kept_turn_waits_for_its_time_and_comes_before_newer_messages(fleet: Fleet) -> None:
    first, second, terminal = await kept(fleet)
    until_ms = (await view_of(fleet, first)).postponed_until_ms
    lease = await settle(fleet, await hold(fleet, terminal))

    assert await begin(lease) is None
    assert await begin(lease) is None, "a repeated call begins nothing"

    view = await view_of(fleet, first)
    assert (view.status, view.postponed_until_ms, view.kept_size) == ("scheduled", until_ms, 0)
    assert await fleet.leases.acquire(lease.sid, worker="test", host="here") is None
    await let_pass(fleet, HOUR_MS + 1000)
    lease = await acquire(fleet, first)
    batch = await begin(lease)
    assert batch is not None
    assert ids_of(batch) == [first.entry_id]
    assert (batch.attempt, batch.failures, batch.tries) == (2, 0, 1)
    assert (batch.last_notice, batch.is_resumed) == ("retryable", True)
    assert batch.furthest_phase_before == "postponed"
    assert batch.spent == Usage(input_tokens=7)
    await lease.turns.finish("done", reply=[])
    assert ids_of(await begin(lease)) == [second.entry_id]


async def test_a_kept_turn_begins_at_once_if_its_time_came_during_the_terminal(
    fleet: Fleet,
) -> None:
    first, _, terminal = await kept(fleet)
    held = await hold(fleet, terminal)
    await let_pass(fleet, HOUR_MS + 1000)

    lease = await settle(fleet, held)

    assert ids_of(await begin(lease)) == [first.entry_id]


@pytest.mark.parametrize("how", ["retry", "new"])
async def test_the_holder_learns_until_when_the_kept_turn_is_postponed(
    fleet: Fleet, how: str
) -> None:
    first, _, terminal = await kept(fleet)
    until_ms = (await view_of(fleet, first)).postponed_until_ms
    held = await hold(fleet, terminal)

    renewed = await fleet.terminals.renew(held, hold_s=HOLD_S)
    assert renewed.kept_until_ms == until_ms
    if how == "retry":
        assert await fleet.sessions.retry(held.sid)
        assert not await fleet.sessions.retry(held.sid)
    else:
        await accept(fleet, "/new", id="3")
    assert (await fleet.terminals.renew(held, hold_s=HOLD_S)).kept_until_ms == 0


async def test_a_terminal_is_ended_for_no_message_before_the_kept_turn_is_due(fleet: Fleet) -> None:
    """A later message could not be answered either: it comes after the kept turn."""
    first, _, terminal = await kept(fleet)
    until_ms = (await view_of(fleet, first)).postponed_until_ms
    assert until_ms
    held = await hold(fleet, terminal)
    later = await accept(fleet, "later", id="3")

    renewed = await fleet.terminals.renew(held, hold_s=HOLD_S)

    assert not renewed.has_due_entry(held.place.turn, until_ms - 1)
    assert renewed.has_due_entry(held.place.turn, until_ms)
    assert renewed.waiting_message(held.place.turn) == later.entry_id


async def test_the_end_of_a_terminal_stops_no_kept_turn(fleet: Fleet) -> None:
    """The turn is older than the terminal, so a stop mark at the terminal would cover it."""
    first, _, terminal = await kept(fleet)
    held = await hold(fleet, terminal)

    assert await fleet.terminals.stop(held.sid)
    (stopped,) = await fleet.terminals.held("here")
    assert stopped.stop_entry == terminal.entry_id
    lease = await settle(fleet, held)
    await let_pass(fleet, HOUR_MS + 1000)
    batch = await begin(lease)

    assert batch is not None
    assert (ids_of(batch), batch.is_stopped) == ([first.entry_id], False)


async def test_a_stop_ends_the_terminal_and_the_kept_turn(fleet: Fleet) -> None:
    first, _, terminal = await kept(fleet)
    held = await hold(fleet, terminal)

    assert await fleet.sessions.stop(held.sid) == 3
    lease = await settle(fleet, held)
    batch = await begin(lease)

    assert batch is not None
    assert (ids_of(batch), batch.is_stopped) == ([first.entry_id], True)


async def test_a_person_stops_the_own_kept_turn_but_no_terminal_of_another(fleet: Fleet) -> None:
    first, _, terminal = await kept(fleet)

    assert await fleet.sessions.stop_own(first.session, "alice", call="1") == 2

    held = await hold(fleet, terminal)
    assert held.stop_entry < terminal.entry_id
    batch = await begin(await settle(fleet, held))
    assert batch is not None
    assert (ids_of(batch), batch.is_stopped) == ([first.entry_id], True)


async def test_a_person_does_not_stop_a_kept_turn_that_answers_others(fleet: Fleet) -> None:
    own = await fleet.inbound.append(message("one"), agent="main", is_shared=True)
    bobs = message("two", from_="bob")
    others = await fleet.inbound.append(bobs, agent="main", is_shared=True)
    lease = await acquire(fleet, own)
    assert await lease.turns.begin([own.entry_id, others.entry_id])
    await postpone(fleet, lease, HOUR_MS)
    await opened(fleet, of=own.session.user)

    assert await fleet.sessions.stop_own(own.session, "alice", call="1") is None


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_kept_message_can_be_withdrawn_no_more_than_a_postponed_one(
    fleet: Fleet, is_open: bool
) -> None:
    async def said(text: str) -> Accepted:
        known = (Known(text, content_digest(text, ())),)
        return await fleet.inbound.append(message(text, id=text), agent="main", once=known)

    first = await said("one")
    lease = await acquire(fleet, first)
    assert await begin(lease)
    await postpone(fleet, lease, HOUR_MS)
    await said("two")
    terminal = await opened(fleet)
    if is_open:
        await hold(fleet, terminal)

    assert await fleet.edits.withdraw(first.session, "one") == "running"
    assert await fleet.edits.withdraw(first.session, "two") == "withdrawn"


async def test_a_turn_that_had_begun_to_answer_is_not_kept(fleet: Fleet) -> None:
    """Its first attempt was cut off after it had used a tool."""
    lease, accepted = await begun(fleet)
    await lease.turns.note_phase("tool")
    await let_pass(fleet, 60_000)
    lease = await acquire(fleet, accepted)
    assert await begin(lease)
    await postpone(fleet, lease, HOUR_MS)

    await opened(fleet)

    view = await view_of(fleet, accepted)
    assert (view.turn, view.kept_size) == (accepted.entry_id, 0)
    assert await fleet.leases.acquire(lease.sid, worker="test", host="here") is None


async def test_a_terminal_that_waits_for_a_turn_opens_when_the_turn_is_postponed(
    fleet: Fleet,
) -> None:
    lease, first = await begun(fleet)
    terminal = await opened(fleet)
    await fleet.scripts.client.delete("rq:queue:agents")

    await postpone(fleet, lease, HOUR_MS)

    assert await hints(fleet) == 1
    await hold(fleet, terminal)
    assert (await view_of(fleet, first)).kept_size == 1


async def test_a_second_terminal_opens_before_the_kept_turn(fleet: Fleet) -> None:
    """It is opened between the end of the first one and the next step of the worker."""
    first, _, terminal = await kept(fleet)
    lease = await settle(fleet, await hold(fleet, terminal))
    second = await opened(fleet, call="2")

    assert ids_of(await begin(lease)) == [second.entry_id]

    assert (await view_of(fleet, first)).kept_size == 1


async def test_a_kept_message_of_a_failed_batch_keeps_its_own_turn(fleet: Fleet) -> None:
    """After two failures, each message of a batch has its own turn; a terminal changes nothing."""
    one, two = await accept(fleet, "one", id="1"), await accept(fleet, "two", id="2")
    for _ in range(2):
        lease = await acquire(fleet, one)
        assert await lease.turns.begin([one.entry_id, two.entry_id])
        await let_pass(fleet, 60_000)
    lease = await acquire(fleet, one)
    assert ids_of(await begin(lease)) == [one.entry_id]
    await postpone(fleet, lease, HOUR_MS)
    terminal = await opened(fleet)

    lease = await settle(fleet, await hold(fleet, terminal))
    await let_pass(fleet, HOUR_MS + 1000)
    assert ids_of(await begin(lease)) == [one.entry_id]
    await lease.turns.finish("done", reply=[])
    batch = await lease.turns.begin([two.entry_id])

    assert batch is not None
    assert batch.attempt == 3


async def test_a_kept_turn_whose_messages_are_gone_is_forgotten(fleet: Fleet) -> None:
    first, second, terminal = await kept(fleet)
    held = await hold(fleet, terminal)
    await fleet.scripts.client.xdel(keys.inbound(held.sid), first.entry_id)
    await let_pass(fleet, HOUR_MS + 1000)

    lease = await settle(fleet, held)

    assert await begin(lease) is None
    assert not lease.is_given_away
    assert ids_of(await begin(lease)) == [second.entry_id]
