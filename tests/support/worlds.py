"""Worlds: each platform with people in it, for what every adapter must do.

`remoteclaw channel run` runs the account in the test's own process, and a gateway beside it. People
are called by numbers; 7 is the owner, 8 may write, 9 is a stranger.
"""

import asyncio
import base64
import contextlib
import io
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import orjson
import pytest

from remoteclaw.channels.process import Channels, create_adapter
from remoteclaw.channels.webhook.signing import signed_headers
from remoteclaw.config.load import CurrentConfig, load_config
from remoteclaw.protocols import PlatformAdapter
from tests.support.channel import TestChannel
from tests.support.doors import Door, opened
from tests.support.receiver import Receiver
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot, file
from tests.support.waiting import eventually

__all__ = ["OWNER", "WORLDS", "World", "entered"]

OWNER = 7
MEGABYTE = 2**20
NO_FILES: Mapping[str, bytes] = MappingProxyType({})


class World(Protocol):
    """A platform."""

    provider: str
    settings: dict[str, Any]
    most: int
    """How long a message may be, in its units."""
    large: int
    """The size of a file that is too large, in bytes."""
    adapter: PlatformAdapter
    """An adapter like the one that runs."""

    async def say(
        self,
        text: str,
        *,
        by: int = OWNER,
        name: str = "Ann",
        edits: str = "",
        files: Mapping[str, bytes] = NO_FILES,
    ) -> str:
        """Have a person write, or edit what they wrote; return the message's id."""

    async def repeat(self) -> None:
        """Have the platform tell of the last message once more."""

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        """Have a person allow once what the last message to the owner asks for."""

    def texts(self, chat: int = OWNER) -> list[str]:
        """Return what the bot has said in a chat, as it stands there."""

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        """Return the files that it has sent there."""

    def is_busy(self, after_s: int) -> None:
        """Have the next message to the owner be one too many."""

    def forgets(self) -> None:
        """Have the next message arrive, and its answer be lost, until `is_back()`."""

    def is_away(self) -> None:
        """Have it be out of order."""

    def is_back(self) -> None:
        """Have it work again."""


class TestWorld:
    """The platform of the tests."""

    __test__ = False
    provider = "test"
    most = 4000
    large = MEGABYTE + 1
    adapter: PlatformAdapter

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        monkeypatch = request.getfixturevalue("monkeypatch")
        self._platform = TestChannel.installed(monkeypatch, stack).platform
        directory = str(stack.home.path / "platform")
        self.settings: dict[str, Any] = {"directory": directory, "attachment_mb": 1}
        self._last: dict[str, Any] = {}

    async def say(
        self,
        text: str,
        *,
        by: int = OWNER,
        name: str = "Ann",
        edits: str = "",
        files: Mapping[str, bytes] = NO_FILES,
    ) -> str:
        contents = {name: content.decode() for name, content in files.items()}
        more = {"replaces": edits} if edits else {}
        self._last = {"text": text, "sender_name": name, "files": contents, **more}
        self._last |= {"chat": str(by), "by": str(by)}
        self._last["id"] = self._platform.say(**self._last)
        return str(self._last["id"])

    async def repeat(self) -> None:
        self._platform.say(**self._last)

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        await self.say("1" if by == OWNER else f"/allow {request}", by=by)
        await eventually(lambda: self.texts(by))

    def texts(self, chat: int = OWNER) -> list[str]:
        return [post.text for post in self._platform.chat(str(chat)) if post.by == "agent"]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        posts = [post for post in self._platform.chat(str(chat)) if post.by == "agent"]
        return {name: text.encode() for post in posts for name, text in post.files.items()}

    def is_busy(self, after_s: int) -> None:
        self._platform.tell(busy_s={str(OWNER): after_s})
        self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        await eventually(lambda: self._platform.did("busy"))
        self._platform.tell()

    def forgets(self) -> None:
        self._platform.tell(answers=False)

    def is_away(self) -> None:
        self._platform.tell(breaks=True)

    def is_back(self) -> None:
        self._platform.tell()


