"""Worlds: the platforms with people on them, for the tests that every adapter must pass.

`remoteclaw channel run` runs the account in the test's own process, with a gateway. People have
numbers: 7 is the owner, 8 may write, 9 is a stranger.
"""

import asyncio
import base64
import contextlib
import io
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, Self
from urllib.parse import quote

import orjson
import pytest

from remoteclaw.channels.process import Channels, create_adapter
from remoteclaw.channels.slack.manifest import BOT_SCOPES, EVENTS
from remoteclaw.channels.web.adapter import WebAdapter
from remoteclaw.channels.web.profile import ADMIN, USER
from remoteclaw.channels.webhook.signing import signed_headers
from remoteclaw.clock import now_ms
from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.fleet import Fleet, keys, web
from remoteclaw.fleet.turns.inbound import APPEND_S, decode_entry
from remoteclaw.fleet.web import ChatEvent
from remoteclaw.messages import Entry, SessionKey
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import CHOICE_EMOJI, ChannelAdapter
from remoteclaw.tools.base import Scope
from tests.support.channel import TestChannel
from tests.support.doors import Door, Refused, RpcClient, opened
from tests.support.failpoints import Side
from tests.support.matrix import Faults, Homeserver, Person
from tests.support.pages import Login, login, paged
from tests.support.platform import MENTION
from tests.support.receiver import Receiver
from tests.support.slack import SlackWorkspace
from tests.support.slack import file as slack_file
from tests.support.slack import mentions_in as slack_mentions
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot, file, mentions_in
from tests.support.waiting import eventually

OWNER = 7
MEGABYTE = 2**20
#: Tests that some platforms lack.
OUTAGE = "test_what_people_do_during_an_outage_is_answered_once"
DELETED = "test_a_message_that_is_deleted_while_it_waits_is_not_answered"
FLOOD = "test_a_slow_file_and_a_flood_hold_up_nobody_else"
OPENED = "test_a_message_in_a_group_opens_a_thread_in_which_nobody_mentions_the_agent_again"
UNSTORED = "test_a_report_that_is_not_stored_is_not_acknowledged"
FIRST = "test_neither_a_bot_nor_what_was_said_before_the_first_start_is_answered"
NO_FILES: Mapping[str, bytes] = MappingProxyType({})


