"""What people do in rooms: events of Matrix as RemoteClaw's `Incoming`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from remoteclaw.channels.matrix.device import Event
from remoteclaw.commands import parse
from remoteclaw.protocols import Incoming, IncomingFile

FILES = {
    "m.image": "image/png",
    "m.file": "application/octet-stream",
    "m.audio": "audio/ogg",
    "m.video": "video/mp4",
}
POLLS = ("m.poll.start", "org.matrix.msc3381.poll.start")
#: The events of which people expect something.
KINDS = ("m.room.message", "m.reaction", "m.room.redaction", "m.sticker", *POLLS)
VERIFICATION = "m.key.verification.request"
#: The quoted message at the beginning of a reply, as older clients write it.
_FALLBACK = re.compile(r"(?:> .*\n|>\n)+\n?")


@dataclass(frozen=True, slots=True)
class Where:
    """Where an event is, and for whom."""

    room: str
    is_group: bool
    me: str
    """The account's id."""
    names: Mapping[str, str | None]
    """The display names of the people in the room."""


def relation_of(event: Event) -> Mapping[str, Any]:
    """Return what an event says of its relation to another one."""
    relation = event["content"].get("m.relates_to")
    return relation if isinstance(relation, dict) else {}


def related_id(event: Event) -> str | None:
    """Return the id of the event without which a report of this one is not complete."""
    content, relation = event["content"], relation_of(event)
    if event["type"] == "m.room.redaction":
        found = event.get("redacts") or content.get("redacts")
    elif relation.get("rel_type") == "m.replace":
        found = relation.get("event_id")
    elif relation.get("is_falling_back"):  # the newest message of its thread
        found = None
    else:
        found = (relation.get("m.in_reply_to") or {}).get("event_id")
    return found if isinstance(found, str) else None


def report_of(event: Event, where: Where, related: Event | None) -> Incoming | None:
    """Return an event as a report; None if nobody expects anything of it.

    `related` is the event of `related_id`, if the homeserver has it. An event of another form is
    reported as such, so that it blocks no other. Raises `KeyError` for one without id and sender.
    """
    about: dict[str, Any] = {
        "id": str(event["event_id"]),
        "chat": where.room,
        "is_group": where.is_group,
        "sender": str(event["sender"]),
        "sender_name": where.names.get(str(event["sender"])),
        "at_ms": _number(event.get("origin_server_ts")),
    }
    try:
        return _report_of(event, where, related, about)
    except (AttributeError, KeyError, TypeError, ValueError):
        return Incoming(**about, problem="it has a form that Matrix doesn't know")


def _report_of(
    event: Event, where: Where, related: Event | None, about: dict[str, Any]
) -> Incoming | None:
    content, relation = event["content"], relation_of(event)
    match event["type"]:
        case "m.reaction":
            return Incoming(**about, **_reaction(relation))
        case "m.room.redaction":
            return _redaction(event, related, about)
    if relation.get("rel_type") == "m.replace":
        if related is None or related["sender"] != event["sender"]:
            return Incoming(**about, left_out="it edits a message of somebody else")
        about |= {"replaces": str(relation["event_id"])}
        content, relation = content["m.new_content"], relation_of(related)
        related = None
    is_thread = relation.get("rel_type") == "m.thread"
    answered = None if relation.get("is_falling_back") else relation.get("m.in_reply_to")
    about |= {"thread": str(relation["event_id"]) if is_thread else None}
    about |= {"reply_to": str(answered["event_id"])} if answered else {}
    if answered and related is not None and "content" in related:
        quoted = _content(related, related["content"])
        about |= {"quoted": quoted["text"], "quoted_files": quoted["files"]}
    is_ours = related is not None and related.get("sender") == where.me
    said = _content(event, content)
    if answered:
        said["text"] = _FALLBACK.sub("", said["text"], count=1)
    said["text"] = _command_of(said["text"], where)
    command = parse(said["text"])
    is_command = command is not None and command.known is not None
    is_for_us = not where.is_group or is_ours or is_command or mentions(content, where.me)
    is_bot = content.get("msgtype") == "m.notice"
    return Incoming(**about, **said, is_for_us=is_for_us, is_bot=is_bot)


def _reaction(relation: Mapping[str, Any]) -> dict[str, Any]:
    return {"reply_to": str(relation["event_id"]), "reaction": str(relation["key"])}


def _redaction(event: Event, related: Event | None, about: dict[str, Any]) -> Incoming | None:
    """Return a removed reaction, or a message that is gone: for its sender, whoever removed it."""
    if related is None:
        return None
    about |= {"sender": str(related["sender"])}
    if related["type"] == "m.reaction":
        if not relation_of(related):
            return None  # it is not known any more which one it was
        return Incoming(**about, **_reaction(relation_of(related)), is_removed=True)
    return Incoming(**about, deletes=str(related["event_id"]))


def _content(event: Event, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text and the files of a message."""
    kind = "m.image" if event["type"] == "m.sticker" else content.get("msgtype")
    for poll in POLLS:
        if poll in content:
            return {"text": _poll(content[poll]), "files": ()}
    body = str(content.get("body", ""))
    if kind in FILES:
        name = str(content.get("filename") or body or "file")
        caption = body if content.get("filename") not in (None, body) else ""
        return {"text": caption, "files": (_file(str(kind), name, content),)}
    if kind == "m.emote":
        body = f"* {event['sender']} {body}"
    if kind == "m.location":
        body = f"{body}\n{content['geo_uri']}"
    return {"text": body, "files": ()}


def _file(kind: str, name: str, content: Mapping[str, Any]) -> IncomingFile:
    """Return a file. The id of an encrypted one has its keys."""
    info = content.get("info") or {}
    encrypted = content.get("file")
    address = str(encrypted["url"] if encrypted else content["url"])
    size = info.get("size")
    return IncomingFile(
        json.dumps(encrypted) if encrypted else address,
        name,
        str(info.get("mimetype") or FILES[kind]),
        size if isinstance(size, int) else None,
        address,
    )


def _poll(poll: Mapping[str, Any]) -> str:
    def text(part: Mapping[str, Any]) -> str:
        return str(part.get("m.text") or part.get("org.matrix.msc1767.text") or part.get("body"))

    answers = "\n".join(f"- {text(answer)}" for answer in poll["answers"])
    return f"Poll: {text(poll['question'])}\n{answers}"


def mentions(content: Mapping[str, Any], user: str) -> bool:
    """Whether a message mentions a person: by its field, by a pill, or by the name in its text."""
    named = content.get("m.mentions")
    if isinstance(named, dict) and user in (named.get("user_ids") or ()):
        return True
    html = unquote(str(content.get("formatted_body", "")))
    if f'matrix.to/#/{user}"' in html:
        return True
    name = re.escape(user[1:].partition(":")[0])
    form = rf"^@?{name}(?::[\w.-]+)?(?=[\s:,]|$)|(?<!\w)@{name}(?![\w-])"
    return bool(re.search(form, str(content.get("body", "")), re.IGNORECASE))


def _command_of(text: str, where: Where) -> str:
    """Return a text without a mention of the account before a command."""
    names = {where.me, where.me[1:].partition(":")[0], where.names.get(where.me) or where.me}
    forms = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    found = re.match(rf"@?(?:{forms})[\s:,]*(?=[/!]\w)", text, re.IGNORECASE)
    return text[found.end() :] if found else text


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
