"""Sessions with terminals over HTTP, for custom cockpits: each path calls a method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from remoteclaw.errors import CallRefused
from remoteclaw.fleet.terminals.state import OPEN
from remoteclaw.gateway.auth.principals import Operator
from remoteclaw.gateway.doors.frames import encoded, explained
from remoteclaw.gateway.doors.sse import EventStreams
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import API, TooLarge, address_of, authenticate, body_of, refusal
from remoteclaw.tools.base import Params, Result
from remoteclaw.tools.catalog import METHODS
from remoteclaw.tools.sessions import HistoryResult, Written
from remoteclaw.tools.terminals import OpenedTerminal, Terminal, Typed

SESSIONS = f"{API}sessions"
#: The maximum length of a text to type, and of one to paste, in characters.
MAX_INPUT_CHARS, MAX_PASTE_CHARS = 100_000, 1_000_000
#: Requests with these HTTP methods get an explanation if nothing is at their path.
VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NOTHING_KEPT = "Nothing of this conversation is kept any more."
#: The path whose text is a message to the session if no terminal is open.
INPUT = "/{sid}/input"

Byte = Annotated[int, Field(ge=0, le=255)]
KeyName = Annotated[str, Field(min_length=1, max_length=40)]


class _KeyBody(Params):
    """The keys to press: exactly one of `bytes` and `key`."""

    bytes: Byte | Annotated[list[Byte], Field(min_length=1, max_length=64)] | None = None
    key: KeyName | Annotated[list[KeyName], Field(min_length=1, max_length=16)] | None = None

    def typing(self) -> dict[str, Any]:
        """Return the parameters of `terminals.type`. Raises `CallRefused`."""
        if (self.bytes is None) == (self.key is None):
            raise CallRefused("INVALID_REQUEST", "The body: give bytes or key.")
        if self.bytes is not None:
            values = [self.bytes] if isinstance(self.bytes, int) else self.bytes
            return {"keys": ["b:" + "".join(f"{value:02x}" for value in values)]}
        names = [self.key] if isinstance(self.key, str) else self.key or []
        return {"keys": [f"k:{name}" for name in names]}


class _PasteBody(Params):
    text: Annotated[str, Field(min_length=1)]

    def typing(self) -> dict[str, Any]:
        """Return the parameters of `terminals.type`."""
        return {"keys": [f"p:{self.text}"]}


class _InputBody(_PasteBody):
    clear: bool = False

    def typing(self) -> dict[str, Any]:
        """Return the parameters of `terminals.type`."""
        return {**super().typing(), "submit": True, "clear": self.clear}


class Submitted(Result):
    """The result of a text that was typed, or sent to the session as a message."""

    submitted: bool
    """Whether the program has the text; false if the session has it."""
    cleared: str = ""
    """The text that `clear` has deleted, as the screen showed it."""
    run_id: str | None = None
    """The id of the message, for `outcomes.wait`."""


@dataclass(frozen=True, slots=True)
class RestRoute:
    """A path, and the gateway method that it calls."""

    verb: str
    path: str
    method: str
    session_parameter: str = "sid"
    """The method's parameter that the session in the path is passed as."""
    body: type[_KeyBody | _PasteBody] | None = None
    """The form of the body, if it is not the method's parameters."""
    status: int | Callable[[Any], int] = 200
    """The HTTP status of success, or a function that returns it for a result."""


def _opening_status(result: OpenedTerminal) -> int:
    if not result.created:
        return 200
    return 202 if result.waits else 201


def _resuming_status(result: OpenedTerminal) -> int:
    return 200 if result.terminal.state == "live" else 202


#: All paths except streams. The status is 202 if the effect follows later; events report it.
REST_ROUTES = (
    RestRoute("POST", "", "terminals.open", status=_opening_status),
    RestRoute("GET", "", "terminals.list"),
    RestRoute("GET", "/{sid}", "terminals.get"),
    RestRoute("GET", "/{sid}/messages", "sessions.history", session_parameter="sessionKey"),
    RestRoute("GET", "/{sid}/screen", "terminals.screen"),
    RestRoute("POST", INPUT, "terminals.type", body=_InputBody, status=202),
    RestRoute("POST", "/{sid}/key", "terminals.type", body=_KeyBody, status=202),
    RestRoute("POST", "/{sid}/paste", "terminals.type", body=_PasteBody, status=202),
    RestRoute("POST", "/{sid}/resize", "terminals.resize", status=202),
    RestRoute("POST", "/{sid}/take", "terminals.take"),
    RestRoute(
        "POST",
        "/{sid}/resume",
        "terminals.open",
        session_parameter="session",
        status=_resuming_status,
    ),
    RestRoute("POST", "/{sid}/park", "terminals.park", status=202),
    RestRoute("DELETE", "/{sid}", "terminals.end", status=202),
)