class World(Protocol):
    """A platform with people on it."""

    provider: str
    settings: dict[str, Any]
    most: int
    """The maximum length of a message, in the platform's units."""
    large: int
    """A size of a file that is too large, in bytes."""
    adapter: ChannelAdapter
    """An adapter like the running one."""
    run: Callable[[Fleet], Coroutine[Any, Any, None]]
    """Runs the account until cancelled."""
    fleet: Fleet
    """The connections to Redis with which it runs."""
    running: "asyncio.Task[None]"
    """The task that runs it."""
    lacks: Mapping[str, str] = MappingProxyType({})
    """The tests that don't apply to the platform, with the reasons."""
    group: str = ""
    """The id of a group that has access; empty if the platform has none."""
    has_threads: bool = False
    """Whether a message can begin a thread."""
    goes_by_time: bool = False
    """Whether a source's cursor is a time, so that no message comes after a newer one."""
    refused: str = ""
    """The refusal that the sender of the last message got at once; empty if it was accepted."""

    def there(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Run what the platform needs, before its account runs."""
        return contextlib.nullcontext()

    def person(self, number: int) -> str:
        """Return the platform's id of a person."""
        return str(number)

    def chat(self, number: int) -> str:
        """Return the platform's id of a person's direct chat."""
        return self.person(number)

    def called(self, number: int) -> str:
        """Return how the agent reads who wrote in a thread."""
        return f"Mx {number} ({number})"

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
        """Send or edit a message of a person; return the message's id.

        `more` are further fields of an `Incoming`, where the platform has them.
        """

    async def delete(self, message: str) -> None:
        """Delete a message of the owner, as the owner."""

    async def repeat(self) -> None:
        """Let the platform deliver the last message a second time."""

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        """Allow the request in the last message to the owner once, as a person."""

    def texts(self, chat: int = OWNER) -> list[str]:
        """Return the texts of the bot that a chat shows now."""

    def threads(self) -> list[str | None]:
        """Return the thread of each message of the bot in the group."""

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        """Return the files that the bot has sent to a chat."""

    def mention(self, number: int | None) -> str:
        """Return the platform's mention of a person, or of everybody."""

    def mentioned(self, chat: int = OWNER) -> list[str]:
        """Return the mentions in the texts of the bot that notify somebody."""

    def previewed(self) -> list[str]:
        """Return the texts of the bot whose addresses the platform fetches for a preview."""
        return []

    async def is_seen(self) -> None:
        """Wait until people see everything that the platform has."""

    def is_busy(self, after_s: int) -> None:
        """Refuse the next message to the owner because of a rate limit."""

    def forgets(self) -> None:
        """Accept messages but lose the answers, until `is_back()`."""

    def is_away(self) -> None:
        """Take the platform down, until `is_back()`."""

    def holds_files(self) -> None:
        """Return no file that people have sent, until `is_back()`."""

    def is_back(self) -> None:
        """Let the platform work again."""

    async def leave(self) -> None:
        """End the process that runs the account, and so long that the platform gives up."""
        self.running.cancel()
        await asyncio.wait((self.running,))

    async def come_back(self) -> None:
        """Start the process again."""
        self.running = asyncio.create_task(self.run(self.fleet))


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


class TelegramWorld(World):
    """Telegram."""

    provider = "telegram"
    group = "-100"
    lacks = MappingProxyType(
        {
            DELETED: "Telegram reports no deletions.",
            OPENED: "Telegram's topics exist before their messages.",
        }
    )
    most = 4096
    large = 21 * MEGABYTE

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        self._bot: TelegramBot = request.getfixturevalue("bot")
        self.settings: dict[str, Any] = {"token": self._bot.token, "api_url": self._bot.api_url}
        for chat in (OWNER, 8, int(self.group)):
            self._bot.chat(chat)

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
        sent = [
            file(name, content[:100], size=len(content)) for name, content in files.items()
        ]  # larger files are not requested
        more |= {"edits": int(edits)} if edits else {}
        if more.pop("is_for_us", False):
            text = f"@{self._bot.username} {text}"
        about = {"chat": by, **more, "by": by, "name": name, "files": sent}
        return str(self._bot.say(text, **about))

    async def repeat(self) -> None:
        self._bot.tell({"message": self._bot.chat(OWNER)[-1]})

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        (shown,) = [one for one in self._bot.chat(OWNER) if "reply_markup" in one]
        self._bot.press("Allow once", chat=OWNER, message=shown["message_id"], by=by)

    def texts(self, chat: int = OWNER) -> list[str]:
        return [text for text in self._bot.texts(chat) if text]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        return self._bot.files(chat)

    def mention(self, number: int | None) -> str:
        return "@everybody" if number is None else f"@person{number}"  # the bot knows no names

    def mentioned(self, chat: int = OWNER) -> list[str]:
        ours = (one for one in self._bot.chat(chat) if one["from"]["id"] == self._bot.id)
        return [name for one in ours for name in mentions_in(one)]

    def previewed(self) -> list[str]:
        calls = self._bot.calls("sendMessage", "editMessageText")
        off = '{"is_disabled": true}'
        return [call["text"] for call in calls if call.get("link_preview_options") != off]

    def is_busy(self, after_s: int) -> None:
        self._bot.fault("sendMessage", "busy", chat=OWNER, retry_after=after_s)

    def forgets(self) -> None:
        self._bot.fault("sendMessage", "lost")

    def is_away(self) -> None:
        self._bot.fault("*", "page", code=502, times=10**6)

    def holds_files(self) -> None:
        self._bot.fault("getFile", "held")

    def is_back(self) -> None:
        self._bot.release()


class WebhookWorld(World):
    """A webhook program between RemoteClaw and people."""

    provider = "webhook"
    most = 100_000
    large = 3 * MEGABYTE
    lacks = MappingProxyType(
        {
            "test_an_agent_mentions_nobody": "The program knows its platform's mentions.",
            FLOOD: "It has no groups here.",
            OPENED: "The program opens threads.",
            UNSTORED: "The program gets an error, and posts again.",
            OUTAGE: "The gateway takes what the program posts.",
            FIRST: "The program posts no messages of bots, and no old ones.",
        }
    )

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
        **more: Any,
    ) -> str:
        body: dict[str, Any] = {"id": uuid.uuid4().hex, "chat": str(by), "from": str(by)}
        body |= {"text": text, "name": name, "files": [*map(_posted, files, files.values())]}
        body |= {"replaces": edits} if edits else more
        self._last = orjson.dumps(body)
        await self.repeat()
        return str(body["id"])

    async def delete(self, message: str) -> None:
        await self.say("", deletes=message)

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
        """Return the received messages without repetitions, which have the same key."""
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


