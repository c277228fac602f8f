"""How far an account was read, and who may say so."""

import pytest

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys


async def test_only_the_reader_moves_the_position(fleet: Fleet) -> None:
    first = fleet.replies.reader("test", "default")
    await first.claimed()
    await fleet.accounts.advance(first, "7", accepted=2, aside=1)
    await fleet.scripts.client.delete(keys.reader("test", "default"))  # its time is over
    second = fleet.replies.reader("test", "default")
    await second.claimed()

    with pytest.raises(LeaseLost):
        await fleet.accounts.advance(first, "8", accepted=1)

    assert await fleet.accounts.position(second) == "7"
    view = await fleet.accounts.view("test", "default")
    assert (view.accepted, view.aside) == (2, 1)


async def test_what_is_counted_once_is_counted_once(fleet: Fleet) -> None:
    reader = fleet.replies.reader("test", "default")
    await reader.claimed()

    await fleet.accounts.advance(reader, "7", accepted=2)
    await fleet.accounts.advance(reader, "7", accepted=2)  # the reply was lost

    assert (await fleet.accounts.view("test", "default")).accepted == 2


async def test_who_leaves_makes_room_at_once_and_takes_nobody_elses(fleet: Fleet) -> None:
    first, second = (fleet.replies.reader("test", "default") for _ in range(2))
    await first.claimed()

    await fleet.accounts.leave(second)
    assert not await second.claim()
    await fleet.accounts.leave(first)

    assert not (await fleet.replies.readers()).is_there("test", "default")
    assert await second.claim()
