"""What adapters tell whoever called, and for which accounts there are any."""

import asyncio
import time
from typing import Any

import orjson
import pytest

from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.reader import KNOWN_MS, ReplyReader
from remoteclaw.fleet.reply import operation_payload
from remoteclaw.protocols import Operation
from tests.support.waiting import HANG_S


async def asked(fleet: Fleet, call: str) -> str:
    """Have something asked for in a chat; return its id on the stream."""
    operation = Operation("pin", "chat-1", None, {"messageId": "m1"}, expires_ms=2**50)
    (made,) = await fleet.calls.messages(
        None, call, [("test", "default", operation_payload(call, operation))], note=None
    )
    return made


async def answer(reader: ReplyReader, told: dict[str, Any]) -> None:
    """Answer the next one."""
    replies = reader.replies()
    await reader.receipt(await anext(replies), answer=orjson.dumps(told))
    await replies.aclose()


async def test_an_answer_is_there_for_everybody_who_waits(fleet: Fleet) -> None:
    made = await asked(fleet, "c1")
    waiting = [
        asyncio.create_task(fleet.receipts.wait("c1", [made], timeout_s=600)) for _ in range(3)
    ]

    await answer(fleet.replies.reader("test", "default"), {"a": 1})

    assert [await each for each in waiting] == [{made: {"a": 1}}] * 3
    assert await fleet.receipts.wait("c1", [made], timeout_s=0) == {made: {"a": 1}}
    assert await fleet.receipts.wait("c2", [made], timeout_s=0) == {}


async def test_what_is_told_in_time_is_returned(fleet: Fleet) -> None:
    made = await asked(fleet, "c1")
    await answer(fleet.replies.reader("test", "default"), {"a": 1})

    found = await fleet.receipts.wait("c1", [made, "9-9"], timeout_s=0.05)

    assert found == {made: {"a": 1}}


async def test_a_receipt_that_is_repeated_answers_once(fleet: Fleet) -> None:
    made = await asked(fleet, "c1")
    reader = fleet.replies.reader("test", "default")
    replies = reader.replies()
    reply = await anext(replies)

    for told in ({"a": 1}, {"a": 2}):
        await reader.receipt(reply, answer=orjson.dumps(told))
    await replies.aclose()

    assert await fleet.scripts.client.xlen(keys.receipts("c1")) == 1
    assert await fleet.receipts.wait("c1", [made], timeout_s=0) == {made: {"a": 1}}


async def test_time_runs_out_without_an_answer(fleet: Fleet) -> None:
    made = await asked(fleet, "c1")
    since = time.monotonic()

    assert await fleet.receipts.wait("c1", [made], timeout_s=0.1) == {}

    assert time.monotonic() - since > 0.09


async def test_accounts_are_known_while_adapters_are_there_and_for_a_while(fleet: Fleet) -> None:
    assert (await fleet.replies.readers()).accounts("test") == []
    for account in ("one", "two"):
        assert await fleet.replies.reader("test", account).claim()
    assert not await fleet.replies.reader("test", "two").claim()
    client = fleet.scripts.client

    readers = await fleet.replies.readers()
    assert readers.accounts("test") == ["one", "two"]
    assert readers.is_there("test", "one")
    assert not readers.is_there("test", "three")
    assert not readers.is_there("other", "one")

    await client.zadd(keys.READERS, {"test\0one": readers.now_ms - 1})
    readers = await fleet.replies.readers()
    assert not readers.is_there("test", "one")
    assert readers.accounts("test") == ["two"]
    assert ("test", "one") in readers.until_ms

    await client.set("test:shift", KNOWN_MS + 60_000)
    await fleet.replies.reader("test", "three").claim()
    assert ("test", "one") not in (await fleet.replies.readers()).until_ms


@pytest.mark.parametrize("left_ms", [5000, -5000])
async def test_the_time_that_is_left_is_redis_own(fleet: Fleet, left_ms: int) -> None:
    now_ms = (await fleet.replies.readers()).now_ms
    operation = Operation("pin", "chat-1", None, {}, expires_ms=now_ms + left_ms)

    left_s = await fleet.replies.reader("test", "default").left_s(operation)

    assert left_ms / 1000 - 1 < left_s <= left_ms / 1000


async def test_who_waits_is_not_held_up_by_others(fleet: Fleet) -> None:
    """Each waits on a connection of its own."""
    made = await asked(fleet, "c1")
    waits = [fleet.receipts.wait(f"x{number}", ["1-1"], timeout_s=600) for number in range(20)]
    others = [asyncio.create_task(wait) for wait in waits]

    async with asyncio.timeout(HANG_S):
        waiting = asyncio.create_task(fleet.receipts.wait("c1", [made], timeout_s=600))
        await answer(fleet.replies.reader("test", "default"), {"a": 1})
        assert made in await waiting
    for other in others:
        other.cancel()
    await asyncio.wait(others)