class MatrixWorld(World):
    """A real homeserver. The owner wrote there before the account was set up."""

    provider = "matrix"
    most = 12_000
    large = 21 * MEGABYTE
    has_threads = True

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        self._server: Homeserver = request.getfixturevalue("homeserver")
        self._stack = stack
        self.settings: dict[str, Any] = {}
        self._people: dict[int, Person] = {}
        self._rooms: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._position = ""

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as exits:
            bot = await exits.enter_async_context(Person.registered(self._server, "bot"))
            self._bot = bot.id
            for number in (OWNER, 8, 9):
                entered = Person.registered(self._server, f"person{number}")
                self._people[number] = person = await exits.enter_async_context(entered)
                self._rooms[number] = room = await person.create(bot.id)
                await bot.join(room)
            owner = self._people[OWNER]
            others = [self._people[number].id for number in (8, 9)]
            self.group = await owner.create(bot.id, *others, is_direct=False)
            for each in (bot, *self._people.values()):
                if each is not owner:
                    await each.join(self.group)
            await self.say("said before the first start")
            following = [asyncio.create_task(each.follow()) for each in self._people.values()]
            self._faults = await exits.enter_async_context(Faults.before(self._server.url))
            self.settings = {"api_url": self._faults.url, "token": bot.login.token}
            yield
            for task in following:
                task.cancel()
            await asyncio.wait(following)

    def person(self, number: int) -> str:
        return self._people[number].id

    def chat(self, number: int) -> str:
        return self._rooms[number]

    def called(self, number: int) -> str:
        id_ = self.person(number)
        return f"{id_[1:].partition(':')[0]} ({id_})"

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
        person, room = self._people[by], more.pop("chat", self._rooms[by])
        if self._names.get(by, "Ann") != name:
            await person.call(
                "PUT", "profile", person.id, "displayname", body={"displayname": name[:256]}
            )
            self._names[by] = name
        self._position = await self._newest()
        content: dict[str, Any] = {"edits": edits or None}
        if more.pop("is_for_us", False):
            content["mentions"] = (self._bot,)
        if more.pop("is_bot", False):
            content["msgtype"] = "m.notice"
        if (at_ms := more.pop("at_ms", None)) is not None:
            content["at_ms"] = at_ms
        for title, what in files.items():
            content |= {"msgtype": "m.file", "filename": title, "info": {"size": len(what)}}
            content["url"] = await person.upload(title, what[:1000])  # larger ones are not fetched
        return await person.say(room, text, **content, **more)

    async def _newest(self) -> str:
        client: Any = self._stack.fleet.scripts.client
        position = await client.hget(keys.cursors("matrix", "default"), self._bot)
        return position.decode() if position else ""

    async def delete(self, message: str) -> None:
        await self._people[OWNER].redact(self._rooms[OWNER], message)

    async def repeat(self) -> None:
        """Ask the homeserver again for what comes after an earlier position."""
        await self.leave()
        client: Any = self._stack.fleet.scripts.client
        await client.hset(keys.cursors("matrix", "default"), self._bot, self._position)
        await self.come_back()

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        if by != OWNER:
            await self.say(f"/allow {request}", by=by)
            await eventually(lambda: self.texts(by))
            return
        shown = [id_ for id_, text in self._shown(OWNER).items() if "asks to use" in text]
        await self._people[OWNER].react(self._rooms[OWNER], shown[-1], CHOICE_EMOJI["once"])

    def _shown(self, chat: int) -> dict[str, str]:
        """Return the texts of the bot that a chat shows, by the ids of their messages."""
        shown: dict[str, str] = {}
        for each in self._ours(self._people[chat], self._rooms[chat]):
            content, relation = each["content"], each["content"].get("m.relates_to", {})
            if each["type"] == "m.room.redaction":
                shown.pop(str(each.get("redacts") or content.get("redacts")), None)
            elif relation.get("rel_type") == "m.replace":
                shown[relation["event_id"]] = content["m.new_content"]["body"]
            elif each["type"] == "m.room.message" and "url" not in content:
                shown[each["event_id"]] = content.get("body", "")
        return shown

    def _ours(self, person: Person, room: str) -> list[dict[str, Any]]:
        return [each for each in person.events.get(room, ()) if each["sender"] == self._bot]

    def texts(self, chat: int = OWNER) -> list[str]:
        return [text for text in self._shown(chat).values() if text]

    def threads(self) -> list[str | None]:
        said = self._ours(self._people[OWNER], self.group)
        relations = [
            each["content"].get("m.relates_to", {})
            for each in said
            if each["type"] == "m.room.message"
        ]
        return [
            each["event_id"] if each.get("rel_type") == "m.thread" else None
            for each in relations
            if each.get("rel_type") != "m.replace"
        ]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        found = {}
        for each in self._ours(self._people[chat], self._rooms[chat]):
            if "url" in each["content"]:
                found[each["content"]["filename"]] = self._people[chat].downloaded(
                    each["content"]["url"]
                )
        return found

    def mention(self, number: int | None) -> str:
        return "@room" if number is None else self.person(number)

    def mentioned(self, chat: int = OWNER) -> list[str]:
        found = []
        for each in self._ours(self._people[chat], self._rooms[chat]):
            content = each["content"].get("m.new_content", each["content"])
            found += content.get("m.mentions", {}).get("user_ids", ())
            found += re.findall(r"@(?:room\b|[\w.-]+:localhost)", content.get("body", ""))
        return found

    async def is_seen(self) -> None:
        for number, person in self._people.items():
            newest = (await person.timeline(self._rooms[number]))[-1]["event_id"]

            def has_seen(person: Person, room: str, newest: str) -> bool:
                return newest in [each["event_id"] for each in person.events.get(room, ())]

            await eventually(partial(has_seen, person, self._rooms[number], newest))

    def is_busy(self, after_s: int) -> None:
        path = f"PUT .*{re.escape(self._rooms[OWNER])}/send/"
        self._faults.refuse(path, 429, after_s=after_s)

    def forgets(self) -> None:
        self._faults.lose("PUT .*/send/")

    def is_away(self) -> None:
        self._faults.refuse("", 502, times=10**6)

    def holds_files(self) -> None:
        self._faults.hold("GET .*/media/download/")

    def is_back(self) -> None:
        self._faults.end()


