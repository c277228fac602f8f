"""The message that lists a conversation's running tasks, on a platform that can edit messages."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge.task_lines import in_a_chat
from remoteclaw.channels import previews, task_progress
from remoteclaw.channels.process import Channels
from remoteclaw.channels.relay import relay
from remoteclaw.channels.telegram.adapter import TelegramAdapter
from remoteclaw.channels.telegram.settings import TelegramAccount
from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.fleet import keys
from remoteclaw.messages import SessionKey
from tests.support.channel import TestChannel
from tests.support.manual_turn import wait_for_live_text_listener
from tests.support.platform import Platform
from tests.support.stack import REPLIES, Stack
from tests.support.tasks import HANDLERS, call, take_up
from tests.support.telegram import TelegramBot
from tests.support.turns import Turn, begin_turn
from tests.support.waiting import eventually

DOING = {"tool": "Bash", "argument": "make all", "said": "Building."}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edit the message as often as a test polls it."""
    monkeypatch.setattr(task_progress, "EVERY_S", 0.02)
    monkeypatch.setattr(previews, "RECHECK_S", 0.02)


@pytest.fixture
def platform(directory: Path) -> Iterator[Platform]:
    made = Platform(directory / "platform")
    yield made
    made.end()


@contextlib.asynccontextmanager
async def served(stack: Stack, platform: Platform) -> AsyncIterator[None]:
    async with platform.served(stack.fleet, shows_work=lambda _session: "arguments"):
        await wait_for_live_text_listener(stack.fleet)
        yield


async def start_task(stack: Stack, label: str = "links", *, for_: Turn | None = None) -> Turn:
    """Start a task for a conversation in chat-1."""
    parent = for_ or await begin_turn(stack, HANDLERS, channel_id="chat-1")
    started: Any = await call(stack, parent, "sessions_spawn", prompt="work", label=label)
    child = await take_up(stack, SessionKey.parse(started.child_session_key))
    await child.lease.progress.note(child.id, DOING, is_first=True)
    return child


def shown(platform: Platform) -> list[str]:
    """Return the lines of the chat's messages, without their times."""
    lines = "\n".join(post.text for post in platform.chat("chat-1")).splitlines()
    return [line.rpartition(" (")[0] or line for line in lines if line]


async def wait_until_no_preview_is_noted(stack: Stack) -> None:
    client: Any = stack.fleet.scripts.client

    async def is_gone() -> bool:
        return not await client.exists(keys.previews("test", "default"))

    await eventually(is_gone)


async def test_one_message_lists_the_running_tasks_until_none_is_left(
    stack: Stack, platform: Platform
) -> None:
    """It is edited in place, and is never on the reply stream."""
    async with served(stack, platform):
        parent = await begin_turn(stack, HANDLERS, channel_id="chat-1")
        links = await start_task(stack, for_=parent)
        await eventually(
            lambda: shown(platform) == [task_progress.HEAD, "- links: `Bash: make all`"]
        )
        pages = await start_task(stack, "pages", for_=parent)
        await eventually(lambda: "- pages: `Bash: make all`" in shown(platform))
        await links.finish()
        await eventually(
            lambda: shown(platform) == [task_progress.HEAD, "- pages: `Bash: make all`"]
        )
        assert await stack.fleet.scripts.client.xlen(REPLIES) == 0
        await pages.finish()
        await eventually(lambda: shown(platform) == [])
        await wait_until_no_preview_is_noted(stack)

    names = [event["event"] for event in platform.events]
    assert names[0] == "preview"
    assert set(names[1:-1]) == {"edited"}
    assert names[-1] == "delete"


async def test_the_next_adapter_continues_to_edit_the_task_list(
    stack: Stack, platform: Platform
) -> None:
    """It removes the list if all tasks have ended in the meantime."""
    async with served(stack, platform):
        links = await start_task(stack)
        await eventually(lambda: "- links: `Bash: make all`" in shown(platform))
    await links.lease.progress.note(links.id, {**DOING, "argument": "test"}, is_first=False)
    async with served(stack, platform):
        await eventually(lambda: shown(platform) == [task_progress.HEAD, "- links: `Bash: test`"])
    await links.finish()
    async with served(stack, platform):
        await eventually(lambda: shown(platform) == [])
        await wait_until_no_preview_is_noted(stack)

    assert len(platform.did("preview")) == 1


async def test_a_busy_chat_gets_no_task_list_and_delays_no_reply(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(busy_s={"chat-1": 60})
    async with served(stack, platform):
        await start_task(stack)
        await eventually(lambda: platform.did("busy"))
        await stack.put_reply("test", "default", "hello", chat="chat-2")
        await eventually(lambda: platform.texts == ["hello"])

    assert len(platform.did("busy")) == 1
    assert shown(platform) == []


async def test_a_quiet_chat_gets_no_task_list(stack: Stack, platform: Platform) -> None:
    async with served(stack, platform):
        parent = await begin_turn(stack, HANDLERS, channel_id="chat-1")
        await start_task(stack, for_=parent)
        await eventually(lambda: shown(platform))
        await stack.fleet.sessions.quieten(parent.lease.session, is_quiet=True)
        await eventually(lambda: shown(platform) == [])


async def test_a_task_list_that_the_platform_refuses_is_not_sent_again(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    def record_lines(*args: Any) -> str:
        lines.append(in_a_chat(*args))
        return lines[-1]

    monkeypatch.setattr(task_progress, "in_a_chat", record_lines)
    platform.tell(refuses="Not here.")
    async with served(stack, platform):
        await start_task(stack)
        await eventually(lambda: len(lines) > 5)

    assert len(platform.did("refused")) == 1


async def test_a_channel_shows_the_task_list_as_configured(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chat of several people sees no arguments; with `shows_work = false`, there is no list."""
    channel = TestChannel.installed(monkeypatch, stack)
    config = CurrentConfig(stack.home, load_config(stack.home.config_file, {}))
    running = asyncio.create_task(Channels(stack.fleet, stack.home, config).run())
    try:
        await wait_for_live_text_listener(stack.fleet)
        links = await start_task(stack)
        await eventually(lambda: shown(channel.platform) == [task_progress.HEAD, "- links: `Bash`"])
        channel.configure(shows_work=False)
        await eventually(lambda: shown(channel.platform) == [])
        await links.finish()
    finally:
        running.cancel()
        await asyncio.wait((running,))
        channel.end()


async def test_telegram_shows_the_task_list_in_one_message(stack: Stack, bot: TelegramBot) -> None:
    bot.chat(7)
    adapter = TelegramAdapter(TelegramAccount(token=bot.token, api_url=bot.api_url))
    reader = stack.fleet.replies.reader("telegram", "default", token="the same")
    relaying = asyncio.create_task(relay(reader, adapter, shows_work=lambda _session: "arguments"))
    try:
        await wait_for_live_text_listener(stack.fleet, "telegram")
        parent = await begin_turn(stack, HANDLERS, provider="telegram", channel_id="7", from_="7")
        links = await start_task(stack, for_=parent)
        await eventually(lambda: any("links: Bash: make all" in text for text in bot.texts(7)))
        text = bot.texts(7)
        await links.finish()
        await eventually(lambda: bot.texts(7) == [])
    finally:
        relaying.cancel()
        await asyncio.wait((relaying,))
        await adapter.aclose()

    assert len(text) == 1
    assert text[0].startswith("At work for this chat:")
