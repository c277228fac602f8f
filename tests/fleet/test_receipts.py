"""Receipts: the answers of adapters to tool calls, and the accounts that have an adapter."""

import asyncio
import time
from typing import Any

import orjson
import pytest

from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.replies.reader import KNOWN_MS, ReplyReader
from remoteclaw.fleet.replies.reply import operation_payload
from remoteclaw.protocols import Operation
from tests.support.waiting import HANG_S


async def request_operation(fleet: Fleet, call: str) -> str:
    """Request an operation in a chat; return its id on the reply stream."""
    operation = Operation("pin", "chat-1", None, {"messageId": "m1"}, expires_ms=2**50)
    (reply_id,) = await fleet.calls.send_messages(
        None, call, [("test", "default", operation_payload(call, operation))], effect=None
    )
    return reply_id


async def answer(reader: ReplyReader, content: dict[str, Any]) -> None:
    """Answer the next operation."""
    replies = reader.replies()
    await reader.receipt(await anext(replies), answer=orjson.dumps(content))
    await replies.aclose()


async def test_an_answer_is_returned_to_all_waiting_callers(fleet: Fleet) -> None:
    reply_id = await request_operation(fleet, "c1")
    waiting = [
        asyncio.create_task(fleet.receipts.wait("c1", [reply_id], timeout_s=600)) for _ in range(3)
    ]

    await answer(fleet.replies.reader("test", "default"), {"a": 1})

    assert [await each for each in waiting] == [{reply_id: {"a": 1}}] * 3
    assert await fleet.receipts.wait("c1", [reply_id], timeout_s=0) == {reply_id: {"a": 1}}
    assert await fleet.receipts.wait("c2", [reply_id], timeout_s=0) == {}


async def test_answers_that_arrive_before_the_timeout_are_returned(fleet: Fleet) -> None:
    reply_id = await request_operation(fleet, "c1")
    await answer(fleet.replies.reader("test", "default"), {"a": 1})

    found = await fleet.receipts.wait("c1", [reply_id, "9-9"], timeout_s=0.05)

    assert found == {reply_id: {"a": 1}}


async def test_a_repeated_receipt_answers_once(fleet: Fleet) -> None:
    reply_id = await request_operation(fleet, "c1")
    reader = fleet.replies.reader("test", "default")
    replies = reader.replies()
    reply = await anext(replies)

    for content in ({"a": 1}, {"a": 2}):
        await reader.receipt(reply, answer=orjson.dumps(content))
    await replies.aclose()

    assert await fleet.scripts.client.xlen(keys.receipts("c1")) == 1
    assert await fleet.receipts.wait("c1", [reply_id], timeout_s=0) == {reply_id: {"a": 1}}


async def test_waiting_for_a_receipt_times_out(fleet: Fleet) -> None:
    reply_id = await request_operation(fleet, "c1")
    since = time.monotonic()

    assert await fleet.receipts.wait("c1", [reply_id], timeout_s=0.1) == {}

    assert time.monotonic() - since > 0.09


async def test_an_account_stays_known_for_a_while_after_its_adapter_ends(fleet: Fleet) -> None:
    assert (await fleet.replies.readers()).accounts("test") == []
    for account in ("one", "two"):
        assert await fleet.replies.reader("test", account).claim()
    assert not await fleet.replies.reader("test", "two").claim()
    client = fleet.scripts.client

    readers = await fleet.replies.readers()
    assert readers.accounts("test") == ["one", "two"]
    assert readers.is_read("test", "one")
    assert not readers.is_read("test", "three")
    assert not readers.is_read("other", "one")

    await client.zadd(keys.READERS, {"test\0one": readers.now_ms - 1})
    readers = await fleet.replies.readers()
    assert not readers.is_read("test", "one")
    assert readers.accounts("test") == ["two"]
    assert ("test", "one") in readers.until_ms

    await client.set("test:shift", KNOWN_MS + 60_000)
    await fleet.replies.reader("test", "three").claim()
    assert ("test", "one") not in (await fleet.replies.readers()).until_ms


@pytest.mark.parametrize("left_ms", [5000, -5000])
async def test_the_time_left_is_measured_by_the_clock_of_redis(fleet: Fleet, left_ms: int) -> None:
    now_ms = (await fleet.replies.readers()).now_ms
    operation = Operation("pin", "chat-1", None, {}, expires_ms=now_ms + left_ms)

    left_s = await fleet.replies.reader("test", "default").seconds_left(operation)

    assert left_ms / 1000 - 1 < left_s <= left_ms / 1000


async def test_callers_that_wait_for_receipts_do_not_block_each_other(fleet: Fleet) -> None:
    """Each waits on a connection of its own."""
    reply_id = await request_operation(fleet, "c1")
    waits = [fleet.receipts.wait(f"x{number}", ["1-1"], timeout_s=600) for number in range(20)]
    others = [asyncio.create_task(wait) for wait in waits]

    async with asyncio.timeout(HANG_S):
        waiting = asyncio.create_task(fleet.receipts.wait("c1", [reply_id], timeout_s=600))
        await answer(fleet.replies.reader("test", "default"), {"a": 1})
        assert reply_id in await waiting
    for other in others:
        other.cancel()
    await asyncio.wait(others)
