"""Refusals: each code with its status over HTTP, and whether a retry may help."""

import typing
from typing import Any

import pytest

from remoteclaw.errors import CallError, CallRefused
from remoteclaw.gateway.call import Call
from tests.support.doors import Refused, opened, own_token
from tests.support.stack import Stack

#: The HTTP status of each code, and whether a retry may succeed.
CODES: dict[CallError, tuple[int, bool]] = {
    "INVALID_REQUEST": (400, False),
    "UNAUTHORIZED": (401, False),
    "FORBIDDEN": (403, False),
    "TURN_OVER": (403, False),
    "NO_TURN": (403, False),
    "NOT_FOUND": (404, False),
    "CONFLICT": (409, False),
    "GONE": (410, False),
    "TOO_LARGE": (413, False),
    "REFUSED": (422, False),
    "TOO_MANY": (429, True),
    "INTERNAL": (500, False),
    "UNAVAILABLE": (503, True),
    "TIMEOUT": (503, True),
}


def test_every_error_code_has_an_http_status() -> None:
    assert set(CODES) == set(typing.get_args(CallError))


@pytest.mark.parametrize("after_s", [None, 0.2, 7.1])
async def test_a_refusal_is_the_same_over_websocket_and_http(
    stack: Stack, after_s: float | None
) -> None:
    refusing: list[CallError] = []

    async def refuses(_call: Call, _params: Any) -> Any:
        raise CallRefused(refusing[0], "Not so.", retry_after_s=after_s)

    async with opened(stack, {"sessions.search": refuses}) as door:
        for code, (status, retryable) in CODES.items():
            refusing[:] = [code]
            over_http = await door.invoke(own_token(stack), "sessions_list")
            with pytest.raises(Refused) as refused:
                async with door.connected(own_token(stack)) as client:
                    await client.call("sessions.search")

            assert over_http.status == status
            assert over_http.json["error"] == {"code": code, "message": "Not so."}
            header = {None: None, 0.2: "1", 7.1: "8"}[after_s]
            assert over_http.headers.get("Retry-After") == header
            after = {} if after_s is None else {"retryAfterMs": int(after_s * 1000)}
            error = {"code": code, "message": "Not so.", "retryable": retryable}
            assert refused.value.error == {**error, **after}
