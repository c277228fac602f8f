"""Messages that are accepted: stored once, and hinted."""

from remoteclaw.fleet import Fleet
from tests.support.leases import accept, hints


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
