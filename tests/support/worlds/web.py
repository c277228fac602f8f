"""The page with people on it."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import quote

import pytest

from remoteclaw.channels.web.adapter import WebAdapter
from remoteclaw.channels.web.profile import ADMIN, USER
from remoteclaw.fleet import web
from remoteclaw.fleet.turns.inbound import APPEND_S
from remoteclaw.fleet.web import ChatEvent
from remoteclaw.tools.base import Scope
from tests.support.doors import Door, Refused, RpcClient, opened
from tests.support.failpoints import Side
from tests.support.pages import Login, login, paged
from tests.support.stack import Stack
from tests.support.waiting import eventually
from tests.support.worlds.world import (
    DELETED,
    FIRST,
    FLOOD,
    MEGABYTE,
    NO_FILES,
    OPENED,
    OUTAGE,
    OWNER,
    UNSTORED,
    World,
)


class WebWorld(World):
    """The page. Its chats are in Redis, so faults are faults of the connection to the gateway."""

    provider = "web"
    most = 200_000
    large = 21 * MEGABYTE
    lacks = MappingProxyType(
        {
            "test_an_edit_takes_the_place_of_a_message_that_waits": "Nothing is edited there.",
            "test_no_display_name_can_impersonate_another_person": "A login's name is its id.",
            "test_a_rate_limit_is_waited_out": "Redis has no such limit.",
            "test_an_agent_mentions_nobody": "It has no mentions.",
            DELETED: "Nothing is deleted there.",
            FLOOD: "It has no groups.",
            OPENED: "It has no groups.",
            UNSTORED: "Redis has its chats.",
            OUTAGE: "Redis has its chats.",
            FIRST: "Only people log in, and it has no other chats.",
        }
    )

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        self._patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        self.adapter = WebAdapter(stack.fleet.web, lambda: 60_000)
        self.settings: dict[str, Any] = {}
        self._stack = stack
        self._windows: dict[int, Window] = {}
        self._last: tuple[int, dict[str, Any]] = (OWNER, {})
        self._unsent: list[tuple[int, dict[str, Any]]] = []
        self._is_cut = False

    def person(self, number: int) -> str:
        return f"{ADMIN if number == OWNER else USER}{number}"

    @contextlib.asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """Log everybody in, which grants access, and revoke the stranger's access."""
        self._proxy = await self._stack.proxied()
        fleet = self._stack.open_at(self._proxy.url)
        async with opened(self._stack, fleet=fleet) as door, contextlib.AsyncExitStack() as exits:
            for number in (OWNER, 8, 9):
                scope: Scope = "admin" if number == OWNER else "write"
                one = await login(self._stack, door, name=str(number), scope=scope)
                window = Window.opened(door, one)
                self._windows[number] = await exits.enter_async_context(window)
            await self._stack.fleet.pairings.remove(self.person(9), provider=self.provider)
            yield

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
        taken = [await self._windows[by].attach(*file) for file in files.items()]
        self.refused = " ".join(each for each in taken if isinstance(each, str))
        if self.refused:
            return ""
        self._last = by, {"messageId": uuid.uuid4().hex, "text": text, "files": taken}
        return await self._send(*self._last)

    async def _send(self, by: int, message: dict[str, Any]) -> str:
        """Send a message, or send it once the connection is back, as the page does."""
        try:
            return str((await self._windows[by].send(message))["id"])
        except Refused as refused:
            if not (self._is_cut and refused.error["retryable"]):
                raise
            self._unsent.append((by, message))
            return ""

    async def repeat(self) -> None:
        await self._send(*self._last)

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        answer = {"request": request, "verdict": "once"}
        await self._send(by, {"messageId": uuid.uuid4().hex, "answer": answer})

    def texts(self, chat: int = OWNER) -> list[str]:
        return self._windows[chat].texts()

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        return self._windows[chat].files

    async def is_seen(self) -> None:
        for number, window in self._windows.items():
            newest = await self._stack.fleet.web.before(self.person(number), limit=1)
            await eventually(partial(window.has_shown, *newest))

    def forgets(self) -> None:
        self._cut("after")

    def is_away(self) -> None:
        self._cut("before")

    def _cut(self, side: Side) -> None:
        self._is_cut = True
        self._proxy.cut("web_add", side)
        self._patch.setattr(web, "APPEND_S", 0.1)

    def is_back(self) -> None:
        self._patch.setattr(web, "APPEND_S", APPEND_S)
        self._proxy.disarm()
        self._is_cut = False
        self._sending = asyncio.create_task(self._send_unsent())

    async def _send_unsent(self) -> None:
        while self._unsent:
            await self._send(*self._unsent.pop(0))


class Window:
    """An open page, which records each event as often as it arrives."""

    def __init__(self, door: Door, login: Login, page: RpcClient, session: str) -> None:
        self.page = page
        self.files: dict[str, bytes] = {}
        self._door = door
        self._headers = {**login.headers, "Origin": door.url}
        self._session = session
        self._shown: list[dict[str, Any]] = []
        self._live: dict[str, Any] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, door: Door, login: Login) -> AsyncIterator[Self]:
        """Log in and open the page."""
        async with paged(door, login) as page, paged(door, login) as news:
            here = await news.call("chat.open")
            window = cls(door, login, page, here["sessionKey"])
            looking = asyncio.create_task(window._look(news))
            yield window
            looking.cancel()
            await asyncio.wait((looking,))

    async def _look(self, news: RpcClient) -> None:
        while True:
            match news.events.pop(0) if news.events else await news.frame():
                case {"event": "session.live", "payload": shown}:
                    self._live = shown
                case {"event": "chat.event", "payload": event}:
                    for file in event.get("files", ()) if event.get("from") == "agent" else ():
                        await self._save(event["sid"], file)
                    self._shown.append(event)

    async def _save(self, sid: str, file: dict[str, Any]) -> None:
        where = f"/page/files/{sid}/{file['blob']}?size={file['size']}"
        answer = await self._door.get(where, **self._headers)
        assert answer.status == 200, answer.body
        self.files[file["name"]] = answer.body

    async def attach(self, name: str, content: bytes) -> dict[str, Any] | str:
        """Upload a file for a message; return it, or the reason of the refusal."""
        where = f"/page/files?session={quote(self._session)}&name={quote(name)}"
        answer = await self._door.post(where, None, content, **self._headers)
        return dict(answer.json) if answer.status == 200 else str(answer.json["error"]["message"])

    async def send(self, message: dict[str, Any]) -> Any:
        """Send a message in the chat."""
        return await self.page.call("chat.send", {"sessionKey": self._session, **message})

    def texts(self) -> list[str]:
        """Return the shown messages of the agent, including live text."""
        said = [event for event in self._shown if event.get("from") == "agent"]
        is_live = self._live and all(event["turn"] != self._live["turn"] for event in said)
        texts = [event["text"] for event in said if event["text"]]
        return [*texts, *([self._live["text"]] if is_live else [])]

    def has_shown(self, newest: ChatEvent | None = None) -> bool:
        """Whether the page shows everything up to the event `newest`."""
        return newest is None or newest.id in [event["id"] for event in self._shown]
