"""Replies to a platform that refuses them or is down."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.channels.relay import relay
from remoteclaw.fleet import keys
from remoteclaw.fleet.replies import reader as readers
from remoteclaw.fleet.replies.reply import operation_payload
from remoteclaw.protocols import Operation, Reply
from tests.support.leases import answered
from tests.support.platform import Platform, Recipient
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import eventually


@pytest.fixture
def platform(directory: Path) -> Platform:
    return Platform(directory / "platform")


async def test_unreadable_replies_stay_on_the_stream_and_block_no_other(
    stack: Stack, platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    client: Any = stack.fleet.scripts.client
    stream = REPLIES
    late = operation_payload("c", Operation("pin", "chat-1", None, {}, expires_ms=1))
    late["operation"]["expires_ms"] = "soon"
    damaged = [
        {"reply": b"{"},
        {"reply": b"[1]"},
        {"reply": b'{"kind": "card"}'},
        {"reply": b'{"v": 1, "text": "secret"}'},
        {"reply": orjson.dumps(late)},
        {"other": b"x"},
    ]
    ids = [await client.xadd(stream, fields) for fields in damaged]
    await answered(stack.fleet, "one")
    async with platform.served(stack.fleet):
        await eventually(lambda: platform.texts == ["one"])

        async def are_only_damaged_left() -> bool:
            return [entry_id for entry_id, _ in await client.xrange(stream)] == ids

        await eventually(are_only_damaged_left)
    assert all(entry_id.decode() in caplog.text for entry_id in ids)
    assert "secret" not in caplog.text


async def test_a_reply_of_a_newer_version_waits_for_an_adapter_that_can_read_it(
    stack: Stack,
    platform: Platform,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client: Any = stack.fleet.scripts.client
    await answered(stack.fleet, "before")
    stream = REPLIES
    newer_id = await client.xadd(stream, {"reply": b'{"v":99,"kind":"card"}'})
    await answered(stack.fleet, "after")
    async with platform.served(stack.fleet, claim_ms=300) as relaying:
        await eventually(lambda: "waits for a newer adapter" in caplog.text)
        newer = stack.fleet.replies.reader("test", "default")
        await eventually(newer.claim)

        assert not relaying.done()
        assert platform.texts == ["before"]
        assert (await client.xrange(stream))[0][0] == newer_id


async def test_an_adapter_continues_once_the_newer_reply_is_delivered(
    stack: Stack,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(readers, "NEWER_S", 0.05)
    client: Any = stack.fleet.scripts.client
    stream = REPLIES
    newer_id = await client.xadd(stream, {"reply": b'{"v":99,"kind":"card"}'})
    await answered(stack.fleet, "after")
    async with platform.served(stack.fleet):
        await eventually(lambda: "waits for a newer adapter" in caplog.text)
        await client.xdel(stream, newer_id)

        await eventually(lambda: platform.texts == ["after"])


@pytest.mark.parametrize("claim_ms", [4000, 0])
async def test_a_slow_delivery_keeps_its_claim(stack: Stack, claim_ms: int) -> None:
    """Otherwise a standby would deliver the same reply, and the receipt would be refused."""
    accepted = await answered(stack.fleet, "hello")
    client: Any = stack.fleet.scripts.client
    claim, delivered = keys.reader("test", "default"), list[str]()

    class Slow(Recipient):
        async def take(self, reply: Reply, *_: object) -> None:
            await client.pexpire(claim, claim_ms)
            if claim_ms:  # 0: it was frozen, and no other adapter has taken over
                await eventually(is_renewed)
            delivered.append(reply.text)

    async def is_renewed() -> bool:
        return int(await client.pttl(claim)) > claim_ms

    relaying = asyncio.create_task(relay(stack.fleet.replies.reader("test", "default"), Slow()))
    outcome = keys.outcome(accepted.session.sid, accepted.entry_id)
    await eventually(lambda: client.hexists(outcome, "delivered"))
    relaying.cancel()

    assert delivered == ["hello"]


async def test_a_delivered_reply_gets_its_receipt_even_if_the_relay_is_cancelled(
    stack: Stack,
) -> None:
    client: Any = stack.fleet.scripts.client

    class Ending(Recipient):
        async def take(self, *_: object) -> None:
            asyncio.get_running_loop().call_soon(relaying.cancel)

    await answered(stack.fleet, "one")
    reader = stack.fleet.replies.reader("test", "default")
    relaying = asyncio.create_task(relay(reader, Ending()))
    await asyncio.wait((relaying,))

    assert relaying.cancelled()
    assert not await client.xlen(REPLIES)
