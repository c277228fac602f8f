"""The gateway's HTTP routes; WebSocket is in `rpc`."""

import asyncio
from typing import Any

import orjson
from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp

from remoteclaw.clock import boottime
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import Bearer, Guard, authenticate, refusal
from remoteclaw.gateway.meters import exposition
from remoteclaw.gateway.principals import Operator
from remoteclaw.gateway.rpc import Rpc, encoded, explained
from remoteclaw.tools.base import Id
from remoteclaw.tools.catalog import TOOLS, Params

__all__ = ["create_app"]

#: How large the body of a call may be, in bytes, and how long it may take to come, in seconds.
MOST_BYTES, BODY_S = 1024 * 1024, 10.0
#: How long Redis may take to answer before this gateway counts as not ready, in seconds.
READY_S = 1.0


def create_app(gateway: Gateway, *, mcp: ASGIApp | None = None) -> Starlette:
    """Return what answers a gateway's requests.

    `mcp` answers what comes to /mcp, with its principal in `scope["state"]`.
    """
    doors = _Doors(gateway)
    routes: list[BaseRoute] = [
        Route("/tools/invoke", doors.invoke, methods=["POST"]),
        Route("/healthz", doors.health),
        Route("/readyz", doors.ready),
        Route("/metrics", doors.metrics),
        *(WebSocketRoute(path, Rpc(gateway)) for path in ("/ws", "/")),
    ]
    if mcp is not None:
        routes.append(Route("/mcp", Bearer(mcp, gateway)))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, config=lambda: gateway.config().gateway)],
        exception_handlers={HTTPException: _not_here},
    )
    app.router.redirect_slashes = False
    return app


class _Call(Params):
    """The body of a call over HTTP."""

    tool: Id
    args: dict[str, Any] = Field(default_factory=dict)
    session_key: Id | None = None


class _Doors:
    """The routes of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def invoke(self, request: Request) -> Response:
        """Answer a call of a tool."""
        principal = await authenticate(self._gateway, request.scope)
        if isinstance(principal, Response):
            return principal
        body = await _body(request)
        if isinstance(body, Response):
            return body
        try:
            call = _Call.model_validate(orjson.loads(body))
        except orjson.JSONDecodeError:
            return refusal("INVALID_REQUEST", "The body is not JSON.")
        except ValidationError as error:
            return refusal("INVALID_REQUEST", f"The body: {explained(error)}.")
        if call.tool not in TOOLS:
            return refusal("NOT_FOUND", f"There is no tool {call.tool[:100]!r}.")
        try:
            result, _ = await self._gateway.dispatcher.call(
                principal,
                call.tool,
                call.args,
                call_id=request.headers.get("idempotency-key"),
                session_key=call.session_key,
            )
            answer = orjson.dumps({"ok": True, "result": orjson.Fragment(encoded(result))})
        except CallRefused as error:
            return refusal(error.code, str(error))
        return Response(answer, media_type="application/json")

    async def health(self, _request: Request) -> Response:
        """Say that the process answers, and nothing else: anybody may ask."""
        return PlainTextResponse("ok")

    async def ready(self, _request: Request) -> Response:
        """Say whether calls can be answered."""
        scripts = self._gateway.fleet.scripts
        try:
            await scripts.call(scripts.client.ping, deadline=boottime() + READY_S)
        except (RedisUnavailable, RedisRefused):
            return PlainTextResponse("Redis can't be reached", 503)
        return PlainTextResponse("ok")

    async def metrics(self, request: Request) -> Response:
        """Return what is counted and measured."""
        principal = await authenticate(self._gateway, request.scope)
        if isinstance(principal, Response):
            return principal
        if not isinstance(principal, Operator) or not principal.has("read"):
            return refusal("FORBIDDEN", "The metrics are for operators.")
        gateway = self._gateway
        try:
            text = await exposition(gateway.meters, gateway.fleet, sockets=len(gateway.clients))
        except (RedisUnavailable, RedisRefused) as error:
            return refusal("UNAVAILABLE", str(error))
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def _body(request: Request) -> bytes | Response:
    """Return the body of a request, or the answer if there is too much of it, or too slowly."""
    size = f"The body is larger than {MOST_BYTES} bytes."
    announced = request.headers.get("content-length", "0")
    if not announced.isdigit() or int(announced) > MOST_BYTES:
        return refusal("INVALID_REQUEST", size, status=413, is_last=True)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BYTES:
                    return refusal("INVALID_REQUEST", size, status=413, is_last=True)
    except TimeoutError:
        return refusal("TIMEOUT", "The body takes too long to come.", status=400, is_last=True)
    except ClientDisconnect:
        return Response(status_code=400)
    return bytes(body)


async def _not_here(request: Request, error: Exception) -> Response:
    """Answer what no route has."""
    assert isinstance(error, HTTPException), "it is registered for those"
    if request.url.path != "/tools/invoke":
        return PlainTextResponse(error.detail, error.status_code, error.headers)
    answer = refusal("INVALID_REQUEST", "Tools are called by POST.", status=error.status_code)
    answer.headers.update(error.headers or {})
    return answer
