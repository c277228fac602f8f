"""The adapter of the page: what it sends is noted in Redis, where each browser reads it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from remoteclaw.errors import PlatformAway, RedisUnavailable, Unsupported
from remoteclaw.fleet.web import ChatEvent, WebChats, chat_of
from remoteclaw.protocols import Operation, Part, Reply, Sent

OURS = "agent"


class WebAdapter:
    """The page's one account."""

    has_keys = True
    has_buttons = True

    def __init__(self, chats: WebChats, keep_ms: Callable[[], int]) -> None:
        """`keep_ms` returns how long a chat is kept behind its last event."""
        self._chats = chats
        self._keep_ms = keep_ms

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the one message of a reply; it has the files with it."""
        is_empty = not (reply.text or reply.attachments or reply.card)
        return () if is_empty else (Part(0),)

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Note a message; the same one again is the same event."""
        del part, content, is_again
        about: dict[str, Any] = {
            "from": OURS,
            "text": reply.text,
            "sid": reply.sid,
            "files": [file.model_dump() for file in reply.attachments],
            "replyTo": reply.reply_to_id,
            "isError": reply.is_error,
            "origin": reply.origin,
            "turn": None if reply.is_apart else reply.turn,
            "usage": reply.usage,
            "card": asdict(reply.card) if reply.card else None,
            "notifies": _notifies(reply),
        }
        event = await self._add(
            chat_of(reply.channel_id, reply.thread_id), "message", about, once=reply.key
        )
        return Sent(event, kept=reply.attachments)

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """React to a message, delete one, or read them."""
        chat, args = chat_of(operation.channel_id, operation.thread_id), operation.args
        match operation.name:
            case "read":
                return {"messages": await self._newest(chat, int(args["limit"]))}
            case "pin":
                raise Unsupported("The page pins nothing.")
            case "react":  # each time: it may have been another one meanwhile
                told = {"message": args["messageId"], "emoji": args["emoji"], "from": OURS}
                await self._add(chat, "reaction", told, once="")
            case "delete":
                told = {"message": args["messageId"]}
                await self._add(chat, "deletion", told, once=f"{args['messageId']} deletion")
        return {}

    async def _newest(self, chat: str, limit: int) -> list[dict[str, Any]]:
        """Return the newest messages, however much else has happened since."""
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
    """Whether a message notifies: the last one of a turn, and one that waits for the person."""
    if reply.card:
        return bool(reply.card.choices)
    return not reply.is_silent and bool(reply.is_final or reply.call or reply.is_error)


def messages_of(events: Sequence[ChatEvent]) -> list[dict[str, Any]]:
    """Return the messages of a chat, as adapters tell them."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        about = event.about
        if event.kind == "message":
            found[event.id] = {
                "id": event.id,
                "from": _by(about),
                "name": about.get("name"),
                "text": about["text"],
                "at": event.at_ms,
                "files": [file["name"] for file in about["files"]],
                "reactions": [],
            }
        elif message := found.get(about["message"]):
            others = [one for one in message["reactions"] if one["from"] != _by(about)]
            own = {"from": _by(about), "name": None, "emoji": about["emoji"]}
            message["reactions"] = [*others, *([own] if about["emoji"] else [])]
    return [*found.values()]


def _by(about: Mapping[str, Any]) -> str:
    """Return who has written it, or reacts, as agents are told."""
    return "you" if about["from"] == OURS else str(about["from"])
