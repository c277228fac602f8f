"""The JSON form of replies on reply streams, encoded and decoded."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from pydantic import TypeAdapter

from remoteclaw.messages import Attachment, ChatPlace
from remoteclaw.protocols import Card, Operation, Place, Refusal, Reply

#: The version of replies, and that of replies with a card, which is the newest that can be read.
REPLY_VERSION, CARD_VERSION = 1, 2


class NewerReply(Exception):
    """Raised for a reply that only a newer RemoteClaw can read."""


def reply_payload(
    place: ChatPlace | Place,
    text: str,
    *,
    sid: str,
    turn: str = "",
    attempt: int = 0,
    index: int = 0,
    is_error: bool = False,
    reply_to_id: str | None = None,
    attachments: Sequence[Attachment] = (),
    entries: Sequence[str] = (),
    call: str | None = None,
    effect: str | None = None,
    origin: str = "",
    is_silent: bool = False,
    card: Card | None = None,
    is_aside: bool = False,
    is_notice: bool = False,
    asked_by: str | None = None,
    to_person: str | None = None,
    refusal: Refusal | None = None,
    code_file_lines: int = 0,
) -> dict[str, Any]:
    """Return a reply in its JSON form.

    The last reply of a turn has `entries`, and the script `finish` adds the turn's status and
    usage. A reply without a `turn` is a notice of RemoteClaw. Replies are numbered by `index` from
    0 within their turn, and those of a `call` within the call. `asked_by` is the person who waits.
    """
    return {
        "v": CARD_VERSION if card else REPLY_VERSION,
        "sid": sid,
        "turn": turn,
        "attempt": attempt,
        "index": index,
        "channel_id": place.chat,
        "thread_id": place.thread,
        "text": text,
        "is_error": is_error,
        "reply_to_id": reply_to_id,
        "attachments": [attachment.model_dump() for attachment in attachments],
        "entries": list(entries),
        "call": call,
        "effect": effect,
        "origin": origin,
        "status": "",
        "usage": None,
        "is_silent": is_silent,
        **({"card": asdict(card)} if card else {}),
        **({"is_beside": True} if is_aside else {}),
        **({"is_notice": True} if is_notice else {}),
        **({"asked_by": asked_by} if asked_by else {}),
        **({"to_person": to_person} if to_person else {}),
        **({"refusal": asdict(refusal)} if refusal else {}),
        **({"code_file_lines": code_file_lines} if code_file_lines else {}),
    }


def operation_payload(call: str, operation: Operation) -> dict[str, Any]:
    """Return an operation that `call` requests, in the JSON form of replies."""
    place = Place(operation.channel_id, operation.thread_id)
    payload = reply_payload(place, "", sid="", call=call)
    return {**payload, "operation": asdict(operation)}


@functools.cache
def _validator() -> TypeAdapter[Reply]:
    """Return the validator of replies: a value of a wrong type would end an adapter."""
    return TypeAdapter(Reply)


def decode_reply(reply_id: str, fields: Mapping[bytes, bytes]) -> Reply:
    """Return a reply from its entry on the stream.

    Raises `NewerReply`, or KeyError, TypeError or ValueError if the entry is damaged.
    """
    data = orjson.loads(fields[b"reply"])
    if data["v"] > CARD_VERSION:
        raise NewerReply(f"version {data['v']} is newer than {CARD_VERSION}")
    return _validator().validate_python(
        {
            **data,
            "id": reply_id,
            "is_final": bool(data["entries"]),
            "is_aside": data.get("is_beside", False),
        }
    )
