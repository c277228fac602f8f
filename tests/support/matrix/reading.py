"""What a reader of a room sees, from its events."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Seen:
    """A message as a reader sees it by now."""

    id: str
    sender: str
    kind: str
    """The `msgtype`, such as `m.text`; for other events, such as polls, their type."""
    body: str
    content: Mapping[str, Any]
    thread: str | None
    """The id of the event that began its thread."""
    edits: int = 0
    reactions: dict[str, list[str]] = field(default_factory=dict)
    """The senders of each emoji."""


def seen(events: Iterable[Mapping[str, Any]]) -> list[Seen]:
    """Return the messages of a room, without deleted ones; only its sender can edit a message."""
    shown: dict[str, Seen] = {}
    for event in events:
        content = event["content"]
        relation = content.get("m.relates_to", {})
        target = shown.get(relation.get("event_id", ""))
        if "state_key" in event or not content or event["type"] == "m.room.redaction":
            continue
        if relation.get("rel_type") == "m.annotation":
            if target:
                target.reactions.setdefault(relation["key"], []).append(event["sender"])
        elif relation.get("rel_type") == "m.replace":
            if target and target.sender == event["sender"]:
                target.content = content.get("m.new_content", {})
                target.body = target.content.get("body", "")
                target.edits += 1
        else:
            shown[event["event_id"]] = Seen(
                id=event["event_id"],
                sender=event["sender"],
                kind=content.get("msgtype", event["type"]),
                body=content.get("body", ""),
                content=content,
                thread=relation["event_id"] if relation.get("rel_type") == "m.thread" else None,
            )
    return [*shown.values()]
