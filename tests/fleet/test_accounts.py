"""The read position of an account, and which reader may move it."""

from typing import Any

import pytest

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.protocols import Incoming


async def test_only_the_reader_moves_the_position(fleet: Fleet) -> None:
    first = fleet.replies.reader("test", "default")
    await first.wait_for_claim()
    await fleet.inbox.advance(first, "7", accepted=2, skipped=1)
    await fleet.scripts.client.delete(keys.reader("test", "default"))  # it has expired
    second = fleet.replies.reader("test", "default")
    await second.wait_for_claim()

    with pytest.raises(LeaseLost):
        await fleet.inbox.advance(first, "8", accepted=1)

    assert await fleet.inbox.position(second) == "7"
    view = await fleet.accounts.view("test", "default")
    assert (view.accepted, view.skipped) == (2, 1)


async def test_a_repeated_advance_counts_its_messages_once(fleet: Fleet) -> None:
    reader = fleet.replies.reader("test", "default")
    await reader.wait_for_claim()

    await fleet.inbox.advance(reader, "7", accepted=2)
    await fleet.inbox.advance(reader, "7", accepted=2)  # the reply was lost

    assert (await fleet.accounts.view("test", "default")).accepted == 2


async def test_a_leaving_reader_gives_up_only_its_own_claim(fleet: Fleet) -> None:
    first, second = (fleet.replies.reader("test", "default") for _ in range(2))
    await first.wait_for_claim()

    await fleet.accounts.leave(second)
    assert not await second.claim()
    await fleet.accounts.leave(first)

    assert not (await fleet.replies.readers()).is_read("test", "default")
    assert await second.claim()


async def test_a_stored_report_that_can_not_be_read_holds_up_no_other(fleet: Fleet) -> None:
    """Another version of RemoteClaw has stored it."""
    client: Any = fleet.scripts.client
    await client.hset(keys.inbox("test", "default"), "0", b'0 {"id":"1","from":"alice"}')
    reader = fleet.replies.reader("test", "default")
    await reader.wait_for_claim()
    report = Incoming(id="2", chat="alice", sender="alice", at_ms=1, text="hello")

    assert await fleet.inbox.take(reader) == []
    await fleet.inbox.advance(reader, "7", slow=[report])
    assert [stored.incoming.text for stored in await fleet.inbox.take(reader)] == ["hello"]
    assert (await fleet.accounts.view("test", "default")).skipped == 1
