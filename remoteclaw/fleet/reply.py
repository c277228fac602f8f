"""The JSON of replies on their streams, encoded and decoded."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pydantic import TypeAdapter

from remoteclaw.messages import Attachment
from remoteclaw.protocols import Operation, Reply

__all__ = ["NewerReply", "decode_reply", "operation_payload", "reply_payload"]

#: The newest form of a reply that is read here.
REPLY_VERSION = 1


class NewerReply(Exception):
    """Raised for a reply that only a newer RemoteClaw can read."""


def reply_payload(
    *,
    sid: str,
    turn: str,
    attempt: int,
    index: int,
    channel_id: str,
    thread_id: str | None,
    text: str,
    is_error: bool = False,
    reply_to_id: str | None = None,
    attachments: Sequence[Attachment] = (),
    entries: Sequence[str] = (),
    call: str | None = None,
    effect: str | None = None,
) -> dict[str, Any]:
    """Return the JSON of a reply; `entries` only for the last one of a turn.

    What a `call` sends is numbered from 0 with `index` for itself.
    """
    by_call = {"call": call, "effect": effect} if call else {}
    return {
        "v": 1,
        "sid": sid,
        "turn": turn,
        "attempt": attempt,
        "index": index,
        "channel_id": channel_id,
        "thread_id": thread_id,
        "text": text,
        "is_error": is_error,
        "reply_to_id": reply_to_id,
        "attachments": [attachment.model_dump() for attachment in attachments],
        "entries": list(entries),
        **by_call,
    }


def operation_payload(call: str, operation: Operation) -> dict[str, Any]:
    """Return the JSON of an operation, for the call that asks for it."""
    return {
        "v": 1,
        "kind": "operation",
        "call": call,
        "operation": operation.name,
        "channel_id": operation.channel_id,
        "thread_id": operation.thread_id,
        "args": dict(operation.args),
        "expires_ms": operation.expires_ms,
    }


@functools.cache
def _shape() -> TypeAdapter[Reply]:
    """Return the validator of types: a wrong one would end an adapter."""
    return TypeAdapter(Reply)


def decode_reply(reply_id: str, fields: Mapping[bytes, bytes]) -> Reply:
    """Return a reply as it stands on the stream.

    Raises `NewerReply`, or KeyError, TypeError or ValueError if it is damaged.
    """
    data = orjson.loads(fields[b"reply"])
    if data["v"] > REPLY_VERSION:
        raise NewerReply(f"version {data['v']} is newer than {REPLY_VERSION}")
    told = _operation(data) if data.get("kind") == "operation" else _message(data)
    return _shape().validate_python({"id": reply_id, **told})


def _message(data: dict[str, Any]) -> dict[str, Any]:
    return {
        "sid": data["sid"],
        "turn": data["turn"],
        "attempt": data["attempt"],
        "index": data["index"],
        "channel_id": data["channel_id"],
        "thread_id": data["thread_id"],
        "text": data["text"],
        "is_error": data["is_error"],
        "reply_to_id": data.get("reply_to_id"),
        "attachments": data.get("attachments", ()),
        "is_final": bool(data["entries"]),
        "entries": data["entries"],
        "call": data.get("call"),
        "effect": data.get("effect"),
    }


def _operation(data: dict[str, Any]) -> dict[str, Any]:
    names = ("channel_id", "thread_id", "args", "expires_ms")
    operation = {"name": data["operation"], **{name: data[name] for name in names}}
    return {
        "sid": "",
        "turn": "",
        "attempt": 0,
        "index": 0,
        "channel_id": data["channel_id"],
        "thread_id": data["thread_id"],
        "text": "",
        "is_error": False,
        "reply_to_id": None,
        "attachments": (),
        "is_final": False,
        "entries": (),
        "call": data["call"],
        "operation": operation,
    }
