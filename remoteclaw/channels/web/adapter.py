"""The adapter of people's chats: stores replies in Redis, from where each client reads them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from remoteclaw.errors import PlatformAway, RedisUnavailable, Unsupported
from remoteclaw.fleet.web import ChatEvent, WebChats, chat_name
from remoteclaw.protocols import Operation, Part, Reply, Sent

#: The sender of the agents' own events.
AGENT = "agent"


class WebAdapter:
    """The channel's only account."""

    key_window_s = math.inf
    has_buttons = True

    def __init__(self, chats: WebChats, keep_ms: Callable[[], int]) -> None:
        """`keep_ms` returns how long a chat is kept after its last event, in milliseconds."""
        self._chats = chats
        self._keep_ms = keep_ms

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the message of a reply, which includes its files; none if the reply is empty."""
        is_empty = not (reply.text or reply.attachments or reply.card)
        return () if is_empty else (Part(0),)

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Store a message. Storing it again does nothing and returns the same event id."""
        del part, content, is_again
        message: dict[str, Any] = {
            "from": AGENT,
            "text": reply.text,
            "sid": reply.sid,
            "files": [file.model_dump() for file in reply.attachments],
            "replyTo": reply.reply_to_id,
            "isError": reply.is_error,
            "isNotice": reply.is_notice,
            "origin": reply.origin,
            "turn": None if reply.is_apart else reply.turn,
            "attempt": reply.attempt,
            "index": reply.index,
            "isFinal": reply.is_final,
            "entries": reply.entries,
            "status": reply.status,
            "usage": reply.usage,
            "card": asdict(reply.card) if reply.card else None,
            "notifies": _notifies(reply),
        }
        event_id = await self._add(
            chat_name(reply.channel_id, reply.thread_id), "message", message, once=reply.key
        )
        return Sent(event_id, kept=reply.attachments)

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """React to or delete a message, or read messages. Raises `Unsupported` for `pin`."""
        chat, args = chat_name(operation.channel_id, operation.thread_id), operation.args
        match operation.name:
            case "read":
                return {"messages": await self._newest(chat, int(args["limit"]))}
            case "pin":
                raise Unsupported("Chats on the page and in terminals can't pin messages.")
            case "react":  # never deduplicated: the reaction may have changed in between
                reaction = {"message": args["messageId"], "emoji": args["emoji"], "from": AGENT}
                await self._add(chat, "reaction", reaction, once="")
            case "delete":
                deletion = {"message": args["messageId"]}
                await self._add(chat, "deletion", deletion, once=f"{args['messageId']} deletion")
        return {}

    async def _newest(self, chat: str, limit: int) -> list[dict[str, Any]]:
        """Return the newest `limit` messages, reading past reactions and deletions."""
        events: list[ChatEvent] = []
        while earlier := await self._chats.before(chat, events[0].id if events else ""):
            events[:0] = earlier
            if sum(event.kind == "message" for event in events) >= limit:
                break
        return messages_of(events)[-limit:]

    async def _add(self, chat: str, kind: Any, about: Mapping[str, Any], *, once: str) -> str:
        try:
            return await self._chats.add(chat, kind, about, once=once, keep_ms=self._keep_ms())
        except RedisUnavailable as away:
            raise PlatformAway(str(away)) from None


def _notifies(reply: Reply) -> bool:
    """Whether a message notifies: a turn's last message, an error, a tool's, or an open request."""
    if reply.card:
        return bool(reply.card.choices)
    return not reply.is_silent and bool(reply.is_final or reply.call or reply.is_error)


def messages_of(events: Sequence[ChatEvent]) -> list[dict[str, Any]]:
    """Return the messages of a chat, as `OperatingAdapter.operate` returns them."""
    messages: dict[str, dict[str, Any]] = {}
    for event in events:
        about = event.about
        if event.kind == "message":
            messages[event.id] = {
                "id": event.id,
                "from": _author(about),
                "name": about.get("name"),
                "text": about["text"],
                "at": event.at_ms,
                "files": [file["name"] for file in about["files"]],
                "reactions": [],
            }
        elif message := messages.get(about["message"]):
            author = _author(about)
            others = [each for each in message["reactions"] if each["from"] != author]
            own = {"from": author, "name": None, "emoji": about["emoji"]}
            message["reactions"] = [*others, *([own] if about["emoji"] else [])]
    return [*messages.values()]


def _author(about: Mapping[str, Any]) -> str:
    """Return who wrote or reacted; `you` stands for the agent, which reads the result."""
    return "you" if about["from"] == AGENT else str(about["from"])
