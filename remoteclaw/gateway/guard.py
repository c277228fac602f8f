"""The guard: checks a request's Host and Origin before anything else.

A web page in the owner's browser can reach loopback. It can't hide its origin, and a name that
was made to lead here (DNS rebinding) stands in the header Host. So both are compared with lists.
Nothing is taken from X-Forwarded-* or other headers that anybody can write.
"""

import re
from collections.abc import Callable
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from remoteclaw.config.model import GatewayConfig
from remoteclaw.errors import CallError, RedisRefused, RedisUnavailable
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.principals import Principal
from remoteclaw.gateway.sockets import Http
from remoteclaw.host.tokens import AGENT_PREFIX, OPERATOR_PREFIX

__all__ = ["Bearer", "Guard", "authenticate", "is_own_name", "names_of", "peer_of", "refusal"]

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::[0-9]{1,5})?")
#: The names of this computer, for itself.
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
#: Names under which people put secrets into addresses, from where they get into logs and histories.
_SECRET_NAMES = frozenset(
    ("token", "access_token", "auth_token", "api_key", "apikey", "auth", "password", "secret")
)

#: How each refusal is said over HTTP.
_STATUS: dict[CallError, int] = {
    "INVALID_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "TURN_OVER": 403,
    "NO_TURN": 403,
    "NOT_FOUND": 404,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "TIMEOUT": 503,
}


def refusal(
    code: CallError,
    message: str,
    *,
    status: int | None = None,
    retry_after_s: float = 0.0,
    is_last: bool = False,
) -> Response:
    """Return a refusal; `is_last` also closes the connection, on which more may be coming."""
    headers = {"connection": "close"} if is_last else {}
    if retry_after_s:
        headers["retry-after"] = str(int(retry_after_s) + 1)
    if code == "UNAUTHORIZED":
        headers["www-authenticate"] = "Bearer"
    error = {"code": code, "message": message}
    return JSONResponse({"ok": False, "error": error}, status or _STATUS[code], headers)


class Guard:
    """Lets a request through that is sent to us, from no page or one that may, without a secret in
    its address."""

    def __init__(self, app: ASGIApp, config: Callable[[], GatewayConfig]) -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        problem = self._problem(scope) if scope["type"] in ("http", "websocket") else None
        await (problem or self._app)(scope, receive, send)

    def _problem(self, scope: Scope) -> Response | None:
        headers, config = Headers(scope=scope), self._config()
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return refusal("INVALID_REQUEST", "It needs the header Host, once.", is_last=True)
        if not is_own_name(hosts[0].lower(), config):
            return refusal(
                "FORBIDDEN",
                "The header Host has a name that isn't this gateway's: [gateway] hosts names more.",
                is_last=True,
            )
        origins = headers.getlist("origin")
        if any(origin.lower() not in config.origins for origin in origins):
            return refusal(
                "FORBIDDEN",
                "Pages of this origin may not use this gateway; [gateway] origins says which may.",
                is_last=True,
            )
        if _has_secret(scope["query_string"]):
            return refusal(
                "INVALID_REQUEST",
                "A token doesn't belong into an address, where logs keep it: send it as "
                "`Authorization: Bearer …`, over WebSocket in connect. Replace this one.",
                is_last=True,
            )
        return None


def is_own_name(host: str, config: GatewayConfig) -> bool:
    """Whether the header Host, in lower case, has a name of this computer or a configured one."""
    if host in config.hosts:
        return True
    match = _HOST.fullmatch(host)
    return match is not None and (match[1] in names_of(config) or match[1] in config.hosts)


def names_of(config: GatewayConfig) -> frozenset[str]:
    """Return the names that a gateway has anyway."""
    return _LOOPBACK | {f"[{config.host}]" if ":" in config.host else config.host}


def _has_secret(query: bytes) -> bool:
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return any(
        name.lower() in _SECRET_NAMES or value.startswith((OPERATOR_PREFIX, AGENT_PREFIX))
        for name, value in pairs
    )


def peer_of(scope: Scope) -> str:
    """Return the address that a request comes from, as the system tells it."""
    client = scope.get("client")  # none where it came through the socket in the state directory
    return str(client[0]) if client else "localhost"


async def authenticate(gateway: Gateway, scope: Scope) -> Principal | Response:
    """Return who sends a request, or the answer if that is nobody."""
    peer, attempts = peer_of(scope), gateway.authenticator.attempts
    if waits := attempts.must_wait(peer):
        return _too_many(waits)
    given = Headers(scope=scope).getlist("authorization")
    scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        gateway.meters.auth_failures += 1
        return refusal("UNAUTHORIZED", "It needs `Authorization: Bearer …` with a token.")
    try:
        principal = await gateway.authenticator.principal(token)
    except (RedisUnavailable, RedisRefused) as error:
        return refusal("UNAVAILABLE", str(error))
    if principal is None:
        gateway.meters.auth_failures += 1
        waits = attempts.failed(peer)
        return _too_many(waits) if waits else refusal("UNAUTHORIZED", "This token is not valid.")
    connection = scope.get("state", {}).get("http")
    if isinstance(connection, Http):
        connection.be_known()
    return principal


def _too_many(waits_s: float) -> Response:
    return refusal(
        "UNAVAILABLE",
        "There were too many wrong tokens from this address: try again later.",
        status=429,
        retry_after_s=waits_s,
        is_last=True,
    )


class Bearer:
    """Has a request answered once it is known who sends it: `scope["state"]["principal"]`.

    It touches neither body nor answer, so both may be streams.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        if self._gateway.is_ending:
            await refusal("UNAVAILABLE", "This gateway ends.", is_last=True)(scope, receive, send)
            return
        principal = await authenticate(self._gateway, scope)
        if isinstance(principal, Response):
            await principal(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        await self._app(scope, receive, send)
