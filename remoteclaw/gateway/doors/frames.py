"""Frames of the WebSocket protocol 3, and the JSON of results."""

import logging
import math
from typing import Annotated, Any, Literal

import orjson
from pydantic import ConfigDict, Field, ValidationError

from remoteclaw.errors import CallError, CallRefused
from remoteclaw.tools.base import Id, Params, Result

#: The maximum size of an answer, in bytes: enough for the history of a long conversation.
MAX_ANSWER_BYTES = 6 * 1024 * 1024
#: The codes of refusals after which the same request may succeed later.
RETRYABLE: frozenset[CallError] = frozenset(("UNAVAILABLE", "TIMEOUT", "TOO_MANY"))

log = logging.getLogger(__name__)

Key = Annotated[str, Field(min_length=1, max_length=200)]


class RequestFrame(Params):
    """A request of a client."""

    type: Literal["req"]
    id: Key
    method: Key
    params: dict[str, Any] = Field(default_factory=dict)
    idempotency_key: Key | None = None
    session_key: Id | None = None
    follow: bool = False
    """Whether the result is sent again whenever it has changed, as another answer."""


class Auth(Params):
    """The credentials of a client: only a token."""

    model_config = ConfigDict(extra="ignore")

    token: Annotated[str, Field(max_length=4096)] = ""


class Connect(Params):
    """The parameters of `connect`. Other data that a client sends about itself is ignored."""

    model_config = ConfigDict(extra="ignore")

    min_protocol: int
    max_protocol: int
    auth: Auth = Field(default_factory=Auth)


def encoded(result: Result) -> bytes:
    """Return a result as JSON. Raises `CallRefused` if it is too large or can't be encoded."""
    try:
        text = orjson.dumps(result.model_dump(mode="json"))
    except (TypeError, ValueError) as error:  # a lone surrogate, a number of 100 digits
        log.error("a result can't be sent: %s", type(error).__name__)
        raise CallRefused("INTERNAL", "The answer can't be written as JSON.") from None
    if len(text) > MAX_ANSWER_BYTES:
        max_mb = MAX_ANSWER_BYTES // 1024 // 1024
        raise CallRefused("UNAVAILABLE", f"The answer is larger than {max_mb} MB: ask for less.")
    return text


def explained(error: ValidationError) -> str:
    """Return the first problem of a frame or body, with its place but without its content."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])[:100]
    return f"{where} {first['msg']}".strip()


def result_frame(frame_id: str, payload: bytes) -> bytes:
    """Return the response to a successful request; `payload` is JSON."""
    frame = {"type": "res", "id": frame_id, "ok": True, "payload": orjson.Fragment(payload)}
    return orjson.dumps(frame)


def error_frame(frame_id: str, refusal: CallRefused) -> bytes:
    """Return the response to a refused request."""
    retryable = refusal.code in RETRYABLE
    error: dict[str, Any] = {"code": refusal.code, "message": str(refusal), "retryable": retryable}
    if refusal.retry_after_s is not None:
        error["retryAfterMs"] = math.ceil(refusal.retry_after_s * 1000)
    return orjson.dumps({"type": "res", "id": frame_id, "ok": False, "error": error})
