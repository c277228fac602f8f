"""The guard: checks the Host and Origin headers of each request before anything else.

Any web page in the owner's browser can send requests to loopback addresses. The browser reports its
origin, and with DNS rebinding the Host header has a foreign name. So both headers are compared with
lists. X-Forwarded-* and other headers that any client can set are ignored.
"""

import math
import re
from collections.abc import Callable
from typing import TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remoteclaw.config.model import GatewayConfig
from remoteclaw.errors import CallError, CallRefused, MessageRefused, RedisRefused, RedisUnavailable
from remoteclaw.gateway.auth.principals import Principal
from remoteclaw.gateway.doors.frames import explained
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.limits import MAX_REQUEST_BYTES

Model = TypeVar("Model", bound=BaseModel)

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::[0-9]{1,5})?")
#: The host names of this machine's loopback addresses.
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
#: The prefix of paths that only the gateway's own page may use.
PAGE = "/page/"
#: The prefix of paths that pages of `[gateway] origins` may use and read, with a token.
API = "/api/"
#: CORS: the headers of a preflight response, and the response headers that a page may read.
_PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, Last-Event-ID",
    "Access-Control-Max-Age": "600",
}
_READABLE_HEADERS = "Location, Retry-After"
NOT_OWN = (
    "Only the gateway's own page may use this, and this origin differs from the header Host. A "
    "proxy in front of the gateway has to pass that header on."
)
#: The HTTP status of each refusal.
_STATUS: dict[CallError, int] = {
    "INVALID_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "TURN_OVER": 403,
    "NO_TURN": 403,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "GONE": 410,
    "TOO_LARGE": 413,
    "REFUSED": 422,
    "TOO_MANY": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "TIMEOUT": 503,
}


def refusal(
    code: CallError,
    message: str,
    *,
    status: int | None = None,
    retry_after_s: float | None = None,
) -> Response:
    """Return the response to a refused request.

    It closes the connection, because the client may still be sending the body.
    """
    headers = {"connection": "close"}
    if code == "UNAUTHORIZED":
        headers["www-authenticate"] = "Bearer"
    if retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(retry_after_s)))
    error = {"code": code, "message": message}
    return JSONResponse({"ok": False, "error": error}, status or _STATUS[code], headers)


class Guard:
    """Passes on requests whose Host is this gateway's and whose origin, if any, is allowed."""

    def __init__(self, app: ASGIApp, config: Callable[[], GatewayConfig]) -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it to the application."""
        problem = self._problem(scope)
        if problem is not None and scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # answers the upgrade with 403
        elif problem is None and scope["type"] == "http" and scope["path"].startswith(API):
            await self._answer_page(scope, receive, send)
        else:
            await (problem or self._app)(scope, receive, send)

    async def _answer_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request below `API`, with CORS headers that let a page read the response."""
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        allowed = {"Vary": "Origin"}
        if origin is not None:
            allowed |= {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Expose-Headers": _READABLE_HEADERS,
            }

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(allowed)
            await send(message)

        is_preflight = scope["method"] == "OPTIONS" and origin is not None
        if is_preflight and "access-control-request-method" in headers:
            await Response(status_code=204, headers=_PREFLIGHT_HEADERS)(
                scope, receive, send_with_headers
            )
        else:
            await self._app(scope, receive, send_with_headers)

    def _problem(self, scope: Scope) -> Response | None:
        headers, config = Headers(scope=scope), self._config()
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return refusal("INVALID_REQUEST", "A request needs exactly one header Host.")
        if not is_own_name(hosts[0].lower(), config):
            return refusal(
                "FORBIDDEN",
                "The header Host has a name that isn't this gateway's: add it to [gateway] hosts.",
            )
        origins = {origin.lower() for origin in headers.getlist("origin")}
        if scope["path"].startswith(PAGE):  # authenticates by a cookie, which browsers always send
            if origins - {f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"}:
                return refusal("FORBIDDEN", NOT_OWN)
        elif origins - set(config.origins):
            return refusal(
                "FORBIDDEN",
                "Pages of this origin may not use this gateway: [gateway] origins lists those that "
                "may.",
            )
        return None


def is_own_name(host: str, config: GatewayConfig) -> bool:
    """Whether the header Host, in lower case, has a loopback name or a configured one."""
    if host in config.hosts:
        return True
    match = _HOST.fullmatch(host)
    own = f"[{config.host}]" if ":" in config.host else config.host
    return match is not None and (match[1] in {*_LOOPBACK, own, *config.hosts})


def address_of(scope: Scope) -> str:
    """Return the address of a request's TCP client, which may be a proxy."""
    client = scope.get("client")
    return str(client[0]) if client else "this host"


async def authenticate(gateway: Gateway, scope: Scope) -> Principal:
    """Return the principal of a request. Raises `CallRefused` if its token is not valid."""
    principal = await gateway.authenticator.principal(bearer_token(gateway, scope))
    if principal is None:
        gateway.metrics.auth_failures += 1
        raise CallRefused("UNAUTHORIZED", "This token is not valid.")
    return principal


def bearer_token(gateway: Gateway, scope: Scope) -> str:
    """Return the token in a request's header `Authorization`. Raises `CallRefused`."""
    values = Headers(scope=scope).getlist("authorization")
    scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        gateway.metrics.auth_failures += 1
        raise CallRefused(
            "UNAUTHORIZED", "A request needs the header `Authorization: Bearer TOKEN`."
        )
    return token


class Bearer:
    """Authenticates requests for an application and sets their `scope["state"]["principal"]`."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate a request and pass it to the application. Raises `CallRefused`."""
        scope.setdefault("state", {})["principal"] = await authenticate(self._gateway, scope)
        await self._app(scope, receive, send)


class TooLarge(CallRefused):
    """Raised for a body that is too large."""

    def __init__(self, message: str) -> None:
        super().__init__("TOO_LARGE", message)


async def body_of(request: Request, max_bytes: int = MAX_REQUEST_BYTES) -> bytes:
    """Return the body of a request. Raises `TooLarge` or `ClientDisconnect`."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise TooLarge(f"The body is larger than {max_bytes} bytes.")
    return bytes(body)


async def parsed(request: Request, model: type[Model], body: bytes | None = None) -> Model:
    """Return a request's JSON body as a model. Raises `CallRefused` or `ClientDisconnect`."""
    try:
        return model.model_validate(orjson.loads(await body_of(request) if body is None else body))
    except orjson.JSONDecodeError:
        raise CallRefused("INVALID_REQUEST", "The body is not JSON.") from None
    except ValidationError as error:
        raise CallRefused("INVALID_REQUEST", f"The body: {explained(error)}.") from None


async def answer_of_error(_request: Request, error: Exception) -> Response:
    """Return the response for an exception of one of the types in `ERRORS`."""
    match error:
        case ClientDisconnect():
            return Response(status_code=400)
        case CallRefused():
            return refusal(error.code, str(error), retry_after_s=error.retry_after_s)
        case MessageRefused():
            return refusal("INVALID_REQUEST", str(error))
        case _:
            return refusal("UNAVAILABLE", str(error))


#: The exceptions that a door may raise instead of returning a response.
ERRORS = (CallRefused, MessageRefused, RedisUnavailable, RedisRefused, ClientDisconnect)