class TelegramWorld:
    """Telegram."""

    provider = "telegram"
    most = 4096
    large = 21 * MEGABYTE
    adapter: PlatformAdapter

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        self._bot: TelegramBot = request.getfixturevalue("bot")
        self.settings: dict[str, Any] = {"token": self._bot.token, "api_url": self._bot.api_url}
        for chat in (OWNER, 8):
            self._bot.chat(chat)

    async def say(
        self,
        text: str,
        *,
        by: int = OWNER,
        name: str = "Ann",
        edits: str = "",
        files: Mapping[str, bytes] = NO_FILES,
    ) -> str:
        sent = [
            file(name, content[:100], size=len(content)) for name, content in files.items()
        ]  # what is larger is not asked for
        more: dict[str, Any] = {"edits": int(edits)} if edits else {}
        return str(self._bot.say(text, chat=by, name=name, files=sent, **more))

    async def repeat(self) -> None:
        self._bot.tell({"message": self._bot.chat(OWNER)[-1]})

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        (shown,) = [one for one in self._bot.chat(OWNER) if "reply_markup" in one]
        self._bot.press("Allow once", chat=OWNER, message=shown["message_id"], by=by)

    def texts(self, chat: int = OWNER) -> list[str]:
        return [text for text in self._bot.texts(chat) if text]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        return self._bot.files(chat)

    def is_busy(self, after_s: int) -> None:
        self._bot.fault("sendMessage", "busy", chat=OWNER, retry_after=after_s)

    def forgets(self) -> None:
        self._bot.fault("sendMessage", "lost")

    def is_away(self) -> None:
        self._bot.fault("*", "page", code=502, times=10**6)

    def is_back(self) -> None:
        self._bot.release()


class WebhookWorld:
    """A program between RemoteClaw and whatever people use."""

    provider = "webhook"
    most = 100_000
    large = 3 * MEGABYTE
    adapter: PlatformAdapter

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        self.door: Door
        self._receiver: Receiver = request.getfixturevalue("receiver")
        self.settings: dict[str, Any] = {"token": self._receiver.token, "url": self._receiver.url}
        self._last = b""

    async def say(
        self,
        text: str,
        *,
        by: int = OWNER,
        name: str = "Ann",
        edits: str = "",
        files: Mapping[str, bytes] = NO_FILES,
    ) -> str:
        body: dict[str, Any] = {"id": uuid.uuid4().hex, "chat": str(by), "from": str(by)}
        body |= {"text": text, "name": name, "files": [*map(_posted, files, files.values())]}
        body |= {"replaces": edits} if edits else {}
        self._last = orjson.dumps(body)
        await self.repeat()
        return str(body["id"])

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        body = {"id": uuid.uuid4().hex, "chat": str(OWNER), "from": str(by)}
        answer = {"request": request, "verdict": "once"}
        self._last = orjson.dumps({**body, "answer": answer})
        await self.repeat()

    async def repeat(self) -> None:
        headers = signed_headers(self._receiver.token, self._last, at_s=int(time.time()))
        url = f"{self.door.url}/webhook"
        body = io.BytesIO(self._last)
        async with self.door.http.post(url, data=body, headers=headers) as answer:
            self.refused = "" if answer.ok else str((await answer.json())["error"]["message"])

    def _posts(self, chat: int) -> list[dict[str, Any]]:
        """Return what came, without what came again: the key says so."""
        posts = {each["key"]: each for each in self._receiver.messages}
        return [each for each in posts.values() if each["chat"] == str(chat)]

    def texts(self, chat: int = OWNER) -> list[str]:
        return [each["text"] for each in self._posts(chat) if each["text"]]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        sent = [each["file"] for each in self._posts(chat) if "file" in each]
        return {each["name"]: base64.b64decode(each["content"]) for each in sent}

    def is_busy(self, after_s: int) -> None:
        self._receiver.answers.append((429, {"Retry-After": str(after_s)}, b""))

    def forgets(self) -> None:
        self._receiver.forgets = True

    def is_away(self) -> None:
        self._receiver.is_away = True

    def is_back(self) -> None:
        self._receiver.is_away = self._receiver.forgets = False


def _posted(name: str, content: bytes) -> dict[str, str]:
    return {"name": name, "mimeType": "text/plain", "content": base64.b64encode(content).decode()}


WORLDS = (TestWorld, TelegramWorld, WebhookWorld)


@contextlib.asynccontextmanager
async def entered(world: World, stack: Stack) -> AsyncIterator[None]:
    """Have its account run, and a gateway."""
    settings = {"owners": [str(OWNER)], "allow": ["8"], **world.settings}
    stack.configure(channels={world.provider: settings})
    config = CurrentConfig(stack.home, load_config(stack.home.config_file))
    account = world.provider, "default"

    async def is_there() -> bool:
        return bool((await stack.fleet.accounts.view(*account)).name)

    async with opened(stack) as door:
        if isinstance(world, WebhookWorld):
            world.door = door
        running = asyncio.create_task(Channels(stack.fleet, stack.home, config).run())
        world.adapter = create_adapter(world.provider, config().accounts()[account])
        try:
            await eventually(is_there)
            yield
        finally:
            running.cancel()
            await asyncio.wait((running,))
            await world.adapter.aclose()
