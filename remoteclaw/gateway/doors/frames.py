"""Frames of the WebSocket protocol 3, and results as JSON."""

import logging
import math
from typing import Annotated, Any, Literal

import orjson
from pydantic import ConfigDict, Field, ValidationError

from remoteclaw.errors import CallError, CallRefused
from remoteclaw.tools.base import Id, Params, Result

#: How large an answer may be, in bytes: a long conversation's history fits.
MAX_ANSWER_BYTES = 6 * 1024 * 1024
#: What may work when it is asked for again.
RETRYABLE: frozenset[CallError] = frozenset(("UNAVAILABLE", "TIMEOUT", "TOO_MANY"))

log = logging.getLogger(__name__)

Key = Annotated[str, Field(min_length=1, max_length=200)]


class Request(Params):
    """A request."""

    type: Literal["req"]
    id: Key
    method: Key
    params: dict[str, Any] = Field(default_factory=dict)
    idempotency_key: Key | None = None
    session_key: Id | None = None


class Auth(Params):
    """How a client authenticates: by a token alone."""

    model_config = ConfigDict(extra="ignore")

    token: Annotated[str, Field(max_length=4096)] = ""


class Connect(Params):
    """The first request's parameters. What a client says of itself is neither believed nor kept."""

    model_config = ConfigDict(extra="ignore")

    min_protocol: int
    max_protocol: int
    auth: Auth = Field(default_factory=Auth)


def encoded(result: Result) -> bytes:
    """Return a result as JSON. Raises `CallRefused` if it is too large, or has no JSON."""
    try:
        text = orjson.dumps(result.model_dump(mode="json"))
    except (TypeError, ValueError) as error:  # a lone surrogate, a number of 100 digits
        log.error("a result can't be sent: %s", type(error).__name__)
        raise CallRefused("INTERNAL", "The answer can't be written as JSON.") from None
    if len(text) > MAX_ANSWER_BYTES:
        most = MAX_ANSWER_BYTES // 1024 // 1024
        raise CallRefused("UNAVAILABLE", f"The answer is larger than {most} MB: ask for less.")
    return text


def explained(error: ValidationError) -> str:
    """Return what is wrong with a frame or body, and where, without its content."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])[:100]
    return f"{where} {first['msg']}".strip()


def result_frame(frame_id: str, payload: bytes) -> bytes:
    """Return the response to a request that was answered, with a payload of JSON."""
    frame = {"type": "res", "id": frame_id, "ok": True, "payload": orjson.Fragment(payload)}
    return orjson.dumps(frame)


def error_frame(frame_id: str, refusal: CallRefused) -> bytes:
    """Return the response to a request that was refused."""
    retryable = refusal.code in RETRYABLE
    error: dict[str, Any] = {"code": refusal.code, "message": str(refusal), "retryable": retryable}
    if refusal.retry_after_s is not None:
        error["retryAfterMs"] = math.ceil(refusal.retry_after_s * 1000)
    return orjson.dumps({"type": "res", "id": frame_id, "ok": False, "error": error})
