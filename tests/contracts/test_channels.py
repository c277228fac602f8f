"""The contract of channels: each adapter over the real relay, and each profile."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge.chunks import SMALLEST_LIMIT
from remoteclaw.channels.relay import relay
from remoteclaw.channels.telegram.adapter import TelegramAdapter
from remoteclaw.channels.telegram.settings import TelegramAccount
from remoteclaw.fleet import Fleet, keys
from remoteclaw.gateway.consoles import ConsoleChat
from remoteclaw.messages import Attachment, channel_name
from remoteclaw.profiles import CHANNELS, profile_of
from remoteclaw.protocols import ChannelAdapter, ChannelProfile, OperatingAdapter
from remoteclaw.tools.catalog import TOOLS
from tests.support.agents import ROOT
from tests.support.platform import Platform, PlatformAdapter
from tests.support.stack import SID, Stack
from tests.support.talks import Talk, heard
from tests.support.telegram import TelegramBot
from tests.support.waiting import eventually

#: The chat that a double has, unless it says otherwise, and one that none has.
CHAT, NOWHERE = "console", "nowhere"
#: The tools that an adapter without operations can't serve.
OPERATIONS = {"message_react", "message_delete", "message_pin", "message_read"}


@dataclass(frozen=True)
class Double:
    """An adapter on a double of its platform, and what people see there."""

    provider: str
    profile: ChannelProfile
    adapter: ChannelAdapter
    texts: Callable[[], list[str]]
    files: Callable[[], dict[str, bytes]]
    chat: str = CHAT


def example() -> dict[str, Any]:
    """Return the names of the guide's example."""
    page = (ROOT / "docs" / "guides" / "adding-a-channel.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "adding-a-channel.md", "exec"), names)
    return names


def folder(_fleet: Fleet, directory: Path, _request: pytest.FixtureRequest) -> Double:
    chat = directory / CHAT
    chat.mkdir()
    names = example()
    adapter = names["Folder"](names["FolderConfig"](directory=str(directory)))

    def texts() -> list[str]:
        return [file.read_text() for file in sorted(chat.glob("*.txt"))]

    def files() -> dict[str, bytes]:
        return {file.name[5:]: file.read_bytes() for file in chat.glob("*-*")}

    return Double("folder", names["PROFILE"], adapter, texts, files)


def platform(_fleet: Fleet, directory: Path, _request: pytest.FixtureRequest) -> Double:
    seen = Platform(directory)

    def files() -> dict[str, bytes]:
        return {n: text.encode() for post in seen.chat(CHAT) for n, text in post.files.items()}

    def texts() -> list[str]:
        return [post.text for post in seen.chat(CHAT) if post.text]

    return Double("test", profile_of("test"), PlatformAdapter(directory), texts, files)


class Terminal:
    """A client that has a console open: it shows what comes, and says so."""

    def __init__(self, fleet: Fleet, directory: Path) -> None:
        self.chat = ConsoleChat()
        self.chat.join(self)
        self.texts: list[str] = []
        self._fleet = fleet
        self._directory = directory
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, _event: str, payload: dict[str, Any], *, may_be_missed: bool = False) -> None:
        task = asyncio.create_task(self._show(payload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _show(self, told: dict[str, Any]) -> None:
        if told["text"]:
            self.texts.append(told["text"])
        unsaved = []
        for file in told["attachments"]:
            named = Attachment.model_validate({**file, "mime_type": file["mimeType"]})
            content = await self._fleet.blobs.get(told["sid"], named)
            if content is None:
                unsaved.append(named.blob)
            else:
                (self._directory / named.name).write_bytes(content)
        self.chat.acknowledge(told["key"], frozenset(unsaved))


def console(fleet: Fleet, directory: Path, _request: pytest.FixtureRequest) -> Double:
    terminal = Terminal(fleet, directory)

    def files() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in directory.iterdir()}

    chat = terminal.chat
    return Double("console", profile_of("console"), chat, lambda: terminal.texts, files)


def telegram(_fleet: Fleet, _directory: Path, request: pytest.FixtureRequest) -> Double:
    bot: TelegramBot = request.getfixturevalue("bot")
    bot.chat(7)
    settings = TelegramAccount(token=bot.token, api_url=bot.api_url)
    adapter = TelegramAdapter(settings)

    def texts() -> list[str]:
        return [text for text in bot.texts(7) if text]

    profile = profile_of("telegram")
    return Double("telegram", profile, adapter, texts, lambda: bot.files(7), chat="7")


@pytest.fixture(params=[folder, platform, console, telegram])
async def double(
    request: pytest.FixtureRequest, stack: Stack, directory: Path
) -> AsyncIterator[Double]:
    (directory / "double").mkdir()
    made: Double = request.param(stack.fleet, directory / "double", request)
    yield made
    if isinstance(made.adapter, TelegramAdapter):
        await made.adapter.aclose()


@contextlib.asynccontextmanager
async def relayed(stack: Stack, double: Double) -> AsyncIterator["asyncio.Task[None]"]:
    reader = stack.fleet.replies.reader(double.provider, "default", token="the same")
    task = asyncio.create_task(relay(reader, double.adapter))
    yield task
    task.cancel()
    await asyncio.wait((task,))


async def say(
    stack: Stack, double: Double, text: str, *, index: int = 0, chat: str = "", **more: Any
) -> None:
    """Put a message on the account's reply stream."""
    chat = chat or double.chat
    await stack.put_reply(double.provider, "default", text, index=index, chat=chat, **more)


async def delivered(stack: Stack, double: Double) -> None:
    """Wait until everything has its receipt."""
    stream = keys.reply_stream(double.provider, "default")

    async def is_empty() -> bool:
        return not await stack.fleet.scripts.client.xlen(stream)

    await eventually(is_empty)


async def test_messages_arrive_once_and_in_order(stack: Stack, double: Double) -> None:
    for index, text in enumerate(("one", "two")):
        await say(stack, double, text, index=index)
    async with relayed(stack, double):
        await delivered(stack, double)
    await say(stack, double, "three", index=2)
    async with relayed(stack, double):
        await delivered(stack, double)

    assert double.texts() == ["one", "two", "three"]


async def test_the_end_of_a_turn_is_no_message(stack: Stack, double: Double) -> None:
    await say(stack, double, "one")
    await say(stack, double, "", index=1, entries=["1-0"])
    async with relayed(stack, double):
        await delivered(stack, double)

    assert double.texts() == ["one"]


async def test_a_message_for_no_chat_holds_nothing_up(stack: Stack, double: Double) -> None:
    await say(stack, double, "lost", chat=NOWHERE, call="call-1")
    await say(stack, double, "one")
    async with relayed(stack, double) as relaying:
        await delivered(stack, double)
        assert not relaying.done()

    assert double.texts() == ["one"]


async def test_a_file_arrives_or_is_kept(stack: Stack, double: Double) -> None:
    there = await stack.fleet.blobs.put(SID, "plan.txt", b"the plan")
    gone = Attachment(name="gone.txt", mime_type="text/plain", size=1, blob="f" * 32)
    await say(stack, double, "Here.", attachments=(there,))
    await say(stack, double, "And here.", index=1, attachments=(gone,))
    async with relayed(stack, double) as relaying:
        await delivered(stack, double)
        assert not relaying.done()

    assert double.files()["plan.txt"] == b"the plan"


async def test_a_burst_arrives_once_and_in_order(stack: Stack, double: Double) -> None:
    async with relayed(stack, double):
        for number in range(50):
            await say(stack, double, f"number {number}", index=number)
        await delivered(stack, double)

    assert double.texts() == [f"number {number}" for number in range(50)]


@pytest.mark.parametrize("double", [platform, telegram], indirect=True)
async def test_each_of_ten_turns_is_shown_and_becomes_its_answer(
    stack: Stack, double: Double
) -> None:
    answers: list[str] = []
    async with relayed(stack, double):
        await heard(stack.fleet, double.provider)
        for number in range(10):
            turn = await Talk.begin(
                stack.fleet, f"{number}", provider=double.provider, chat=double.chat
            )
            await turn.show(f"Number {number} is")
            await eventually(partial(is_shown, double, [*answers, f"Number {number} is"]))
            answers.append(f"Number {number} is done.")
            await turn.end(answers[-1])
            await eventually(partial(is_shown, double, answers))


def is_shown(double: Double, texts: list[str]) -> bool:
    return double.texts() == texts


@pytest.mark.parametrize("double", [platform, telegram], indirect=True)
async def test_a_preview_does_not_outlive_its_relay_and_its_turn(
    stack: Stack, double: Double
) -> None:
    noted = keys.previews(double.provider, "default")
    client: Any = stack.fleet.scripts.client
    async with relayed(stack, double):
        await heard(stack.fleet, double.provider)
        turn = await Talk.begin(stack.fleet, provider=double.provider, chat=double.chat)
        await turn.show("Let me see")
        await eventually(lambda: client.exists(noted))
    await turn.end("Done.")
    async with relayed(stack, double):
        await eventually(partial(is_shown, double, ["Done."]))


async def test_tools_that_an_adapter_can_not_serve_are_not_listed(double: Double) -> None:
    assert isinstance(double.adapter, OperatingAdapter) or double.profile.lacks >= OPERATIONS


@pytest.mark.parametrize("name", CHANNELS)
def test_a_profile_makes_sense(name: str) -> None:
    profile = CHANNELS[name].profile

    assert channel_name(name) == name
    assert profile.chunk_limit >= SMALLEST_LIMIT
    assert profile.lacks <= TOOLS.keys()
    assert profile.has_threads or "message_thread_reply" in profile.lacks
    assert re.compile(profile.id_form or "")