class SlackWorld(World):
    """Slack. The owner wrote there before the account was set up."""

    provider = "slack"
    most = 4000
    large = 21 * MEGABYTE
    has_threads = True
    goes_by_time = True

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        self._team: SlackWorkspace = request.getfixturevalue("team")
        self._team.set(scopes=[*BOT_SCOPES], events=[*EVENTS])  # as the app's manifest says
        self._team.set(limit_scale=100)  # the suite is quicker than people
        self._people: dict[int, str] = {
            number: self._team.person(f"person{number}") for number in (OWNER, 8, 9)
        }
        self._chats: dict[int, str] = {
            number: self._team.direct(id_) for number, id_ in self._people.items()
        }
        self.group = self._team.channel("room", members=[*self._people.values()])
        self._last: dict[str, Any] = {}
        self.settings: dict[str, Any] = {
            "api_url": self._team.api_url,
            "token": self._team.bot_token,
            "app_token": self._team.app_token,
        }

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        await self.say("said before the first start")
        yield

    def person(self, number: int) -> str:
        return self._people[number]

    def chat(self, number: int) -> str:
        return self._chats[number]

    def called(self, number: int) -> str:
        return f"person{number} ({self.person(number)})"

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
        chat, user = more.pop("chat", self._chats[by]), self._people[by]
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        if name != "Ann":
            self._team.call_person(user, name)
        if edits:
            self._team.edit(chat, edits, text)
            return edits
        if more.pop("is_for_us", False):
            text = f"<@{self._team.bot}> {text}"
        if more.pop("is_bot", False):
            more["bot_id"] = "B0000000001"
        sent = [slack_file(title, what[:1000], size=len(what)) for title, what in files.items()]
        return str(self._team.say(chat, user, text, files=sent, **more))

    async def delete(self, message: str) -> None:
        self._team.delete(self._chats[OWNER], message)

    async def repeat(self) -> None:
        """Deliver the last event again, as after a lost acknowledgement."""
        events = [
            each["payload"] for each in self._team.envelopes() if each["type"] == "events_api"
        ]
        self._team.tell(events[-1]["event"])

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        shown = [each for each in self._ours(OWNER) if len(each.get("blocks", ())) > 1]
        self._team.press(self._chats[OWNER], shown[-1]["ts"], self._people[by], "once")

    def _ours(self, chat: int) -> list[dict[str, Any]]:
        found = self._team.messages(self._chats[chat])
        return [each for each in found if each["user"] == self._team.bot]

    def texts(self, chat: int = OWNER) -> list[str]:
        alone = [each["text"] for each in self._team.ephemerals(self._people[chat])]
        return [*filter(None, map(_read_in_slack, self._ours(chat))), *alone]

    def threads(self) -> list[str | None]:
        ours = [each for each in self._team.messages(self.group) if each["user"] == self._team.bot]
        return [each.get("thread_ts") for each in ours]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        return self._team.files(self._chats[chat])

    def mention(self, number: int | None) -> str:
        return "<!channel>" if number is None else f"<@{self.person(number)}>"

    def mentioned(self, chat: int = OWNER) -> list[str]:
        return [name for each in self._ours(chat) for name in slack_mentions(each)]

    def previewed(self) -> list[str]:
        calls = [each["arguments"] for each in self._team.calls("chat.postMessage")]
        return [str(each) for each in calls if each.get("unfurl_links") != "false"]

    def is_busy(self, after_s: int) -> None:
        self._team.fault("chat.postMessage", "limited", after_s=after_s)

    def forgets(self) -> None:
        self._team.fault("chat.postMessage", "drop", is_done=True, times=10**6)

    def is_away(self) -> None:
        self._team.fault("*", "status", status=503, times=10**6)
        self._team.drop()

    def holds_files(self) -> None:
        self._team.fault("files.info", "hold", times=10**6)

    async def come_back(self) -> None:
        """Start the process again; after a minute, Slack repeats what was not acknowledged."""
        await super().come_back()
        await eventually(self._team.sockets)
        self._team.advance(60)

    def is_back(self) -> None:
        self._team.release()


