"""What Plaza reports of people: its events as RemoteClaw's `Incoming`."""

from collections.abc import Mapping
from typing import Any

from remoteclaw.protocols import Choice, Incoming, IncomingFile

Event = Mapping[str, Any]


def source_of(event: Event) -> str:
    """Return the name of the place whose history has the event: `ROOM`, or `ROOM/THREAD`."""
    return "/".join(filter(None, (event["room"], event["thread"])))


def report_of(event: Event) -> Incoming:
    """Return an event as a report. It has the same id each time that Plaza repeats the event.

    An event of another form is reported as such, so that it blocks no other.
    """
    try:
        return _report_of(event)
    except (KeyError, TypeError) as error:
        why = f"Plaza reports something of a form that is not known here ({error})"
        return Incoming(id="unknown", chat="unknown", sender="unknown", at_ms=0, left_out=why)


def _report_of(event: Event) -> Incoming:
    about: dict[str, Any] = {
        "id": event["id"],
        "chat": event["room"],
        "thread": event["thread"],
        "is_group": not event["is_direct"],
        "sender": event["by"],
        "sender_name": event["name"],
        "is_bot": event["is_bot"],
        "at_ms": event["at_ms"],
    }
    match event["event"]:
        case "message":
            return Incoming(**about, **_content(event))
        case "edited":
            return Incoming(**about, **_content(event), replaces=event["message"])
        case "deleted":
            return Incoming(**about, deletes=event["message"])
        case "reacted":
            about |= {"reply_to": event["message"], "reaction": event["emoji"]}
            return Incoming(**about, is_removed=event["is_removed"])
        case "pressed":
            return Incoming(**about, choice=Choice(event["card"], event["verdict"]))
        case "invited" | "removed" as invitation:
            return Incoming(**about, invitation=invitation)
        case kind:
            return Incoming(**about, left_out=f"Plaza reports {kind}, which concerns nobody here")


def _content(event: Event) -> dict[str, Any]:
    files = [
        IncomingFile(file["id"], file["name"], file["type"], file["size"])
        for file in event["files"]
    ]
    return {
        "text": event["text"],
        "reply_to": event["reply_to"],
        "files": tuple(files),
        "is_for_us": event["is_direct"] or event["mentions_you"],
    }
