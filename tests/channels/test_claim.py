"""An adapter that has lost its account's claim makes no more calls to the platform."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from remoteclaw.channels import delivery, handling, live
from remoteclaw.channels.intake import Intake
from remoteclaw.channels.rate import RateLimiter
from remoteclaw.channels.relay import relay
from remoteclaw.channels.report import InboundContext
from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import PlatformAway, PlatformBusy
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.fleet.replies.reply import operation_payload
from remoteclaw.protocols import ChannelAdapter, Operation, Part, PlatformAdapter, Reply, Sent
from tests.support import platform as platforms
from tests.support.manual_turn import ManualTurn, wait_for_live_text_listener
from tests.support.platform import Platform, Recipient
from tests.support.stack import REPLIES, Stack
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


async def lose_claim(stack: Stack, reader: ReplyReader) -> None:
    """Give the claim to another adapter, as happens while this one is frozen."""
    client: Any = stack.fleet.scripts.client
    await client.set(keys.reader(*ACCOUNT), "another")
    await eventually(lambda: not reader.has_claim)


def has_stopped(caplog: pytest.LogCaptureFixture) -> bool:
    return "stops reading messages" in caplog.text or "stops sending replies" in caplog.text


@pytest.mark.parametrize("event", ["edited", "typing"])
async def test_an_adapter_without_its_claim_shows_no_live_text_and_no_typing(
    stack: Stack,
    platform: Platform,
    adapter: ChannelAdapter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    event: str,
) -> None:
    if event == "typing":
        monkeypatch.setattr(live, "TYPING_S", 0.2)
    reader = reader_of(stack.fleet)
    async with relayed(reader, adapter):
        await wait_for_live_text_listener(stack.fleet)
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Let")
        await eventually(lambda: platform.chat("chat-1"))
        await lose_claim(stack, reader)
        count = len(platform.did(event))
        if event == "edited":
            await turn.show("Let me")
        await eventually(partial(has_stopped, caplog))

    assert len(platform.did(event)) == count


async def test_an_adapter_without_its_claim_removes_no_preview(
    stack: Stack,
    platform: Platform,
    adapter: ChannelAdapter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other adapter may have turned the preview into the answer."""
    monkeypatch.setattr(delivery, "FRESH_S", 0.0)
    reader = reader_of(stack.fleet)
    async with relayed(reader, adapter):
        await wait_for_live_text_listener(stack.fleet)
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Let")
        await eventually(lambda: platform.chat("chat-1"))
        platform.tell(stops="send after")
        await turn.end("Done.")
        await eventually(lambda: platform.did("held"))
        platform.tell(breaks=True)
        await eventually(lambda: platform.did("broke"))
        await lose_claim(stack, reader)
        platform.tell()
        await eventually(partial(has_stopped, caplog))

    assert [post.text for post in platform.chat("chat-1")] == ["Let", "Done."]


async def test_an_adapter_without_its_claim_repeats_no_keyed_send(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    class Keyed(Recipient):
        key_window_s = math.inf

        async def send(
            self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
        ) -> Sent:
            attempts.append(reply.text)
            raise PlatformBusy("Too many messages.", after_s=0.1)

    attempts: list[str] = []
    reader = reader_of(stack.fleet)
    await stack.put_reply(*ACCOUNT, "one", chat="chat-1")
    async with relayed(reader, Keyed()):
        await eventually(lambda: attempts)
        await lose_claim(stack, reader)
        count = len(attempts)
        await eventually(partial(has_stopped, caplog))

    assert len(attempts) == count


async def test_an_adapter_without_its_claim_performs_no_operation(
    stack: Stack,
    platform: Platform,
    adapter: ChannelAdapter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Redis reported enough time for the operation before the claim was lost."""
    proxy = await stack.proxied()
    reader = reader_of(stack.open_at(proxy.url))
    message = platform.say("chat-1", "bo", "hi")
    args = {"messageId": message, "emoji": "x"}
    payload = operation_payload("c", Operation("react", "chat-1", None, args, expires_ms=2**60))
    failpoint = proxy.arm("clock", "after")
    await stack.fleet.scripts.client.xadd(REPLIES, {"reply": orjson.dumps(payload)})
    async with relayed(reader, adapter):
        await failpoint.wait()
        await lose_claim(stack, reader)
        failpoint.release()
        await eventually(partial(has_stopped, caplog))

    assert platform.did("react") == []


async def test_an_adapter_without_its_claim_polls_no_messages(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Away:
        async def poll(self, cursors: Mapping[str, str]) -> None:
            polls.append(cursors)
            raise PlatformAway("It is away.")

    polls: list[Mapping[str, str]] = []
    monkeypatch.setattr(handling, "PAUSES_S", (0.05,))
    reader = reader_of(stack.fleet)
    adapter = cast(PlatformAdapter, Away())
    config = CurrentConfig(stack.home, load_config(stack.home.config_file))
    context = InboundContext(
        fleet=stack.fleet,
        home=stack.home,
        config=config,
        provider="test",
        account="default",
        rate=RateLimiter(),
    )
    task = asyncio.create_task(Intake(context, reader, adapter).run())
    await eventually(lambda: polls)
    await lose_claim(stack, reader)
    count = len(polls)
    await eventually(partial(has_stopped, caplog))
    task.cancel()

    assert len(polls) == count
