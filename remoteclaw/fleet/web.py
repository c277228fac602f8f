"""People's chats, stored in Redis.

A chat is a stream of events, oldest first. The id of a message is the id of its event; later events
change or delete the message. A client that reconnects continues after the last event that it has.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from remoteclaw.clock import boottime
from remoteclaw.errors import CallRefused, PlatformRefused, RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.turns.inbound import APPEND_S, FULL

Kind = Literal["message", "reaction", "deletion"]
#: The maximum number of events that a chat keeps, and of events that are read at once.
MAX_EVENTS, PAGE = 5000, 500
#: The maximum size of a chat's events, in bytes; the newest event is always kept.
MAX_BYTES = 8 * 1024 * 1024
#: The maximum number of conversations of a person, each of which is a session.
MAX_CONVERSATIONS = 1000
TOO_MANY = (
    f"You have {MAX_CONVERSATIONS:,} conversations, which is the limit: continue one of them. A "
    "conversation is deleted some time after its last message (`[record] keep_days`)."
)


_ID = re.compile(r"\d{1,19}-\d{1,19}")


@dataclass(frozen=True, slots=True)
class ChatEvent:
    """An event of a chat."""

    id: str
    """The event's id on the stream, which is also the id of its message."""
    kind: Kind
    about: Mapping[str, Any]
    """The `from`, `text` and more of a message; for other kinds, `message` is the id of the message
    to which the event applies."""

    @property
    def at_ms(self) -> int:
        """The time of the event, in milliseconds since 1970."""
        return int(self.id.partition("-")[0])


def chat_name(person: str, conversation: str | None) -> str:
    """Return the name of a person's chat; `conversation` is None for the person's first chat."""
    return f"{person}\n{conversation}" if conversation else person


def parse_chat_name(chat: str) -> tuple[str, str | None]:
    """Return the person and the conversation of which `chat_name()` made a chat's name."""
    person, _, conversation = chat.partition("\n")
    return person, conversation or None


class WebChats:
    """Reads and writes people's chats."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def add(
        self,
        chat: str,
        kind: Kind,
        about: Mapping[str, Any],
        *,
        once: str,
        keep_ms: int,
        by_person_to: str = "",
    ) -> str:
        """Add an event to a chat and announce it; return its id.

        `once` identifies the event, so that it is added only once; empty if this is not needed. The
        chat is kept for `keep_ms` after the event. A deletion also removes the message's own event.

        Raises `PlatformRefused` if the message to which the event applies is not stored. An event
        of the person has the chat's agent as `by_person_to`, which is stored with the first one; it
        raises `RedisRefused` if Redis is full, and `CallRefused` if the person has too many
        conversations.
        """
        person, _ = parse_chat_name(chat)
        message_id = "" if kind == "message" else str(about["message"])
        gone = PlatformRefused(f"There is no message {message_id!r} in this chat.")
        if kind != "message" and not _ID.fullmatch(message_id):
            raise gone
        result: str = await self._scripts.run(
            "web_add",
            kind=kind,
            data=orjson.dumps(about),
            of=message_id,
            name=once,
            by_person_to=by_person_to,
            max_events=MAX_EVENTS,
            max_bytes=MAX_BYTES,
            max_chats=MAX_CONVERSATIONS,
            keep_ms=keep_ms,
            chat_id=chat,
            web=keys.web(chat),
            web_event_ids=keys.web_event_ids(chat),
            web_chats=keys.web_chats(person),
            deadline=boottime() + APPEND_S,
        )
        match result:
            case "full":
                raise RedisRefused(FULL)
            case "many":
                raise CallRefused("FORBIDDEN", TOO_MANY)
            case "gone":
                raise gone
        return result

    async def agent_of(self, chat: str) -> str | None:
        """Return the agent of a chat; None if the person has not written there."""
        call, client = self._scripts.call, self._scripts.client
        agent = await call(client.hget, keys.web_event_ids(chat), "agent")
        return agent.decode() if agent else None

    async def has_chats(self, person: str) -> bool:
        """Return whether a person has chats: was written to, or has begun a conversation."""
        names = (keys.web(person), keys.web_chats(person))
        return bool(await self._scripts.call(self._scripts.client.exists, *names))

    async def find(self, chat: str, event_id: str) -> ChatEvent | None:
        """Return an event; None if it is not stored, for example because the id is no event's."""
        if not _ID.fullmatch(event_id):
            return None
        call, client = self._scripts.call, self._scripts.client
        entries = await call(client.xrange, keys.web(chat), event_id, event_id)
        return _event(entries[0]) if entries else None

    async def read(self, chat: str, *, after: str, limit: int = PAGE) -> list[ChatEvent]:
        """Return the first events after the event `after`, oldest first."""
        client = self._scripts.client
        entries = await self._scripts.call(
            client.xrange, keys.web(chat), f"({after}", "+", count=limit
        )
        return [*map(_event, entries)]

    async def before(self, chat: str, event_id: str = "", *, limit: int = PAGE) -> list[ChatEvent]:
        """Return the last events before an event, or the newest events; oldest first."""
        client, end = self._scripts.client, f"({event_id}" if event_id else "+"
        entries = await self._scripts.call(client.xrevrange, keys.web(chat), end, "-", count=limit)
        return [*map(_event, reversed(entries))]


def _event(entry: tuple[bytes, Mapping[bytes, bytes]]) -> ChatEvent:
    entry_id, fields = entry
    return ChatEvent(entry_id.decode(), fields[b"kind"].decode(), orjson.loads(fields[b"about"]))  # type: ignore[arg-type]
