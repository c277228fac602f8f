"""The reader of a reply stream: there is one at a time; it gets each reply until its receipt."""

import asyncio

import pytest

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys
from tests.support.leases import answered
from tests.support.stack import REPLIES
from tests.support.waiting import eventually


async def test_a_message_without_a_receipt_is_delivered_again(fleet: Fleet) -> None:
    await answered(fleet, "one")
    await answered(fleet, "two")
    dead = fleet.replies.reader("test", "default")
    replies = dead.replies()
    assert (await anext(replies)).text == "one"  # delivered, and then it dies
    await replies.aclose()
    await fleet.scripts.client.delete(keys.reader("test", "default"))  # its claim has expired

    reader = fleet.replies.reader("test", "default")
    replies = reader.replies()
    for text in ("one", "two"):
        reply = await anext(replies)
        assert reply.text == text
        await reader.receipt(reply)
    await replies.aclose()

    assert await fleet.scripts.client.xlen(REPLIES) == 0


async def test_a_stream_has_one_reader_at_a_time(fleet: Fleet) -> None:
    await answered(fleet, "one")
    first, second = (fleet.replies.reader("test", "default") for _ in range(2))
    replies = first.replies()
    reply = await anext(replies)

    assert not await second.claim()
    with pytest.raises(LeaseLost):
        await second.receipt(reply)

    await first.receipt(reply)
    await replies.aclose()


async def test_a_slow_reader_that_lost_its_claim_delivers_nothing_more(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.replies.reader.CLAIM_EVERY_S", 0)
    monkeypatch.setattr("remoteclaw.fleet.replies.reader.STANDBY_S", 0.02)
    await answered(fleet, "one")
    await answered(fleet, "two")
    slow, quick = (fleet.replies.reader("test", "default") for _ in range(2))
    replies = slow.replies()
    assert (await anext(replies)).text == "one"
    await fleet.scripts.client.delete(keys.reader("test", "default"))  # it took too long

    assert await quick.claim()
    claims: list[bool] = []
    claim = slow.claim

    async def record_claim() -> bool:
        claims.append(await claim())
        return claims[-1]

    async def next_text() -> str:
        return (await anext(replies)).text

    monkeypatch.setattr(slow, "claim", record_claim)
    delivering = asyncio.create_task(next_text())
    await eventually(lambda: len(claims) > 1)
    assert not any(claims)

    await fleet.scripts.client.delete(keys.reader("test", "default"))  # the quick one has ended
    assert await delivering == "one"  # it starts again: it can't know what was delivered
    await replies.aclose()
