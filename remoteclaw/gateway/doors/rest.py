"""Sessions with terminals over HTTP, for cockpits of one's own: each path is a call of a method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.doors.frames import encoded
from remoteclaw.gateway.doors.sse import Streams
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import API, TooLarge, address_of, authenticate, body_of, refusal
from remoteclaw.gateway.principals import Operator
from remoteclaw.tools.base import Result
from remoteclaw.tools.sessions import HistoryResult
from remoteclaw.tools.terminals import OpenedTerminal

SESSIONS = f"{API}sessions"
#: The longest text that is typed or pasted, in characters.
MAX_TEXT = 100_000
#: The methods of HTTP that are answered with a sentence where there is nothing.
VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NOTHING_KEPT = "Nothing of this conversation is kept any more."


@dataclass(frozen=True, slots=True)
class Way:
    """A path, and the method that it stands for."""

    verb: str
    path: str
    method: str
    named: str = "sid"
    """The parameter that takes the path's session."""
    status: int | Callable[[Any], int] = 200


def _status_of_opening(result: OpenedTerminal) -> int:
    if not result.created:
        return 200
    return 202 if result.waits else 201


def _status_of_resuming(result: OpenedTerminal) -> int:
    return 200 if result.terminal.state == "live" else 202


#: Every path but those that stream. What takes effect beside the answer is 202: the events tell.
WAYS = (
    Way("POST", "", "terminals.open", status=_status_of_opening),
    Way("GET", "", "terminals.list"),
    Way("GET", "/{sid}", "terminals.get"),
    Way("GET", "/{sid}/messages", "chat.history", named="sessionKey"),
    Way("GET", "/{sid}/screen", "terminals.screen"),
    Way("POST", "/{sid}/input", "terminals.input", status=202),
    Way("POST", "/{sid}/key", "terminals.key", status=202),
    Way("POST", "/{sid}/paste", "terminals.paste", status=202),
    Way("POST", "/{sid}/resize", "terminals.resize", status=202),
    Way("POST", "/{sid}/take", "terminals.take"),
    Way("POST", "/{sid}/resume", "terminals.open", named="session", status=_status_of_resuming),
    Way("POST", "/{sid}/park", "terminals.park", status=202),
    Way("DELETE", "/{sid}", "terminals.end", status=202),
)


class RestDoor:
    """Answers the requests below `/api/` of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._streams = Streams(gateway)

    def routes(self) -> list[Route]:
        """Return its paths."""
        calls = [
            Route(f"{SESSIONS}{way.path}", self._answering(way), methods=[way.verb]) for way in WAYS
        ]
        return [
            *calls,
            Route(f"{SESSIONS}/{{sid}}/events", self._streaming(self._streams.session)),
            Route(f"{SESSIONS}/{{sid}}/output", self._streaming(self._streams.output)),
            Route(f"{API}events", self._streaming(self._streams.overview)),
            Route(f"{API}{{path:path}}", _nothing, methods=VERBS),
        ]

    def _answering(self, way: Way) -> Any:
        async def answer(request: Request) -> Response:
            operator = await self._operator(request)
            try:
                return await self._answer(way, operator, request)
            except CallRefused as error:
                if error.code != "TIMEOUT":
                    raise
                return refusal(error.code, str(error), status=504)

        return answer

    def _streaming(self, stream: Any) -> Any:
        async def answer(request: Request) -> Response:
            operator = await self._operator(request)
            if request.method == "HEAD":
                raise CallRefused("INVALID_REQUEST", "This path is a stream: use GET.")
            response: Response = await stream(request, operator, request.path_params.get("sid", ""))
            return response

        return answer

    async def _answer(self, way: Way, operator: Operator, request: Request) -> Response:
        params = _query(request) if way.verb == "GET" else await _body(request)
        if way.path:
            params[way.named] = request.path_params["sid"]
        if way.path.endswith("/resume"):
            params["resume"] = True
        result, _ = await self._gateway.call(
            operator,
            way.method,
            params,
            call_id=request.headers.get("idempotency-key"),
            address=address_of(request.scope),
        )
        if isinstance(result, HistoryResult) and not result.items and not result.before:
            await self._check_kept(result)
        told: Result = result.terminal if isinstance(result, OpenedTerminal) else result
        status = way.status if isinstance(way.status, int) else way.status(result)
        headers = {"Location": f"{SESSIONS}/{told.sid}"} if status == 201 else {}  # type: ignore[attr-defined]
        content = orjson.dumps({"ok": True, "result": orjson.Fragment(encoded(told))})
        return Response(content, status, headers, media_type="application/json")

    async def _operator(self, request: Request) -> Operator:
        principal = await authenticate(self._gateway, request.scope)
        if not isinstance(principal, Operator):
            raise CallRefused("FORBIDDEN", "This is for operators.")
        return principal

    async def _check_kept(self, result: HistoryResult) -> None:
        """Refuse an empty history of a session in which something was said."""
        view = await self._gateway.fleet.sessions.named(result.session_key)
        if view.last_message_ms and view.status == "idle":
            raise CallRefused("GONE", NOTHING_KEPT)


def _query(request: Request) -> dict[str, Any]:
    """Return the parameters of the address; those that are numbers, as numbers."""
    given = request.query_params.multi_items()
    if len({name for name, _ in given}) < len(given):
        raise CallRefused("INVALID_REQUEST", "A parameter is in the address twice.")
    return {
        name: int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else value
        for name, value in given
    }


async def _nothing(_request: Request) -> Response:
    raise CallRefused("NOT_FOUND", "There is nothing at this path, or not for this method.")


async def _body(request: Request) -> dict[str, Any]:
    """Return the parameters of the body. Raises `CallRefused`."""
    body = await body_of(request)
    try:
        params = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError:
        params = None
    if not isinstance(params, dict):
        raise CallRefused("INVALID_REQUEST", "The body is not a JSON object.")
    if isinstance(text := params.get("text"), str) and len(text) > MAX_TEXT:
        raise TooLarge(f"The text is longer than {MAX_TEXT} characters.")
    return params
