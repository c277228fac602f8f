"""The page's chats: what happens in them is delivered by this gateway, and told to browsers."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.channels.relay import relay
from remoteclaw.channels.web.adapter import WebAdapter
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.web import ChatEvent, WebChats, of_chat
from remoteclaw.gateway.feeds import Audience, Feeds
from remoteclaw.gateway.page.notifier import Notifier
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import DEFAULT_ACCOUNT, SessionKey, stream_order

CHANNEL = "web"
#: How many of a chat's newest events a client is told that opens it: several screens full.
NEWEST = 100
#: How much a client is told of a chat at once, in events and in characters: much more, and it reads
#: too slowly.
MOST, MAX_CHARS = 500, 1_000_000
#: The pause after the relay has failed, in seconds.
AGAIN_S = 1.0
#: How long an ending gateway tries to give the delivery to another one, in seconds.
LEAVE_S = 0.3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """How what a client is told of a chat that it opens is to be read."""

    is_afresh: bool
    """Whether it begins with the newest messages, and not behind what the client knows."""
    has_earlier: bool
    """Of what begins afresh: whether there is more before it."""


@dataclass(eq=False, slots=True)
class _Open:
    """A chat that clients have open."""

    clients: dict[Audience, str | None] = field(default_factory=dict)
    """Each with the id of the last event that it was told; None: that is not known yet."""
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)


class PageChats:
    """The chats that browsers have open here, and the delivery to all there are."""

    def __init__(
        self, fleet: Fleet, home: Home, config: Callable[[], Config], feeds: Feeds
    ) -> None:
        self._fleet = fleet
        self._config = config
        self._open: dict[str, _Open] = {}
        self._visible: dict[Audience, str] = {}
        """The clients whose chat is in view, each with the id of its token."""
        self._notifier = Notifier(fleet, home, config, self._is_seen)
        self._hears = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        feeds.hear(keys.WEB, self._heard)

    async def run(self) -> None:
        """Deliver, until cancelled; of several gateways one does."""
        reader = self._fleet.replies.reader(CHANNEL, DEFAULT_ACCOUNT)
        adapter = WebAdapter(self._fleet.web, self.keep_ms)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._hears.wait()  # of what is delivered, people are notified
                while True:
                    try:
                        await relay(reader, adapter)
                    except Exception as error:  # noqa: BLE001 - it must not end the gateway
                        log.error("the page's chats are not delivered to: %s", frames_of(error))
                    await asyncio.sleep(AGAIN_S)
        finally:
            with contextlib.suppress(RedisUnavailable, RedisRefused, TimeoutError):
                async with asyncio.timeout(LEAVE_S):  # the next gateway delivers at once
                    await self._fleet.accounts.leave(reader)

    def keep_ms(self) -> int:
        """Return how long a chat is kept behind its last event, in milliseconds."""
        return self._config().record.page_ms

    async def open(self, client: Audience, chat: str, after: str) -> Opening:
        """Tell a client what has happened in a chat since an event, and what happens from now.

        Where that is too much, it is told from the newest messages, as one that names no event. It
        is told nothing more of the chat that it had open before. Raises `RedisUnavailable` and
        `RedisRefused`.
        """
        self._close(client)
        opened = self._open.setdefault(chat, _Open())
        opened.clients[client] = None
        async with opened.telling:
            opening, events = await self._opening(chat, after)
            for event in events:
                if client in opened.clients:  # it may have gone on to another one
                    client.tell("web.event", told(chat, event))
                    await asyncio.sleep(0)  # a long text takes a while: others are answered
            if client in opened.clients:
                opened.clients[client] = events[-1].id if events else after or "0-0"
        await self._tell(chat, opened)
        return opening

    async def _opening(self, chat: str, after: str) -> tuple[Opening, Sequence[ChatEvent]]:
        """Return what a client is told that opens a chat, and how that is to be read."""
        if after:
            since = await self._fleet.web.read(chat, after=after, limit=MOST)
            if len(since) < MOST and since == _room_for(since):
                return Opening(is_afresh=False, has_earlier=False), since
        events, has_earlier = await earlier(self._fleet.web, chat, "", NEWEST)
        return Opening(is_afresh=True, has_earlier=has_earlier), events

    def watch(self, client: Audience, token: str, *, is_visible: bool) -> None:
        """Note whether a client's chat is in view, where one is logged in with a token."""
        if is_visible:
            self._visible[client] = token
        else:
            self._visible.pop(client, None)

    def _is_seen(self, chat: str, token: str) -> bool:
        """Whether a chat is in view where one is logged in with a token."""
        opened = self._open.get(chat)
        return opened is not None and any(
            self._visible.get(client) == token for client in opened.clients
        )

    def leave(self, client: Audience) -> None:
        """Stop telling a client."""
        self._close(client)
        self._visible.pop(client, None)

    def _close(self, client: Audience) -> None:
        for chat, opened in list(self._open.items()):
            opened.clients.pop(client, None)
            if not opened.clients:
                del self._open[chat]

    def _heard(self, announced: bytes | None) -> None:
        """Have an event told, or what may have been missed of all chats."""
        assert self._tasks is not None, "it runs"
        self._hears.set()
        if announced is None:
            self._tell_soon(*self._open)
        else:
            event_id, _, chat = announced.decode(errors="replace").partition(" ")
            self._tell_soon(chat)
            self._notifier.heard(self._tasks, chat, event_id)

    def _tell_soon(self, *chats: str) -> None:
        """Tell those who have chats open what is new there."""
        assert self._tasks is not None, "it runs"
        for chat in chats:
            if opened := self._open.get(chat):
                self._tasks.create_task(self._tell(chat, opened))

    async def _tell(self, chat: str, opened: _Open) -> None:
        async with opened.telling:
            try:
                while await self._tell_page(chat, opened):
                    pass
            except RedisUnavailable:  # there may be no other announcement
                asyncio.get_running_loop().call_later(AGAIN_S, self._tell_soon, chat)
            except RedisRefused as error:
                log.warning("a chat of the page can't be read: %s", error)
            except Exception as error:  # noqa: BLE001 - any record may be in Redis
                log.error("a chat of the page can't be told: %s", frames_of(error))

    async def _tell_page(self, chat: str, opened: _Open) -> bool:
        """Tell the clients that are behind; return whether there may be more."""
        known = {client: last for client, last in opened.clients.items() if last is not None}
        if not known:
            return False
        after = min(known.values(), key=stream_order)
        found = await self._fleet.web.read(chat, after=after, limit=MOST)
        events = _room_for(found, is_newest=False)
        for event in events:
            for client, last in known.items():
                if client in opened.clients and stream_order(event.id) > stream_order(last):
                    client.tell("web.event", told(chat, event))
                    opened.clients[client] = event.id
            await asyncio.sleep(0)  # as above
        return len(events) < len(found) or len(found) == MOST


