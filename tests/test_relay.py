"""Answers on their way to a platform that doesn't take them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.bridge.hooks import MessageSent
from remoteclaw.fleet import keys
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.replies import reply_payload
from remoteclaw.messages import Attachment
from tests.support.platform import Platform
from tests.support.stack import Stack, message
from tests.support.waiting import eventually


@pytest.fixture
def platform(directory: Path) -> Platform:
    return Platform(directory / "platform")


async def answered(stack: Stack, text: str, *files: Attachment) -> tuple[Lease, str]:
    """Have a turn finished with one message; return its lease and its entry."""
    entry = await stack.fleet.inbound.append(message("hello"), agent="main")
    lease = await stack.fleet.leases.acquire(entry.session.sid, worker="test", host="here")
    assert lease is not None
    assert await lease.begin([entry.entry_id])
    payload = reply_payload(
        sid=lease.sid,
        turn=entry.entry_id,
        attempt=1,
        index=0,
        channel_id="chat-1",
        thread_id=None,
        text=text,
        attachments=files,
        entries=[entry.entry_id],
    )
    await lease.finish("done", reply=[], payloads=[payload])
    await lease.close()
    return lease, entry.entry_id


async def test_an_answer_that_the_platform_refuses_holds_nothing_up(
    stack: Stack, platform: Platform
) -> None:
    hooks, sent = Hooks(), list[MessageSent]()
    hooks.register("message_sent", sent.append)
    client: Any = stack.fleet.scripts.client
    sid = (await answered(stack, ""))[0].sid
    file = await stack.fleet.blobs.put(sid, "plan.txt", b"x")
    platform.tell(refuses="You were blocked.")
    async with platform.served(stack.fleet, hooks=hooks):
        _, refused = await answered(stack, "one", file)
        await eventually(lambda: sent)
        platform.tell()
        _, taken = await answered(stack, "two")
        await eventually(lambda: client.hexists(keys.outcome_prefix(sid) + taken, "delivered"))

    assert platform.texts == ["two"]
    assert [(event.success, event.error) for event in sent] == [
        (False, "PlatformRefused"),
        (True, None),
    ]
    assert not await client.hexists(keys.outcome_prefix(sid) + refused, "delivered")
    assert await stack.fleet.blobs.get(sid, file) == b"x"


async def test_an_answer_survives_a_platform_that_is_away(stack: Stack, platform: Platform) -> None:
    platform.tell(breaks=True)
    await answered(stack, "one")
    async with platform.served(stack.fleet) as relaying:
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(relaying, 10)

    platform.tell()
    async with platform.served(stack.fleet):
        await eventually(lambda: platform.texts == ["one"])