class RestDoor:
    """Answers the requests below `/api/` that one gateway receives."""

    def __init__(self, gateway: Gateway, streams: EventStreams) -> None:
        self._gateway = gateway
        self._streams = streams

    def routes(self) -> list[Route]:
        """Return the door's routes."""
        calls = [
            Route(f"{SESSIONS}{route.path}", self._call_endpoint(route), methods=[route.verb])
            for route in REST_ROUTES
        ]
        return [
            *calls,
            Route(f"{SESSIONS}/{{sid}}/events", self._stream_endpoint(self._streams.session)),
            Route(f"{SESSIONS}/{{sid}}/output", self._stream_endpoint(self._streams.output)),
            Route(f"{API}events", self._stream_endpoint(self._streams.overview)),
            Route(f"{API}{{path:path}}", _not_found, methods=VERBS),
        ]

    def _call_endpoint(self, route: RestRoute) -> Any:
        async def answer(request: Request) -> Response:
            operator = await self._operator(request)
            try:
                return await self._answer(route, operator, request)
            except CallRefused as error:
                if error.code != "TIMEOUT":
                    raise
                return refusal(error.code, str(error), status=504)

        return answer

    def _stream_endpoint(self, stream: Any) -> Any:
        async def answer(request: Request) -> Response:
            operator = await self._operator(request)
            if request.method == "HEAD":
                raise CallRefused("INVALID_REQUEST", "This path is a stream: use GET.")
            response: Response = await stream(request, operator, request.path_params.get("sid", ""))
            return response

        return answer

    async def _answer(self, route: RestRoute, operator: Operator, request: Request) -> Response:
        params = _query(request) if route.verb == "GET" else await _body(request, route)
        if route.path:
            params[route.session_parameter] = request.path_params["sid"]
        if route.path.endswith("/resume"):
            params["resume"] = True
        method = route.method
        if route.body:
            method, params = await self._typing(route, route.body, operator, params)
        result, _ = await self._gateway.call(
            operator,
            method,
            params,
            call_id=request.headers.get("idempotency-key"),
            address=address_of(request.scope),
        )
        if isinstance(result, HistoryResult) and not result.items and not result.before:
            await self._check_not_expired(result)
        content: Result = result.terminal if isinstance(result, OpenedTerminal) else result
        if route.path == INPUT:
            content = _submitted(result)
        status = route.status if isinstance(route.status, int) else route.status(result)
        headers = {"Location": f"{SESSIONS}/{content.sid}"} if status == 201 else {}  # type: ignore[attr-defined]
        body = orjson.dumps({"ok": True, "result": orjson.Fragment(encoded(content))})
        return Response(body, status, headers, media_type="application/json")

    async def _typing(
        self,
        route: RestRoute,
        model: type[_KeyBody | _PasteBody],
        operator: Operator,
        params: dict[str, Any],
    ) -> tuple[str, dict[str, Any]]:
        """Return the method and its parameters for a body that types. Raises `CallRefused`."""
        method, sid, message_to = route.method, params.pop("sid"), None
        if route.path == INPUT:
            terminal, _ = await self._gateway.call(operator, "terminals.get", {"sid": sid})
            assert isinstance(terminal, Terminal), "the result of this method"
            if terminal.state not in OPEN:
                method, message_to = "sessions.write", terminal.session_key
        if not operator.has(METHODS[method].scope):  # refused for that, whatever the body is
            return method, {}
        try:
            body = model.model_validate(params)
        except ValidationError as error:
            raise CallRefused("INVALID_REQUEST", f"The body: {explained(error)}.") from None
        if message_to:
            message = {"message": params["text"], "toCaller": True}
            return method, {"sessionKey": message_to, **message}
        return method, {"sid": sid, **body.typing()}

    async def _operator(self, request: Request) -> Operator:
        principal = await authenticate(self._gateway, request.scope)
        if not isinstance(principal, Operator):
            raise CallRefused("FORBIDDEN", "This is for operators.")
        return principal

    async def _check_not_expired(self, result: HistoryResult) -> None:
        """Raise `CallRefused` if a history is empty because the session's record has expired."""
        view = await self._gateway.fleet.sessions.named(result.session_key)
        if view.last_message_ms and view.status == "idle":
            raise CallRefused("GONE", NOTHING_KEPT)


def _submitted(result: Result) -> Submitted:
    if isinstance(result, Written):
        return Submitted(submitted=False, run_id=result.run_id)
    assert isinstance(result, Typed), "the result of `terminals.type`"
    return Submitted(submitted=True, cleared=result.cleared or "")


def _query(request: Request) -> dict[str, Any]:
    """Return the parameters of the query string, numbers as integers. Raises `CallRefused`."""
    items = request.query_params.multi_items()
    if len({name for name, _ in items}) < len(items):
        raise CallRefused("INVALID_REQUEST", "A parameter is in the address twice.")
    return {
        name: int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else value
        for name, value in items
    }


async def _not_found(_request: Request) -> Response:
    raise CallRefused("NOT_FOUND", "There is nothing at this path, or not for this method.")


async def _body(request: Request, route: RestRoute) -> dict[str, Any]:
    """Return the parameters in the body. Raises `CallRefused`."""
    body = await body_of(request)
    try:
        params = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError:
        params = None
    if not isinstance(params, dict):
        raise CallRefused("INVALID_REQUEST", "The body is not a JSON object.")
    max_chars = MAX_PASTE_CHARS if route.body is _PasteBody else MAX_INPUT_CHARS
    if isinstance(text := params.get("text"), str) and len(text) > max_chars:
        raise TooLarge(f"The text is longer than {max_chars} characters.")
    return params
