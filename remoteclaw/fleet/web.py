"""The page's chats: a platform of our own, kept in Redis.

A chat is a stream of events, oldest first: a message has the id of the event that brought it, and
later events say what became of it. So a client that was away goes on where it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import APPEND_S, FULL

__all__ = ["PAGE", "Event", "WebChats", "chat_of", "of_chat"]

Kind = Literal["message", "reaction", "deletion"]
#: How many events of a chat are kept at most, and read at once.
MOST, PAGE = 5000, 500
#: How much of a chat is kept at most, in bytes: its newest event, and what has room beside it.
MOST_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Event:
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
    """Return whose chat this is, and which of theirs."""
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
        """Note an event, `once`, and announce it; return its id. It is kept for so long.

        With a deletion, the message's own event is removed. Raises `RedisRefused` for a person's
        where Redis has no room.
        """
        told = await self._scripts.run(
            "web_add",
            keys={"chat": keys.web(chat), "once": keys.web_once(chat)},
            args={
                "kind": kind,
                "about": orjson.dumps(about),
                "removes": about["message"] if kind == "deletion" else "",
                "name": once,
                "is_persons": "1" if is_persons else "",
                "most": MOST,
                "most_bytes": MOST_BYTES,
                "keep_ms": keep_ms,
                "channel": keys.WEB,
                "chat_id": chat,
            },
            deadline=boottime() + APPEND_S,
        )
        if not told:
            raise RedisRefused(FULL)
        return str(told.decode())

    async def read(self, chat: str, *, after: str = "") -> list[Event]:
        """Return what has happened since an event, or else the newest, oldest first."""
        client, stream = self._scripts.client, keys.web(chat)
        if after:
            found = await self._scripts.call(client.xrange, stream, f"({after}", "+", count=PAGE)
        else:
            newest = await self._scripts.call(client.xrevrange, stream, count=PAGE)
            found = newest[::-1]
        return [
            Event(entry_id.decode(), fields[b"kind"].decode(), orjson.loads(fields[b"about"]))
            for entry_id, fields in found
        ]
