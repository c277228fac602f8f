"""Consoles: chats whose platform is this gateway and whose users are at terminals.

Each chat has its own account, and so its own reply stream. Messages are delivered while a client
has the chat open. A message gets its receipt once a client confirms that it has shown it. Until
then it stays on the stream, and the next client receives it.
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
from remoteclaw.gateway.feeds import EventReceiver
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import Attachment, SessionKey
from remoteclaw.protocols import Part, Reply, Sent

#: The channel of terminals, and the id of the one chat that each of its accounts has.
CHANNEL = "console"
CHAT_ID = "console"
#: The pause before a failed relay starts again, in seconds.
RETRY_S = 1.0
#: How long Redis may not answer before clients are notified, in seconds: a restart takes less.
MAX_SILENCE_S = 2.0
#: The pause between two pings of Redis, in seconds.
PING_EVERY_S = 1.0

log = logging.getLogger(__name__)


def account_of(host: str, config: Config, agent: str) -> str:
    """Return the account of a host's console with an agent; `config` must have all agents."""
    first, _ = config.agent(None)
    return host if agent == first else f"{host}.{agent}"


class Consoles:
    """The chats that clients of this gateway have open."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._chats: dict[str, ConsoleChat] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}
        """By account: the task that ends the delivery to a chat after its last client has left."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Deliver to open chats, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._watch_redis()

    def open(self, client: EventReceiver, session: SessionKey) -> None:
        """Start delivering a console's chat to a client, in addition to the clients it has."""
        assert self._tasks is not None, "it runs"
        chat = self._chats.get(session.account)
        if chat is None:
            chat = self._chats[session.account] = ConsoleChat()
            chat.relaying = self._tasks.create_task(self._relay(session.account, chat))
        chat.join(client)

    def leave(self, client: EventReceiver) -> None:
        """Stop delivering to a client. Messages of a chat without clients wait on its stream."""
        assert self._tasks is not None, "it runs"
        for account, chat in list(self._chats.items()):
            chat.clients.discard(client)
            if not chat.clients:
                del self._chats[account]
                self._closing[account] = self._tasks.create_task(_close(chat))

    def show_user_message(self, session: SessionKey, client: EventReceiver, text: str) -> None:
        """Send a message that the user of `client` wrote to the chat's other clients."""
        chat = self._chats.get(session.account)
        for other in chat.clients if chat else ():
            if other is not client:
                other.send_event("chat.message", {"role": "user", "text": text})

    def acknowledge(self, client: EventReceiver, key: str, unsaved: frozenset[str]) -> None:
        """Note that a client has shown the message `key`; `unsaved` blobs are kept for later."""
        for chat in self._chats.values():
            if client in chat.clients:
                chat.acknowledge(key, unsaved)

    async def _watch_redis(self) -> None:
        """Notify the clients when Redis stops answering or writing, and when it does so again."""
        scripts, told = self._fleet.scripts, ""
        while True:
            await asyncio.sleep(PING_EVERY_S)
            if not self._chats:
                continue
            try:
                await scripts.call(scripts.client.ping, deadline=boottime() + MAX_SILENCE_S)
            except RedisRefused as error:
                problem = str(error)
            except RedisUnavailable:
                problem = "Redis is away"
            else:
                problem = ""
            if problem != told:
                told = problem
                for chat in self._chats.values():
                    chat.send_event("chat.problem", {"text": problem})

    async def _relay(self, account: str, chat: "ConsoleChat") -> None:
        if closing := self._closing.pop(account, None):
            # Otherwise a message that was just shown would be sent again.
            await asyncio.wait((closing,))
        while True:
            reader = self._fleet.replies.reader(CHANNEL, account, token=account)
            try:
                await relay(reader, chat)
            except Exception as error:  # noqa: BLE001 - one chat's failure must not end the gateway
                log.error("the console %s is not delivered to: %s", account, frames_of(error))
                await asyncio.sleep(RETRY_S)


async def _close(chat: "ConsoleChat") -> None:
    """End the delivery to a chat, after the receipts of messages that clients have shown."""
    assert chat.relaying is not None, "it was started"
    chat.relaying.cancel()  # takes effect one step after the client's acknowledgement
    await asyncio.wait((chat.relaying,))


@dataclass(eq=False, slots=True)
class ConsoleChat:
    """One chat, which is also the adapter of its account."""

    has_keys: ClassVar[bool] = True
    clients: set[EventReceiver] = field(default_factory=set)
    relaying: asyncio.Task[None] | None = None
    _pending: dict[str, Any] | None = None
    """The payload of the message that no client has shown yet."""
    _shown: "asyncio.Future[frozenset[str]] | None" = None

    def join(self, client: EventReceiver) -> None:
        """Start sending messages to a client, beginning with the one that no client has shown."""
        if client in self.clients:
            return
        self.clients.add(client)
        if self._pending:
            client.send_event("chat.message", self._pending)

    def send_event(self, event: str, payload: dict[str, Any]) -> None:
        """Send an event to all clients."""
        for client in list(self.clients):
            client.send_event(event, payload)

    def acknowledge(self, key: str, unsaved: frozenset[str]) -> None:
        """Note that the message `key` was shown; `unsaved` blobs are kept for later."""
        is_pending = self._pending is not None and self._pending["key"] == key
        if is_pending and self._shown and not self._shown.done():
            self._shown.set_result(unsaved)

    def parts(self, _reply: Reply) -> Sequence[Part]:
        """Return a single part: clients get each reply as one message, even an empty one."""
        return (Part(0),)

    async def send(
        self, reply: Reply, _part: Part, _content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Send a message to all clients, and wait until one of them has shown it."""
        del is_again  # clients recognise repeated messages by their key
        if reply.channel_id != CHAT_ID:
            raise PlatformRefused(f"A console is one chat, called {CHAT_ID}.")
        self._shown = asyncio.get_running_loop().create_future()
        self._pending = _payload_of(reply)
        try:
            self.send_event("chat.message", self._pending)
            unsaved = await self._shown
        finally:
            self._pending = self._shown = None
        return Sent(kept=[file for file in reply.attachments if file.blob in unsaved])


def _payload_of(reply: Reply) -> dict[str, Any]:
    """Return a reply as the payload of a `chat.message` event."""
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
        "request": reply.card.id if reply.card and reply.card.choices else None,
        "closes": reply.card.id if reply.card and not reply.card.choices else None,
        "attachments": [_file_payload(file) for file in reply.attachments],
    }


def _file_payload(file: Attachment) -> dict[str, Any]:
    return {"name": file.name, "mimeType": file.mime_type, "size": file.size, "blob": file.blob}
