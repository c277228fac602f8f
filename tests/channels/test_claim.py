"""A copy that has lost its account's claim asks nothing more of the platform, whatever is due."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from remoteclaw.channels import delivery, intake, live
from remoteclaw.channels.arrival import Door
from remoteclaw.channels.intake import Intake
from remoteclaw.channels.rate import Rate
from remoteclaw.channels.relay import relay
from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import PlatformAway, PlatformBusy
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.reader import ReplyReader
from remoteclaw.fleet.reply import operation_payload
from remoteclaw.protocols import ChannelAdapter, Operation, Part, PlatformAdapter, Reply, Sent
from tests.support import platform as platforms
from tests.support.platform import Platform, Recipient
from tests.support.stack import REPLIES, Stack
from tests.support.talks import Talk, heard
from tests.support.waiting import eventually

ACCOUNT = ("test", "default")


@pytest.fixture
def platform(directory: Path) -> Platform:
    return Platform(directory / "platform")


@pytest.fixture
def adapter(platform: Platform, directory: Path) -> ChannelAdapter:
    return platforms.PlatformAdapter(directory / "platform")


def reader_of(fleet: Fleet) -> ReplyReader:
    return fleet.replies.reader(*ACCOUNT, claim_ms=500)


@contextlib.asynccontextmanager
async def relayed(reader: ReplyReader, adapter: ChannelAdapter) -> AsyncIterator[None]:
    assert await reader.claim()
    task = asyncio.create_task(relay(reader, adapter))
    yield
    task.cancel()
    await asyncio.wait((task,))


async def lose(stack: Stack, reader: ReplyReader) -> None:
    """Have another copy take over, as it does when this one was frozen."""
    client: Any = stack.fleet.scripts.client
    await client.set(keys.reader(*ACCOUNT), "another")
    await eventually(lambda: not reader.is_mine)


def is_over(caplog: pytest.LogCaptureFixture) -> bool:
    return "nothing more is" in caplog.text


@pytest.mark.parametrize("what", ["edited", "typing"])
async def test_nothing_more_is_shown(
    stack: Stack,
    platform: Platform,
    adapter: ChannelAdapter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    what: str,
) -> None:
    if what == "typing":
        monkeypatch.setattr(live, "TYPING_S", 0.2)
    reader = reader_of(stack.fleet)
    async with relayed(reader, adapter):
        await heard(stack.fleet)
        turn = await Talk.begin(stack.fleet)
        await turn.show("Let")
        await eventually(lambda: platform.chat("chat-1"))
        await lose(stack, reader)
        shown = len(platform.did(what))
        if what == "edited":
            await turn.show("Let me")
        await eventually(partial(is_over, caplog))

    assert len(platform.did(what)) == shown


async def test_nothing_more_is_removed(
    stack: Stack,
    platform: Platform,
    adapter: ChannelAdapter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was a preview here may have become the answer there."""
    monkeypatch.setattr(delivery, "FRESH_S", 0.0)
    reader = reader_of(stack.fleet)
    async with relayed(reader, adapter):
        await heard(stack.fleet)
        turn = await Talk.begin(stack.fleet)
        await turn.show("Let")
        await eventually(lambda: platform.chat("chat-1"))
        platform.tell(stops="send after")
        await turn.end("Done.")
        await eventually(lambda: platform.did("held"))
        platform.tell(breaks=True)
        await eventually(lambda: platform.did("broke"))
        await lose(stack, reader)
        platform.tell()
        await eventually(partial(is_over, caplog))

    assert [post.text for post in platform.chat("chat-1")] == ["Let", "Done."]


async def test_nothing_more_is_sent_by_a_key(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    class Keyed(Recipient):
        has_keys = True

        async def send(
            self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
        ) -> Sent:
            asked.append(reply.text)
            raise PlatformBusy("Too many messages.", after_s=0.1)

    asked: list[str] = []
    reader = reader_of(stack.fleet)
    await stack.put_reply(*ACCOUNT, "one", chat="chat-1")
    async with relayed(reader, Keyed()):
        await eventually(lambda: asked)
        await lose(stack, reader)
        count = len(asked)
        await eventually(partial(is_over, caplog))

    assert len(asked) == count


async def test_nothing_more_is_done(
    stack: Stack,
    platform: Platform,
    adapter: ChannelAdapter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Though there was time left for it when Redis was asked."""
    proxy = await stack.proxied()
    reader = reader_of(stack.open_at(proxy.url))
    message = platform.say("chat-1", "bo", "hi")
    args = {"messageId": message, "emoji": "x"}
    asked = operation_payload("c", Operation("react", "chat-1", None, args, expires_ms=2**60))
    failpoint = proxy.arm("clock", "after")
    await stack.fleet.scripts.client.xadd(REPLIES, {"reply": orjson.dumps(asked)})
    async with relayed(reader, adapter):
        await failpoint.wait()
        await lose(stack, reader)
        failpoint.release()
        await eventually(partial(is_over, caplog))

    assert platform.did("react") == []


async def test_nothing_more_is_read(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Away:
        async def poll(self, position: str | None) -> None:
            asked.append(position)
            raise PlatformAway("It is away.")

    asked: list[str | None] = []
    monkeypatch.setattr(intake, "PAUSES_S", (0.05,))
    reader = reader_of(stack.fleet)
    adapter = cast(PlatformAdapter, Away())
    config = CurrentConfig(stack.home, load_config(stack.home.config_file))
    door = Door(
        fleet=stack.fleet,
        home=stack.home,
        config=config,
        provider="test",
        account="default",
        rate=Rate(),
    )
    task = asyncio.create_task(Intake(door, reader, adapter).run())
    await eventually(lambda: asked)
    await lose(stack, reader)
    count = len(asked)
    await eventually(partial(is_over, caplog))
    task.cancel()

    assert len(asked) == count
