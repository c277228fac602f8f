"""Answers on their way to a platform that doesn't take them."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.channels.relay import relay
from remoteclaw.fleet import keys
from remoteclaw.fleet import reader as readers
from remoteclaw.fleet.reply import operation_payload
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Operation, Reply
from tests.support.leases import answered
from tests.support.platform import Platform, Recipient
from tests.support.stack import REPLIES, Stack, message
from tests.support.waiting import eventually


@pytest.fixture
def platform(directory: Path) -> Platform:
    return Platform(directory / "platform")


async def test_an_answer_that_the_platform_refuses_holds_nothing_up(
    stack: Stack, platform: Platform
) -> None:
    client: Any = stack.fleet.scripts.client

    async def is_empty() -> bool:
        return not await client.xlen(REPLIES)

    sid = SessionKey.of(message("one"), agent="main").sid
    file = await stack.fleet.blobs.put(sid, "plan.txt", b"x")
    platform.tell(refuses="You were blocked.")
    async with platform.served(stack.fleet):
        refused = (await answered(stack.fleet, "one", file)).entry_id
        await eventually(is_empty)
        platform.tell()
        taken = (await answered(stack.fleet, "two")).entry_id
        await eventually(lambda: client.hexists(keys.outcome_prefix(sid) + taken, "delivered"))

    assert platform.texts == ["two"]
    assert not await client.hexists(keys.outcome_prefix(sid) + refused, "delivered")
    assert await stack.fleet.blobs.get(sid, file) == b"x"


async def test_an_answer_survives_a_platform_that_is_away(stack: Stack, platform: Platform) -> None:
    platform.tell(breaks=True)
    await answered(stack.fleet, "one")
    async with platform.served(stack.fleet) as relaying:
        await eventually(lambda: len(platform.did("broke")) > 1)
        assert not relaying.done()

        platform.tell()
        await eventually(lambda: platform.texts == ["one"])


async def test_replies_that_nobody_can_read_are_left_there_and_hold_nothing_up(
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

        async def only_they_are_left() -> bool:
            return [entry_id for entry_id, _ in await client.xrange(stream)] == ids

        await eventually(only_they_are_left)
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
    await answered(stack.fleet, "behind")
    async with platform.served(stack.fleet, claim_ms=300) as relaying:
        await eventually(lambda: "waits for a newer adapter" in caplog.text)
        newer = stack.fleet.replies.reader("test", "default")
        await eventually(newer.claim)

        assert not relaying.done()
        assert platform.texts == ["before"]
        assert (await client.xrange(stream))[0][0] == newer_id


async def test_an_adapter_goes_on_once_the_newer_reply_is_delivered(
    stack: Stack,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(readers, "NEWER_S", 0.05)
    client: Any = stack.fleet.scripts.client
    stream = REPLIES
    newer_id = await client.xadd(stream, {"reply": b'{"v":99,"kind":"card"}'})
    await answered(stack.fleet, "behind")
    async with platform.served(stack.fleet):
        await eventually(lambda: "waits for a newer adapter" in caplog.text)
        await client.xdel(stream, newer_id)

        await eventually(lambda: platform.texts == ["behind"])


@pytest.mark.parametrize("claim_ms", [4000, 0])
async def test_a_slow_delivery_keeps_its_stream(stack: Stack, claim_ms: int) -> None:
    """Else a stand-by would deliver the same, and the receipt would be refused."""
    accepted = await answered(stack.fleet, "hello")
    client: Any = stack.fleet.scripts.client
    claim, delivered = keys.reader("test", "default"), list[str]()

    class Slow(Recipient):
        async def take(self, reply: Reply, *_: object) -> None:
            await client.pexpire(claim, claim_ms)
            if claim_ms:  # else it was frozen, and no other adapter has taken over
                await eventually(is_renewed)
            delivered.append(reply.text)

    async def is_renewed() -> bool:
        return int(await client.pttl(claim)) > claim_ms

    relaying = asyncio.create_task(relay(stack.fleet.replies.reader("test", "default"), Slow()))
    outcome = keys.outcome_prefix(accepted.session.sid) + accepted.entry_id
    await eventually(lambda: client.hexists(outcome, "delivered"))
    relaying.cancel()

    assert delivered == ["hello"]


async def test_what_was_delivered_has_its_receipt_though_the_relay_is_ended(stack: Stack) -> None:
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
