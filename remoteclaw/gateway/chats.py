"""People's chats: delivers replies to them, and sends their events to pages and terminals."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.channels.relay import relay
from remoteclaw.channels.web.adapter import WebAdapter
from remoteclaw.channels.web.profile import CHANNEL
from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.web import ChatEvent, WebChats, parse_chat_name
from remoteclaw.gateway.feeds import EventReceiver, Feeds
from remoteclaw.gateway.page.notifier import Notifier
from remoteclaw.gateway.terminals.host_terminals import HostTerminals
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import DEFAULT_ACCOUNT, stream_order

#: How many of a chat's newest events a client receives when it opens the chat: several screens.
NEWEST_EVENTS = 100
#: How many events of a chat, and characters of their texts, are sent to a client at once: with many
#: more, a client would be closed for reading too slowly.
MAX_EVENTS, MAX_CHARS = 500, 1_000_000
#: The pause after an error of the relay or of Redis, in seconds.
RETRY_S = 1.0
#: How long an ending gateway tries to hand over the delivery of replies, in seconds.
LEAVE_S = 0.3
#: How long Redis may not answer before clients are notified, in seconds: a restart takes less.
MAX_SILENCE_S = 2.0
#: At most this many workspaces are searched for files at once: each search takes a thread and a git
#: for up to two seconds, and a person who writes starts one after the other.
MAX_SEARCHES = 2
#: The pause between two pings of Redis, in seconds.
PING_EVERY_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """How the events that a client receives on opening a chat relate to those that it has."""

    is_afresh: bool
    """Whether they are the newest events, which replace those that the client has."""
    has_earlier: bool
    """Whether there are events before the newest ones; False unless `is_afresh`."""


@dataclass(eq=False, slots=True)
class _OpenChat:
    """A chat that clients have open."""

    clients: dict[EventReceiver, str | None] = field(default_factory=dict)
    """Each client with the id of the last event sent to it; None while the chat is being opened."""
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)


class Chats:
    """The chats that clients have open at this gateway, and the delivery to all chats."""

    def __init__(
        self,
        fleet: Fleet,
        home: Home,
        config: Callable[[], Config],
        feeds: Feeds,
        terminals: HostTerminals,
    ) -> None:
        self._fleet = fleet
        self._config = config
        self._open: dict[str, _OpenChat] = {}
        self._visible: dict[EventReceiver, str] = {}
        """The clients whose chat is in view, each with the id of its token."""
        self._notifier = Notifier(fleet, home, config, self._is_seen, terminals, self._is_watching)
        self.searches = asyncio.Semaphore(MAX_SEARCHES)
        """Limits the searches of workspaces that run at once."""
        self._is_listening = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        feeds.add_listener(keys.WEB_UPDATES, self._handle_announcement)
        feeds.add_listener(keys.TERMINAL_UPDATES, self._handle_terminal)

    async def run(self) -> None:
        """Deliver replies, until cancelled; one gateway of several does so."""
        reader = self._fleet.replies.reader(CHANNEL, DEFAULT_ACCOUNT)
        adapter = WebAdapter(self._fleet.web, self.keep_ms)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._watch_redis())
                await self._is_listening.wait()  # else no client gets a reply at once
                while True:
                    try:
                        await relay(reader, adapter)
                    except Exception as error:  # noqa: BLE001 - it must not end the gateway
                        log.error("people's chats are not delivered to: %s", frames_of(error))
                    await asyncio.sleep(RETRY_S)
        finally:
            with contextlib.suppress(RedisUnavailable, RedisRefused, TimeoutError):
                async with asyncio.timeout(LEAVE_S):  # so that the next gateway delivers at once
                    await self._fleet.accounts.leave(reader)

    async def _watch_redis(self) -> None:
        """Notify the clients when Redis stops answering or writing, and when it does so again."""
        scripts, told = self._fleet.scripts, ""
        while True:
            await asyncio.sleep(PING_EVERY_S)
            if not self._open:
                continue
            problem = ""
            try:
                await scripts.call(scripts.client.ping, deadline=boottime() + MAX_SILENCE_S)
            except RedisRefused as error:
                problem = str(error)
            except RedisUnavailable:
                problem = "Redis is away"
            if problem != told:
                told = problem
                for client in {each for chat in self._open.values() for each in chat.clients}:
                    client.send_event("chat.problem", {"problem": problem})

    def keep_ms(self) -> int:
        """Return how long a chat is kept after its last event, in milliseconds."""
        return self._config().record.page_ms

    async def open(self, client: EventReceiver, chat: str, after: str) -> Opening:
        """Send a client the events of a chat after the event `after`, and all future events.

        If these are too many, or `after` is empty, the client receives the newest events instead.
        The chat that the client had open before is closed. Raises `RedisUnavailable` and
        `RedisRefused`.
        """
        self._close(client)
        opened = self._open.setdefault(chat, _OpenChat())
        opened.clients[client] = None
        async with opened.sending:
            opening, events = await self._read_opening(chat, after)
            for event in events:
                if client in opened.clients:  # it may have opened another chat
                    client.send_event("chat.event", event_payload(chat, event))
                    await asyncio.sleep(0)  # rendering a long text blocks the event loop
            if client in opened.clients:
                opened.clients[client] = events[-1].id if events else after or "0-0"
        await self._send_new_events(chat, opened)
        return opening

    async def _read_opening(self, chat: str, after: str) -> tuple[Opening, Sequence[ChatEvent]]:
        """Return the events for a client that opens a chat."""
        if after:
            since = await self._fleet.web.read(chat, after=after, limit=MAX_EVENTS)
            if len(since) < MAX_EVENTS and since == _fitting(since):
                return Opening(is_afresh=False, has_earlier=False), since
        events, has_earlier = await read_earlier(self._fleet.web, chat, "", NEWEST_EVENTS)
        return Opening(is_afresh=True, has_earlier=has_earlier), events

    def watch(self, client: EventReceiver, token: str, *, is_visible: bool) -> None:
        """Note whether the chat of a client with the token `token` (an id) is in view."""
        if is_visible:
            self._visible[client] = token
        else:
            self._visible.pop(client, None)

    def _is_seen(self, chat: str, token: str) -> bool:
        """Return whether a chat is in view in the browser with the token `token` (an id)."""
        opened = self._open.get(chat)
        return opened is not None and any(
            self._visible.get(client) == token for client in opened.clients
        )

    def _is_watching(self, client: EventReceiver, token: str) -> bool:
        """Return whether a client is the browser with the token `token`, and its page in view."""
        return self._visible.get(client) == token

    def leave(self, client: EventReceiver) -> None:
        """Send no more events to a client."""
        self._close(client)
        self._visible.pop(client, None)

    def _close(self, client: EventReceiver) -> None:
        for chat, opened in list(self._open.items()):
            opened.clients.pop(client, None)
            if not opened.clients:
                del self._open[chat]

    def _handle_announcement(self, announced: bytes | None) -> None:
        """Send an announced event; None means that announcements may have been missed."""
        assert self._tasks is not None, "run() is running"
        self._is_listening.set()
        if announced is None:
            self._schedule_sending(*self._open)
        else:
            event_id, _, chat = announced.decode(errors="replace").partition(" ")
            self._schedule_sending(chat)
            self._notifier.enqueue(self._tasks, chat, event_id)

    def _handle_terminal(self, sid: bytes | None) -> None:
        if sid is not None and self._tasks is not None:
            self._notifier.note_terminal(self._tasks, sid.decode(errors="replace"))

    def _schedule_sending(self, *chats: str) -> None:
        """Start to send the new events of chats to their clients."""
        assert self._tasks is not None, "run() is running"
        for chat in chats:
            if opened := self._open.get(chat):
                self._tasks.create_task(self._send_new_events(chat, opened))

    async def _send_new_events(self, chat: str, opened: _OpenChat) -> None:
        async with opened.sending:
            try:
                while await self._send_batch(chat, opened):
                    pass
            except RedisUnavailable:  # the next announcement may come much later
                asyncio.get_running_loop().call_later(RETRY_S, self._schedule_sending, chat)
            except RedisRefused as error:
                log.warning("a chat can't be read: %s", error)
            except Exception as error:  # noqa: BLE001 - any record may be in Redis
                log.error("a chat can't be sent: %s", frames_of(error))

    async def _send_batch(self, chat: str, opened: _OpenChat) -> bool:
        """Send events to the clients that lack some; return whether there may be more."""
        known = {client: last for client, last in opened.clients.items() if last is not None}
        if not known:
            return False
        after = min(known.values(), key=stream_order)
        new = await self._fleet.web.read(chat, after=after, limit=MAX_EVENTS)
        events = _fitting(new, is_newest=False)
        for event in events:
            for client, last in known.items():
                if client in opened.clients and stream_order(event.id) > stream_order(last):
                    client.send_event("chat.event", event_payload(chat, event))
                    opened.clients[client] = event.id
            await asyncio.sleep(0)  # as in `open()`
        return len(events) < len(new) or len(new) == MAX_EVENTS


async def read_earlier(
    chats: WebChats, chat: str, before: str, limit: int
) -> tuple[Sequence[ChatEvent], bool]:
    """Return up to `limit` events before the event `before`, and whether there are earlier ones.

    An empty `before` means the newest events.
    """
    candidates = await chats.before(chat, before, limit=limit + 1)
    events = _fitting(candidates[-limit:])
    return events, len(events) < len(candidates)


def event_payload(chat: str, event: ChatEvent) -> dict[str, Any]:
    """Return the payload that clients receive for an event."""
    _, conversation = parse_chat_name(chat)
    about = {"id": event.id, "kind": event.kind, "at": event.at_ms, **event.about}
    return {**about, "conversation": conversation}


def _fitting(events: Sequence[ChatEvent], *, is_newest: bool = True) -> Sequence[ChatEvent]:
    """Return the newest (or the oldest) events with at most `MAX_CHARS`, and at least one."""
    room, fitting = MAX_CHARS, list[ChatEvent]()
    for event in reversed(events) if is_newest else events:
        room -= len(str(event.about.get("text", "")))
        if room < 0 and fitting:
            break
        fitting.append(event)
    return fitting[::-1] if is_newest else fitting
