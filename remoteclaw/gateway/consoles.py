"""Consoles: chats whose platform is this gateway, and whose users sit at terminals.

Each chat has an account, and so a reply stream, of its own. It is delivered while a client has the
chat open: a message has its receipt once one of them says that it was shown. Until then it stays on
the stream, and the next client gets it.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from remoteclaw.channels.relay import relay
from remoteclaw.clock import boottime
from remoteclaw.config.model import Config
from remoteclaw.errors import PlatformRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.gateway.feeds import Audience
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import Attachment, SessionKey
from remoteclaw.protocols import Part, Reply, Sent

#: The channel of terminals, and the id of the one chat that each of its accounts has.
CHANNEL = "console"
CHAT_ID = "console"
#: The pause after a relay has failed, in seconds.
AGAIN_S = 1.0
#: How long Redis may be silent until the clients are told, in seconds: it starts again in less.
AWAY_S = 2.0
#: Pause between two questions, in seconds.
ASK_EVERY_S = 1.0

log = logging.getLogger(__name__)


def account_of(host: str, config: Config, agent: str) -> str:
    """Return the account of a host's console with an agent; `config` has all agents."""
    first, _ = config.agent(None)
    return host if agent == first else f"{host}.{agent}"


class Consoles:
    """The chats that clients of this gateway have open."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._chats: dict[str, ConsoleChat] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}
        """By account, what ends the delivery to a chat that its last client has left."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Deliver to open chats, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._watch_redis()

    def open(self, client: Audience, session: SessionKey) -> None:
        """Deliver a console's chat to a client from now on, beside those that have it open."""
        assert self._tasks is not None, "it runs"
        chat = self._chats.get(session.account)
        if chat is None:
            chat = self._chats[session.account] = ConsoleChat()
            chat.relaying = self._tasks.create_task(self._relay(session.account, chat))
        chat.join(client)

    def leave(self, client: Audience) -> None:
        """Deliver nothing more to a client; a chat that no client has open waits."""
        assert self._tasks is not None, "it runs"
        for account, chat in list(self._chats.items()):
            chat.clients.discard(client)
            if not chat.clients:
                del self._chats[account]
                self._closing[account] = self._tasks.create_task(_close(chat))

    def said(self, session: SessionKey, client: Audience, text: str) -> None:
        """Show what a client's user has written to the others who have the chat open."""
        chat = self._chats.get(session.account)
        for other in chat.clients if chat else ():
            if other is not client:
                other.tell("chat.message", {"role": "user", "text": text})

    def shown(self, client: Audience, key: str, unsaved: frozenset[str]) -> None:
        """Take a client's word that it has shown a message; the `unsaved` blobs are kept."""
        for chat in self._chats.values():
            if client in chat.clients:
                chat.acknowledge(key, unsaved)

    async def _watch_redis(self) -> None:
        """Tell the clients when Redis is away, and when it is back."""
        scripts, is_away = self._fleet.scripts, False
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            if not self._chats:
                continue
            try:
                await scripts.call(scripts.client.ping, deadline=boottime() + AWAY_S)
            except (RedisRefused, RedisUnavailable):
                problem = "Redis is away"
            else:
                problem = ""
            if bool(problem) != is_away:
                is_away = bool(problem)
                for chat in self._chats.values():
                    chat.tell("chat.problem", {"text": problem})

    async def _relay(self, account: str, chat: "ConsoleChat") -> None:
        if closing := self._closing.pop(account, None):
            await asyncio.wait((closing,))  # else what was just shown would be shown again
        while True:
            reader = self._fleet.replies.reader(CHANNEL, account, token=account)
            try:
                await relay(reader, chat)
            except Exception as error:  # noqa: BLE001 - one chat's failure must not end the gateway
                log.error("the console %s is not delivered to: %s", account, frames_of(error))
                await asyncio.sleep(AGAIN_S)


async def _close(chat: "ConsoleChat") -> None:
    """End the delivery to a chat; what a client has shown has its receipt before."""
    assert chat.relaying is not None, "it was started"
    chat.relaying.cancel()  # a step later than what the client has said
    await asyncio.wait((chat.relaying,))


@dataclass(eq=False, slots=True)
class ConsoleChat:
    """One chat; it is the adapter of its account."""

    has_keys: ClassVar[bool] = True
    clients: set[Audience] = field(default_factory=set)
    relaying: asyncio.Task[None] | None = None
    _pending: dict[str, Any] | None = None
    """The message that no client has shown yet, as it is told."""
    _shown: "asyncio.Future[frozenset[str]] | None" = None

    def join(self, client: Audience) -> None:
        """Tell a client of messages from now on, first of the one that nobody has shown."""
        if client in self.clients:
            return
        self.clients.add(client)
        if self._pending:
            client.tell("chat.message", self._pending)

    def tell(self, event: str, payload: dict[str, Any]) -> None:
        """Tell all clients of an event."""
        for client in list(self.clients):
            client.tell(event, payload)

    def acknowledge(self, key: str, unsaved: frozenset[str]) -> None:
        """Note that a message was shown; the `unsaved` blobs are kept."""
        is_this = self._pending is not None and self._pending["key"] == key
        if is_this and self._shown and not self._shown.done():
            self._shown.set_result(unsaved)

    def parts(self, _reply: Reply) -> Sequence[Part]:
        """Return the one message that clients get, also of a turn's end."""
        return (Part(0),)

    async def send(
        self, reply: Reply, _part: Part, _content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Tell all clients of a message, and wait until one of them has shown it."""
        del is_again  # clients tell by the key what they have shown
        if reply.channel_id != CHAT_ID:
            raise PlatformRefused(f"A console is one chat, called {CHAT_ID}.")
        self._shown = asyncio.get_running_loop().create_future()
        self._pending = _told(reply)
        try:
            self.tell("chat.message", self._pending)
            unsaved = await self._shown
        finally:
            self._pending = self._shown = None
        return Sent(kept=[file for file in reply.attachments if file.blob in unsaved])


def _told(reply: Reply) -> dict[str, Any]:
    """Return a message as clients get it."""
    return {
        "key": reply.key,
        "role": "agent",
        "sid": reply.sid,
        "turn": None if reply.is_apart else reply.turn,
        "attempt": reply.attempt,
        "index": reply.index,
        "text": reply.text,
        "isError": reply.is_error,
        "isFinal": reply.is_final,
        "entries": list(reply.entries),
        "origin": reply.origin,
        "status": reply.status,
        "usage": reply.usage,
        "asks": reply.card.id if reply.card and reply.card.choices else None,
        "closes": reply.card.id if reply.card and not reply.card.choices else None,
        "attachments": [_file(file) for file in reply.attachments],
    }


def _file(file: Attachment) -> dict[str, Any]:
    return {"name": file.name, "mimeType": file.mime_type, "size": file.size, "blob": file.blob}
