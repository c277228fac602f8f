"""The gateway over HTTP: calls of tools, health and metrics, and the routes of all doors."""

from typing import Any

import orjson
from pydantic import Field
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp

from remoteclaw.clock import boottime
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.gateway.auth.principals import Operator
from remoteclaw.gateway.doors.files import FilesDoor
from remoteclaw.gateway.doors.frames import encoded
from remoteclaw.gateway.doors.guests import GuestsDoor
from remoteclaw.gateway.doors.rest import RestDoor
from remoteclaw.gateway.doors.sse import EventStreams
from remoteclaw.gateway.doors.webhook import WebhookDoor
from remoteclaw.gateway.doors.ws import WebSocketDoor
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import (
    ERRORS,
    Bearer,
    Guard,
    address_of,
    answer_of_error,
    authenticate,
    parsed,
)
from remoteclaw.gateway.metrics import exposition
from remoteclaw.gateway.page.door import PageDoor, PageSocket, with_token
from remoteclaw.tools.base import Id, Params
from remoteclaw.tools.catalog import METHODS, TOOLS

#: How long Redis may take to answer before this gateway reports that it is not ready, in seconds.
READY_S = 1.0


def create_app(gateway: Gateway, *, mcp: ASGIApp | None = None) -> Starlette:
    """Return the application that answers a gateway's requests.

    `mcp` answers requests to /mcp. Their principal is in `scope["state"]`.
    """
    door, files, webhook = _HttpDoor(gateway), FilesDoor(gateway), WebhookDoor(gateway)
    page, streams = PageDoor(gateway), EventStreams(gateway)

    async def page_metrics(request: Request) -> Response:
        return await door.metrics(with_token(request))

    routes: list[BaseRoute] = [
        Route("/tools/invoke", door.invoke, methods=["POST"]),
        Route("/healthz", door.health),
        Route("/readyz", door.ready),
        Route("/metrics", door.metrics),
        Route("/files", files.take, methods=["POST"]),
        Route("/files/{sid}/{blob}", files.give),
        Route("/webhook", webhook.take, methods=["POST"]),
        Route("/webhook/{account}", webhook.take, methods=["POST"]),
        *RestDoor(gateway, streams).routes(),
        Route("/", page.file),
        Route("/page/login", page.login, methods=["POST"]),
        Route("/page/logout", page.logout, methods=["POST"]),
        Route("/page/whoami", page.whoami),
        Route("/page/metrics", page_metrics),
        Route("/page/files", page.upload, methods=["POST"]),
        Route("/page/files/{sid}/{blob}", page.download),
        Route("/page/{name}", page.file),
        Route("/watch", page.guest_file),
        Route("/watch/screen", GuestsDoor(gateway, streams).screen),
        WebSocketRoute("/page/ws", PageSocket(gateway)),
        *(WebSocketRoute(path, WebSocketDoor(gateway)) for path in ("/ws", "/")),
    ]
    if mcp is not None:
        routes.append(Route("/mcp", Bearer(mcp, gateway)))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, config=lambda: gateway.config().gateway)],
        exception_handlers=dict.fromkeys(ERRORS, answer_of_error),
    )
    app.router.redirect_slashes = False
    return app


class _Call(Params):
    """The body of a call over HTTP."""

    tool: Id
    """The name of a tool or, for operators, of a method."""
    args: dict[str, Any] = Field(default_factory=dict)
    session_key: Id | None = None


class _HttpDoor:
    """Answers the requests for tools, health and metrics that one gateway receives."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def invoke(self, request: Request) -> Response:
        """Answer a call of a tool or a method."""
        principal = await authenticate(self._gateway, request.scope)
        call = await parsed(request, _Call)
        if call.tool not in TOOLS and call.tool not in METHODS:
            raise CallRefused("NOT_FOUND", f"There is no tool or method {call.tool[:100]!r}.")
        result, _ = await self._gateway.call(
            principal,
            call.tool,
            call.args,
            call_id=request.headers.get("idempotency-key"),
            session_key=call.session_key,
            address=address_of(request.scope),
        )
        answer = orjson.dumps({"ok": True, "result": orjson.Fragment(encoded(result))})
        return Response(answer, media_type="application/json")

    async def health(self, _request: Request) -> Response:
        """Return "ok" while the process runs. It needs no token."""
        return PlainTextResponse("ok")

    async def ready(self, _request: Request) -> Response:
        """Return "ok" if calls can be answered, else 503. It needs no token."""
        scripts = self._gateway.fleet.scripts
        try:
            await scripts.call(scripts.client.ping, deadline=boottime() + READY_S)
        except (RedisUnavailable, RedisRefused):
            return PlainTextResponse("Redis can't be reached", 503)
        return PlainTextResponse("ok")

    async def metrics(self, request: Request) -> Response:
        """Return the metrics, to operators whose token is for all agents."""
        principal = await authenticate(self._gateway, request.scope)
        if not isinstance(principal, Operator) or principal.agents is not None:
            raise CallRefused("FORBIDDEN", "The metrics are for operators, and about all agents.")
        gateway = self._gateway
        text, media_type = await exposition(
            gateway.metrics,
            gateway.fleet,
            gateway.config(),
            gateway.home,
            sockets=len(gateway.clients),
            accept=request.headers.get("accept", ""),
        )
        return Response(text, media_type=media_type)