def session_of(config: Config, person: str, conversation: str | None) -> SessionKey:
    """Return the session of a person's conversation. Raises `ConfigError` without its agent."""
    account = config.account(CHANNEL, DEFAULT_ACCOUNT)
    agent, _ = config.agent(account.agent if account else None)
    return SessionKey(agent, CHANNEL, DEFAULT_ACCOUNT, person, person, conversation)


async def earlier(
    chats: WebChats, chat: str, before: str, limit: int
) -> tuple[Sequence[ChatEvent], bool]:
    """Return what has happened before an event, or last; and whether there is more before."""
    found = await chats.before(chat, before, limit=limit + 1)
    events = _room_for(found[-limit:])
    return events, len(events) < len(found)


def told(chat: str, event: ChatEvent) -> dict[str, Any]:
    """Return an event as browsers get it."""
    _, conversation = of_chat(chat)
    about = {"id": event.id, "kind": event.kind, "at": event.at_ms, **event.about}
    return {**about, "conversation": conversation}


def _room_for(events: Sequence[ChatEvent], *, is_newest: bool = True) -> Sequence[ChatEvent]:
    """Return the newest events, or the oldest, that are not too long together, and one at least."""
    room, some = MAX_CHARS, list[ChatEvent]()
    for event in reversed(events) if is_newest else events:
        room -= len(str(event.about.get("text", "")))
        if room < 0 and some:
            break
        some.append(event)
    return some[::-1] if is_newest else some
