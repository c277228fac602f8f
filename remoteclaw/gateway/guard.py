"""The guard: checks a request's Host and Origin before anything else.

A web page in the owner's browser can reach loopback. It can't hide its origin, and a name that
was made to lead here (DNS rebinding) is in the header Host. So both are compared with lists.
X-Forwarded-* and other headers that any client can write are ignored.
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
from remoteclaw.gateway.doors.frames import explained
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.limits import MAX_BYTES
from remoteclaw.gateway.principals import Principal

Model = TypeVar("Model", bound=BaseModel)

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::[0-9]{1,5})?")
#: The names of this computer, for itself.
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
#: How the paths begin that the gateway's own page uses.
PAGE = "/page/"
#: How the paths begin that pages of `[gateway] origins` may use and read, with a token.
API = "/api/"
#: What such a page may send, and what it is told beside the answer.
_ALLOWED = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, Last-Event-ID",
    "Access-Control-Max-Age": "600",
}
_EXPOSED = "Location, Retry-After"
NOT_OWN = (
    "Only the gateway's own page may use this, and this origin has another name than the header "
    "Host: what stands before the gateway has to pass that header on."
)
#: How each refusal is said over HTTP.
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
    """Return a refusal, behind which the connection is closed: more of a body may be coming."""
    headers = {"connection": "close"}
    if code == "UNAUTHORIZED":
        headers["www-authenticate"] = "Bearer"
    if retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(retry_after_s)))
    error = {"code": code, "message": message}
    return JSONResponse({"ok": False, "error": error}, status or _STATUS[code], headers)


class Guard:
    """Lets a request through that is sent to us, from no page or one that may."""

    def __init__(self, app: ASGIApp, config: Callable[[], GatewayConfig]) -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        problem = self._problem(scope)
        if problem is not None and scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # answers the upgrade with 403
        elif problem is None and scope["type"] == "http" and scope["path"].startswith(API):
            await self._answer_page(scope, receive, send)
        else:
            await (problem or self._app)(scope, receive, send)

    async def _answer_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a page of an allowed origin, with the headers by which it may read that."""
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        allowed = {"Vary": "Origin"}
        if origin is not None:
            allowed |= {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Expose-Headers": _EXPOSED,
            }

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(allowed)
            await send(message)

        is_preflight = scope["method"] == "OPTIONS" and origin is not None
        if is_preflight and "access-control-request-method" in headers:
            await Response(status_code=204, headers=_ALLOWED)(scope, receive, sending)
        else:
            await self._app(scope, receive, sending)

    def _problem(self, scope: Scope) -> Response | None:
        headers, config = Headers(scope=scope), self._config()
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return refusal("INVALID_REQUEST", "It needs the header Host, once.")
        if not is_own_name(hosts[0].lower(), config):
            return refusal(
                "FORBIDDEN",
                "The header Host has a name that isn't this gateway's: [gateway] hosts names more.",
            )
        origins = {origin.lower() for origin in headers.getlist("origin")}
        if scope["path"].startswith(PAGE):  # there a cookie counts, and it is the page's alone
            if origins - {f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"}:
                return refusal("FORBIDDEN", NOT_OWN)
        elif origins - set(config.origins):
            return refusal(
                "FORBIDDEN",
                "Pages of this origin may not use this gateway; [gateway] origins says which may.",
            )
        return None


def is_own_name(host: str, config: GatewayConfig) -> bool:
    """Whether the header Host, in lower case, has a name of this computer or a configured one."""
    if host in config.hosts:
        return True
    match = _HOST.fullmatch(host)
    own = f"[{config.host}]" if ":" in config.host else config.host
    return match is not None and (match[1] in {*_LOOPBACK, own, *config.hosts})


def address_of(scope: Scope) -> str:
    """Return from where a request comes: of one through something in front, where that is."""
    client = scope.get("client")
    return str(client[0]) if client else "this host"


async def authenticate(gateway: Gateway, scope: Scope) -> Principal:
    """Return who sends a request. Raises `CallRefused` if its token is not valid."""
    given = Headers(scope=scope).getlist("authorization")
    scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        gateway.meters.auth_failures += 1
        raise CallRefused("UNAUTHORIZED", "It needs `Authorization: Bearer …` with a token.")
    principal = await gateway.authenticator.principal(token)
    if principal is None:
        gateway.meters.auth_failures += 1
        raise CallRefused("UNAUTHORIZED", "This token is not valid.")
    return principal


class Bearer:
    """Authenticates a request for another application: `scope["state"]["principal"]`."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        scope.setdefault("state", {})["principal"] = await authenticate(self._gateway, scope)
        await self._app(scope, receive, send)


class TooLarge(CallRefused):
    """Raised for a body that is too large."""

    def __init__(self, message: str) -> None:
        super().__init__("TOO_LARGE", message)


async def body_of(request: Request, most: int = MAX_BYTES) -> bytes:
    """Return the body of a request.

    Raises `TooLarge` beyond `most` bytes, and `ClientDisconnect`.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise TooLarge(f"The body is larger than {most} bytes.")
    return bytes(body)


async def parsed(request: Request, model: type[Model], body: bytes | None = None) -> Model:
    """Return what the body of a request says as JSON. Raises `CallRefused`, and as `body_of()`."""
    try:
        return model.model_validate(orjson.loads(await body_of(request) if body is None else body))
    except orjson.JSONDecodeError:
        raise CallRefused("INVALID_REQUEST", "The body is not JSON.") from None
    except ValidationError as error:
        raise CallRefused("INVALID_REQUEST", f"The body: {explained(error)}.") from None


async def answer_of_error(_request: Request, error: Exception) -> Response:
    """Return the answer to a request that ended with one of `ERRORS`."""
    match error:
        case ClientDisconnect():
            return Response(status_code=400)
        case CallRefused():
            return refusal(error.code, str(error), retry_after_s=error.retry_after_s)
        case MessageRefused():
            return refusal("INVALID_REQUEST", str(error))
        case _:
            return refusal("UNAVAILABLE", str(error))


#: What a door may raise in place of answering.
ERRORS = (CallRefused, MessageRefused, RedisUnavailable, RedisRefused, ClientDisconnect)