def _read_in_slack(message: Mapping[str, Any]) -> str:
    """Return the text of a message as people see it: its blocks, if it has some."""
    shown = [each["text"] for each in message.get("blocks", ()) if each["type"] == "markdown"]
    return "\n".join(shown) or str(message["text"])


WORLDS = (
    TestWorld,
    HistoryWorld,
    PlazaWorld,
    TelegramWorld,
    MatrixWorld,
    SlackWorld,
    WebhookWorld,
    WebWorld,
)


def configured(world: World) -> dict[str, Any]:
    """Return the section of the platform's channel, with the people who may write."""
    groups: dict[str, Any] = {world.group: {}} if world.group else {}
    may_write = {"owners": [world.person(OWNER)], "allow": [world.person(8)]}
    return {world.provider: {**may_write, **world.settings, "groups": groups}}


@contextlib.asynccontextmanager
async def entered(world: World, stack: Stack) -> AsyncIterator[None]:
    """Run the platform's account, and a gateway."""
    if isinstance(world, WebWorld):
        stack.configure(channels=configured(world))
        async with world.entered():
            yield
        return
    account = world.provider, "default"

    async def is_there() -> bool:
        """Whether the first poll was made, before which everything is old."""
        view = await stack.fleet.accounts.view(*account)
        has_polled = await stack.fleet.scripts.client.exists(keys.cursors(*account))
        return bool(view.name) and bool(has_polled or not profile_of(world.provider).reads_history)

    async with world.there(), opened(stack) as door:
        stack.configure(channels=configured(world))
        config = CurrentConfig(stack.home, load_config(stack.home.config_file))
        if isinstance(world, WebhookWorld):
            world.door = door
        world.fleet = stack.fleet
        world.run = lambda fleet: Channels(fleet, stack.home, config).run()
        world.running = asyncio.create_task(world.run(world.fleet))
        world.adapter = adapter = create_adapter(world.provider, config().accounts()[account])
        try:
            await eventually(is_there)
            yield
        finally:
            world.running.cancel()
            await asyncio.wait((world.running,))
            await adapter.aclose()


def session_of(world: World, by: int, thread: str | None = None) -> SessionKey:
    """Return the session of a person's direct chat, or of a thread there."""
    return SessionKey("main", world.provider, "default", world.chat(by), world.person(by), thread)


async def accepted(
    stack: Stack, world: World, count: int, *, by: int = OWNER, thread: str | None = None
) -> list[Entry]:
    """Return the accepted entries of a person, once there are `count`."""
    stream = keys.inbound(session_of(world, by, thread).sid)
    client: Any = stack.fleet.scripts.client

    async def entries() -> Any:
        found = await client.xrange(stream)
        return found if len(found) >= count else None

    return [decode_entry(*entry) for entry in await eventually(entries)]


async def put_replies(stack: Stack, world: World, texts: Sequence[str], chat: int = OWNER) -> None:
    """Put messages on the account's reply stream."""
    about: Any = {"index": 100 * chat, "chat": world.chat(chat)}
    await stack.put_replies(world.provider, "default", texts, **about)


async def settled(stack: Stack, world: World) -> None:
    """Wait until every reply has its receipt and is visible."""
    stream: Any = keys.replies(world.provider, "default")
    client: Any = stack.fleet.scripts.client

    async def is_empty() -> bool:
        return not await client.xlen(stream)

    await eventually(is_empty)
    await world.is_seen()


def has_texts(world: World, texts: Sequence[str]) -> bool:
    """Whether the owner's chat shows these texts of the bot."""
    return world.texts() == texts
