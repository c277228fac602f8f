"""The platform of the tests, in its three forms."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from remoteclaw.clock import now_ms
from remoteclaw.protocols import CHOICE_EMOJI
from tests.support.channel import TestChannel
from tests.support.platform import MENTION
from tests.support.stack import Stack
from tests.support.waiting import eventually
from tests.support.worlds.world import MEGABYTE, NO_FILES, OWNER, World


class TestWorld(World):
    """The platform of the tests, in the form that is polled."""

    __test__ = False
    provider = "test"
    group = "g1"
    most = 4000
    large = MEGABYTE + 1

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        monkeypatch = request.getfixturevalue("monkeypatch")
        self.channel = TestChannel.installed(monkeypatch, stack, self.provider)
        self._platform = self.channel.platform
        self.settings: dict[str, Any] = {**self.channel.settings, "attachment_mb": 1}
        self._last: dict[str, Any] = {}

    async def say(
        self,
        text: str,
        *,
        by: int = OWNER,
        name: str = "Ann",
        edits: str = "",
        files: Mapping[str, bytes] = NO_FILES,
        **more: Any,
    ) -> str:
        contents = {name: content.decode() for name, content in files.items()}
        more |= {"replaces": edits} if edits else {}
        self._last = {"text": text, "sender_name": name, "files": contents, **more}
        self._last = {"chat": str(by), **self._last, "by": str(by)}
        self._last["id"] = self._platform.say(**self._last)
        return str(self._last["id"])

    async def repeat(self) -> None:
        self._platform.say(**self._last)

    async def delete(self, message: str) -> None:
        await self.say("", deletes=message)

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        await self.say("1" if by == OWNER else f"/allow {request}", by=by)
        await eventually(lambda: self.texts(by))

    def texts(self, chat: int = OWNER) -> list[str]:
        return [post.text for post in self._platform.chat(str(chat)) if post.by == "agent"]

    def threads(self) -> list[str | None]:
        return [post.thread for post in self._platform.chat(self.group) if post.by == "agent"]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        posts = [post for post in self._platform.chat(str(chat)) if post.by == "agent"]
        return {name: text.encode() for post in posts for name, text in post.files.items()}

    def mention(self, number: int | None) -> str:
        return "<@all>" if number is None else f"<@{number}>"

    def mentioned(self, chat: int = OWNER) -> list[str]:
        return [each[0] for text in self.texts(chat) for each in MENTION.finditer(text)]

    def is_busy(self, after_s: int) -> None:
        self._platform.tell(busy_s={str(OWNER): after_s})
        self._ending = asyncio.create_task(self._end())

    def was_busy(self) -> bool:
        """Whether the platform has refused a call because of a rate limit."""
        return bool(self._platform.did("busy"))

    async def _end(self) -> None:
        await eventually(self.was_busy)
        self._platform.tell()

    def forgets(self) -> None:
        self._platform.tell(answers=False)

    def is_away(self) -> None:
        self._platform.tell(breaks=True)

    def holds_files(self) -> None:
        self._platform.tell(stops="fetch before")

    def is_back(self) -> None:
        self._platform.tell()


class HistoryWorld(TestWorld):
    """The platform of the tests, in the form that has histories.

    The owner wrote there before the account was set up.
    """

    provider = "history"
    has_threads = True

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        self._platform.tell(drops=True)
        await self.say("said before the first start")
        self._platform.tell()
        yield

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        shown = [each for each in self._platform.chat(str(OWNER)) if "asks to use" in each.text]
        choice: dict[str, Any] = {"reaction": CHOICE_EMOJI["once"], "reply_to": shown[-1].id}
        await self.say("", by=by, chat=str(OWNER), **choice)

    async def leave(self) -> None:
        await super().leave()
        self._platform.tell(drops=True, ends_sessions=True)

    async def come_back(self) -> None:
        self._platform.tell()
        await super().come_back()


class PlazaWorld(HistoryWorld):
    """The platform of the tests, in the form that pushes."""

    provider = "plaza"
    most = 2000

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        async with super().there(), self.channel.there():
            self.settings |= self.channel.settings
            yield

    async def come_back(self) -> None:
        count = len(self._platform.did("followed"))
        self._platform.tell(ends_sessions=True)
        await super(HistoryWorld, self).come_back()
        await eventually(lambda: len(self._platform.did("followed")) > count)

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        press = self._press(request, by=by)
        await eventually(lambda: press in [each["press"] for each in self._platform.did("told")])
        assert press in [each["press"] for each in self._platform.did("confirmed")]

    def press_in_vain(self, request: str) -> bool:
        """Press a button while nobody confirms it; return whether the person sees an error."""
        return self._platform.is_failed(self._press(request, at_ms=now_ms() - 4000))

    def _press(self, request: str, *, by: int = OWNER, **more: Any) -> str:
        shown = [each for each in self._platform.delivered if each.get("card") == request]
        return self._platform.press(str(OWNER), shown[-1]["id"], "once", by=str(by), **more)
