"""Messages that are accepted: stored once, and hinted."""

import pytest

from remoteclaw.errors import RedisRefused
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.turns.inbound import Known
from tests.support.leases import accept, hints
from tests.support.stack import message


async def test_a_message_is_stored_and_hinted_once(fleet: Fleet) -> None:
    first = await accept(fleet, "one")
    second = await accept(fleet, "two")

    assert first.session.sid == second.session.sid
    assert await hints(fleet) == 1
    view = await fleet.sessions.view(first.session.sid)
    assert view is not None
    assert (view.status, view.waiting) == ("scheduled", 2)


async def test_a_repeated_message_is_the_same_entry(fleet: Fleet) -> None:
    first = await accept(fleet, id="platform-1")
    again = await accept(fleet, id="platform-1")

    assert again.is_duplicate
    assert again.entry_id == first.entry_id
    view = await fleet.sessions.view(first.session.sid)
    assert view is not None
    assert view.waiting == 1


async def test_the_same_id_in_another_chat_is_another_message(fleet: Fleet) -> None:
    await accept(fleet, id="7", channel_id="a")
    other = await accept(fleet, id="7", channel_id="b")

    assert not other.is_duplicate


async def test_a_repetition_hints_a_session_that_still_waits(fleet: Fleet) -> None:
    await accept(fleet, id="1")
    await fleet.scripts.client.delete("rq:queue:agents")  # the first caller died before its hint

    await accept(fleet, id="1")

    assert await hints(fleet) == 1


async def test_a_message_of_which_a_part_was_accepted_meanwhile_is_not_accepted(
    fleet: Fleet,
) -> None:
    """Otherwise its other parts would be dropped as repetitions, or this one would run twice."""
    whole = message("one two", id="m1")
    both = (Known("m1"), Known("m2"))
    await fleet.inbound.append(message("one", id="m1"), agent="main", once=both[:1])

    with pytest.raises(RedisRefused):
        await fleet.inbound.append(whole, agent="main", once=both)
    accepted = await fleet.inbound.append(message("two", id="m2"), agent="main", once=both[1:])
    assert not accepted.is_duplicate


async def test_each_part_of_an_accepted_message_is_a_repetition(fleet: Fleet) -> None:
    both = (Known("m1"), Known("m2"))
    first = await fleet.inbound.append(message("one two", id="m1"), agent="main", once=both)

    for once in (both, both[:1], both[1:]):
        again = await fleet.inbound.append(message("x", id="m1"), agent="main", once=once)
        assert (again.is_duplicate, again.entry_id) == (True, first.entry_id)
