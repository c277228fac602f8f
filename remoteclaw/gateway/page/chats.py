"""The page's chats: what happens in them is delivered by this gateway, and told to browsers."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.channels.relay import relay
from remoteclaw.channels.web.adapter import WebAdapter
from remoteclaw.config.model import Config
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.web import PAGE, Event, of_chat
from remoteclaw.gateway.feeds import Audience, Feeds
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import DEFAULT_ACCOUNT

__all__ = ["CHANNEL", "PageChats", "told"]

CHANNEL = "web"
#: How much a client is told of a chat at once, in characters: much more, and it reads too slowly.
MOST_TOLD = 1_000_000
#: The pause after the relay has failed, in seconds.
AGAIN_S = 1.0
#: How long an ending gateway tries to give the delivery to another one, in seconds.
LEAVE_S = 0.3

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Open:
    """A chat that clients have open."""

    clients: dict[Audience, str] = field(default_factory=dict)
    """Each with the id of the last event that it was told."""
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)


class PageChats:
    """The chats that browsers have open here, and the delivery to all there are."""

    def __init__(self, fleet: Fleet, config: Callable[[], Config], feeds: Feeds) -> None:
        self._fleet = fleet
        self._config = config
        self._open: dict[str, _Open] = {}
        self._tasks: asyncio.TaskGroup | None = None
        feeds.hear(keys.WEB, self._heard)

    async def run(self) -> None:
        """Deliver, until cancelled; of several gateways one does."""
        reader = self._fleet.replies.reader(CHANNEL, DEFAULT_ACCOUNT)
        adapter = WebAdapter(self._fleet.web, self.keep_ms)
        try:
            async with asyncio.TaskGroup() as self._tasks:
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
        return self._config().record.keep_ms

    async def open(self, client: Audience, chat: str, after: str) -> None:
        """Tell a client what has happened in a chat since an event, and what happens from now.

        It is told nothing more of the one that it had open before.
        """
        self.leave(client)
        opened = self._open.setdefault(chat, _Open())
        opened.clients[client] = after
        await self._tell(chat, opened)

    def leave(self, client: Audience) -> None:
        """Tell a client nothing more."""
        for chat, opened in list(self._open.items()):
            opened.clients.pop(client, None)
            if not opened.clients:
                del self._open[chat]

    def _heard(self, chat: bytes | None) -> None:
        """Tell those who have a chat open what is new there; None: in any of them."""
        assert self._tasks is not None, "it runs"
        names = [*self._open] if chat is None else [chat.decode(errors="replace")]
        for name in names:
            if opened := self._open.get(name):
                self._tasks.create_task(self._tell(name, opened))

    async def _tell(self, chat: str, opened: _Open) -> None:
        async with opened.telling:
            try:
                while await self._tell_page(chat, opened):
                    pass
            except RedisUnavailable:  # there may be no other announcement
                asyncio.get_running_loop().call_later(AGAIN_S, self._heard, chat.encode())
            except RedisRefused as error:
                log.warning("a chat of the page can't be read: %s", error)
            except Exception as error:  # noqa: BLE001 - any record may be in Redis
                log.error("a chat of the page can't be told: %s", frames_of(error))

    async def _tell_page(self, chat: str, opened: _Open) -> bool:
        """Tell the clients that are behind; return whether there may be more."""
        if not opened.clients:
            return False
        events = await self._fleet.web.read(chat, after=min(opened.clients.values(), key=_order))
        shown = _newest(events)
        for client, known in list(opened.clients.items()):
            for event in shown:
                if _order(event.id) > _order(known):
                    client.tell("web.event", told(chat, event))
            if client in opened.clients and events:
                opened.clients[client] = max(known, events[-1].id, key=_order)
        return len(events) == PAGE and any(opened.clients.values())


def told(chat: str, event: Event) -> dict[str, Any]:
    """Return an event as browsers get it."""
    _, conversation = of_chat(chat)
    about = {"id": event.id, "kind": event.kind, "at": event.at_ms, **event.about}
    return {**about, "conversation": conversation}


def _newest(events: Sequence[Event]) -> Sequence[Event]:
    """Return the newest events that are not too long together, and one at least."""
    room = MOST_TOLD
    for place, event in reversed(list(enumerate(events))):
        room -= len(str(event.about.get("text", "")))
        if room < 0:
            return events[min(place + 1, len(events) - 1) :]
    return events


def _order(event_id: str) -> tuple[int, int]:
    at, _, number = (event_id or "0-0").partition("-")
    return int(at), int(number or 0)
