"""What people do in rooms: events of Matrix as RemoteClaw's `Incoming`."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from remoteclaw.channels.matrix.api import MALFORMED
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
#: The names of a poll in its event.
POLL_FIELDS = ("m.poll", "org.matrix.msc3381.poll.start")
#: The events of which people expect something.
KINDS = ("m.room.message", "m.reaction", "m.room.redaction", "m.sticker", *POLLS)
VERIFICATION = "m.key.verification.request"
#: The quoted message at the beginning of a reply, as older clients write it.
_FALLBACK = re.compile(r"> (?:\* )?<[^>\n]*>.*\n(?:>.*\n)*\n?")


#: The id of an event: a control character is an internal error of some homeservers, which a poll
#: takes for one that passes.
_ID = re.compile(r"\$[^\s\x00-\x1f\x7f]{1,254}")


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


def own_membership(events: Iterable[Event], me: str) -> Event | None:
    """Return the newest change of the account's membership.

    Of an invitation's events only the last one is of the homeserver: the server that invites writes
    the others, and can name anybody as their sender.
    """
    own = [
        event
        for event in events
        if isinstance(event, dict)
        and (event.get("type"), event.get("state_key")) == ("m.room.member", me)
    ]
    return own[-1] if own else None


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
    return found if isinstance(found, str) and _ID.fullmatch(found) else None


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
    except MALFORMED:
        about["is_for_us"] = not where.is_group
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
        about |= {"replaces": _id(relation)}
        content, relation = content["m.new_content"], relation_of(related)
        related = None
    is_thread = relation.get("rel_type") == "m.thread"
    answered = None if relation.get("is_falling_back") else relation.get("m.in_reply_to")
    about |= {"thread": _id(relation) if is_thread else None}
    about |= {"reply_to": _id(answered)} if answered else {}
    if answered and related is not None:
        about |= _quoted(related)
    is_ours = related is not None and related.get("sender") == where.me
    if answered:
        content = _without_fallback(content)
    said = _content(event, content)
    said["text"] = _command_of(said["text"], where)
    command = parse(said["text"])
    is_command = command is not None and command.known is not None
    is_for_us = not where.is_group or is_ours or is_command or mentions(content, where.me)
    is_bot = content.get("msgtype") == "m.notice"
    return Incoming(**about, **said, is_for_us=is_for_us, is_bot=is_bot)


def _reaction(relation: Mapping[str, Any]) -> dict[str, Any]:
    return {"reply_to": _id(relation), "reaction": _text(relation, "key")}


def _redaction(event: Event, related: Event | None, about: dict[str, Any]) -> Incoming | None:
    """Return a reaction or a message that its sender has removed."""
    if related is None:
        return None
    if related["sender"] != event["sender"]:
        return Incoming(**about, left_out="it removes what somebody else has sent")
    if related["type"] == "m.reaction":
        if not relation_of(related):
            return None  # it is not known any more which one it was
        return Incoming(**about, **_reaction(relation_of(related)), is_removed=True)
    return Incoming(**about, deletes=str(related["event_id"]))


def _content(event: Event, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text and the files of a message."""
    kind = "m.image" if event["type"] == "m.sticker" else content.get("msgtype")
    for poll in POLL_FIELDS:
        if poll in content:
            return {"text": _poll(content[poll]), "files": ()}
    body = _text(content, "body")
    if kind in FILES:
        name = str(content.get("filename") or body or "file")
        caption = body if content.get("filename") not in (None, body) else ""
        return {"text": caption, "files": (_file(str(kind), name, content),)}
    if kind == "m.emote":
        body = f"* {event['sender']} {body}"
    if kind == "m.location":
        body = f"{body}\n{_text(content, 'geo_uri')}"
    return {"text": body, "files": ()}


def _quoted(related: Event) -> dict[str, Any]:
    """Return what a reply quotes: nothing of a message that can't be read."""
    try:
        quoted = _content(related, _without_fallback(related["content"]))
    except MALFORMED:
        return {}
    return {"quoted": quoted["text"], "quoted_files": quoted["files"]}


def _text(content: Mapping[str, Any], name: str) -> str:
    """Return a field of a message. Raises `KeyError`, and `TypeError` for one that is no text."""
    if not isinstance(text := content[name], str):
        raise TypeError(f"{name} is no text")
    return text


def _id(relation: Mapping[str, Any]) -> str:
    """Return the id of the event of a relation. Raises as `_text` does, or `ValueError`."""
    if not _ID.fullmatch(found := _text(relation, "event_id")):
        raise ValueError("it is no id of an event")
    return found


def _without_fallback(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reply without the message that older clients quote at its beginning."""
    body, html = content.get("body"), content.get("formatted_body")
    if isinstance(body, str) and (found := _FALLBACK.match(body)):
        body = body[found.end() :]
    if isinstance(html, str):
        html = html.rpartition("</mx-reply>")[2]
    return {**content, "body": body, "formatted_body": html}


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
        found = part.get("m.text") or part.get("org.matrix.msc1767.text") or part["body"]
        return found if isinstance(found, str) else _text(found[0], "body")

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
