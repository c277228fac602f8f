"""The page's chats: a platform of our own, kept in Redis.

A chat is a stream of events, oldest first: a message has the id of the event that brought it, and
later events say what became of it. So a client that was away goes on where it was.
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
from remoteclaw.fleet.inbound import APPEND_S, FULL

Kind = Literal["message", "reaction", "deletion"]
#: How many events of a chat are kept at most, and read at once.
MOST, PAGE = 5000, 500
#: How much of a chat is kept at most, in bytes: its newest event, and what has room beside it.
MAX_BYTES = 8 * 1024 * 1024
#: How many conversations of a person are kept at most: each is a session, too.
MAX_BEGUN = 1000
TOO_MANY = (
    f"You have {MAX_BEGUN:,} conversations, and there is room for no more: go on in one that "
    "there is. Each is forgotten some time after its last message (`[record] keep_days`)."
)


_ID = re.compile(r"\d{1,19}-\d{1,19}")


@dataclass(frozen=True, slots=True)
class ChatEvent:
    """Something that has happened in a chat."""

    id: str
    """Its id on the stream; of a message, the message's."""
    kind: Kind
    about: Mapping[str, Any]
    """Of a `message` its `from`, `text` and more; of others the `message` they are about."""

    @property
    def at_ms(self) -> int:
        """When it was."""
        return int(self.id.partition("-")[0])


def chat_of(person: str, conversation: str | None) -> str:
    """Return the name of one of a person's chats."""
    return f"{person}\n{conversation}" if conversation else person


def of_chat(chat: str) -> tuple[str, str | None]:
    """Return the person of a chat, and the conversation's name."""
    person, _, conversation = chat.partition("\n")
    return person, conversation or None


class WebChats:
    """The chats of all who log in."""

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
        is_persons: bool = False,
    ) -> str:
        """Note an event, `once` unless that is empty, and announce it; return its id.

        It is kept for so long. With a deletion, the message's own event is removed. Raises
        `PlatformRefused` if the message that it is about is not kept; for a person's `RedisRefused`
        where Redis has no room, and `CallRefused` for one conversation too many.
        """
        person, _ = of_chat(chat)
        of = "" if kind == "message" else str(about["message"])
        gone = PlatformRefused(f"There is no message {of!r} in this chat.")
        if kind != "message" and not _ID.fullmatch(of):
            raise gone
        told = await self._scripts.run(
            "web_add",
            keys={
                "chat": keys.web(chat),
                "once": keys.web_once(chat),
                "begun": keys.web_begun(person),
            },
            args={
                "kind": kind,
                "about": orjson.dumps(about),
                "of": of,
                "name": once,
                "is_persons": "1" if is_persons else "",
                "most": MOST,
                "most_bytes": MAX_BYTES,
                "most_begun": MAX_BEGUN,
                "keep_ms": keep_ms,
                "channel": keys.WEB,
                "chat_id": chat,
            },
            deadline=boottime() + APPEND_S,
        )
        match told:
            case b"full":
                raise RedisRefused(FULL)
            case b"many":
                raise CallRefused("FORBIDDEN", TOO_MANY)
            case b"gone":
                raise gone
        return str(told.decode())

    async def find(self, chat: str, event_id: str) -> ChatEvent | None:
        """Return an event; None if it is not kept any more."""
        call, client = self._scripts.call, self._scripts.client
        found = await call(client.xrange, keys.web(chat), event_id, event_id)
        return _event(found[0]) if found else None

    async def read(self, chat: str, *, after: str, limit: int = PAGE) -> list[ChatEvent]:
        """Return what has happened since an event, oldest first."""
        client = self._scripts.client
        found = await self._scripts.call(
            client.xrange, keys.web(chat), f"({after}", "+", count=limit
        )
        return [*map(_event, found)]

    async def before(self, chat: str, event_id: str = "", *, limit: int = PAGE) -> list[ChatEvent]:
        """Return the last that has happened, or what has before an event, oldest first."""
        client, until = self._scripts.client, f"({event_id}" if event_id else "+"
        found = await self._scripts.call(client.xrevrange, keys.web(chat), until, "-", count=limit)
        return [*map(_event, reversed(found))]


def _event(entry: tuple[bytes, Mapping[bytes, bytes]]) -> ChatEvent:
    entry_id, fields = entry
    return ChatEvent(entry_id.decode(), fields[b"kind"].decode(), orjson.loads(fields[b"about"]))  # type: ignore[arg-type]
