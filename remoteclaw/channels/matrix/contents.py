"""The contents of events: what they relate to, edits, and the mark of a part."""

from collections.abc import Mapping
from typing import Any

from remoteclaw.channels.matrix.device import Event

#: The field of a message, which no client shows, that says which part of a reply it is.
MARK = "remoteclaw.part"
#: An edit begins with this many characters of its text, besides the text itself.
MAX_FALLBACK = 500


def related(thread: str | None, answered: str | None) -> dict[str, Any]:
    """Return what puts a message into a thread, and makes it an answer to another message."""
    relation: dict[str, Any] = {}
    if thread is not None:
        relation = {
            "rel_type": "m.thread",
            "event_id": thread,
            "is_falling_back": answered is None,
            "m.in_reply_to": {"event_id": answered or thread},
        }
    elif answered is not None:
        relation = {"m.in_reply_to": {"event_id": answered}}
    return {"m.relates_to": relation} if relation else {}


def annotation(message: str, emoji: str) -> dict[str, Any]:
    """Return the content of a reaction."""
    relation = {"rel_type": "m.annotation", "event_id": message, "key": emoji}
    return {"m.relates_to": relation}


def edit_of(message: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of an edit, after which a message has `content`."""
    return {
        "msgtype": content["msgtype"],
        "body": f"* {content['body'][:MAX_FALLBACK]}",  # for clients that know no edits
        "m.mentions": content["m.mentions"],
        "m.new_content": content,
        "m.relates_to": {"rel_type": "m.replace", "event_id": message},
    }


def body_of(event: Event) -> str:
    """Return the text of a message."""
    return str(event["content"].get("body", ""))
