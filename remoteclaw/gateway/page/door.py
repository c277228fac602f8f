"""The door of the page: its files, the login, and its WebSocket.

A browser has a cookie, which no script can read: an operator's token of its own. Sending it proves
nothing alone, because pages of others make browsers send it, too. So what is asked with it needs
the page's own origin (the guard looks), and a request a header that no foreign page can set.
"""

import contextlib
import functools
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from remoteclaw.channels.web.profile import person_id
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.gateway.doors.files import FilesDoor
from remoteclaw.gateway.doors.ws import Connection, WebSocketDoor
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import address_of, parsed
from remoteclaw.gateway.page.chats import CHANNEL, session_of
from remoteclaw.gateway.page.html import html_of
from remoteclaw.messages import DEFAULT_ACCOUNT
from remoteclaw.tools.asks import Ask, AsksResult
from remoteclaw.tools.base import Params, Result
from remoteclaw.tools.sessions import HistoryResult
from remoteclaw.tools.web import Earlier

#: What a page of ours may do: use its own files and its own gateway, and nothing else.
HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' blob:",
            "connect-src 'self'",
            "worker-src 'self'",
            "manifest-src 'self'",
            "form-action 'none'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types remoteclaw",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
#: The header by which the page shows that a request is its own.
OWN = "x-remoteclaw-page"
#: The longest text that becomes HTML, in characters: this takes a third of a second at worst, in
#: which nobody else is answered. The page shows a longer one as it is.
MAX_RENDERED = 30_000
#: How much of a history becomes HTML, in characters: as above, and an item of it is short.
MAX_OF_HISTORY = 100_000
#: Which items of it are Markdown: the words of agents and ours.
MARKDOWN = frozenset(("agent", "error", "notice"))
#: The types of its files.
TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
}


class _Code(Params):
    """The body of a login."""

    code: Annotated[str, Field(min_length=1, max_length=200)]


class PageDoor:
    """Answers what the page asks of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._files = FilesDoor(gateway)

    async def file(self, request: Request) -> Response:
        """Return a file of the page: `/`, or `/page/NAME`."""
        name = request.path_params.get("name", "index.html")
        files = _files()
        if name not in files:
            raise CallRefused("NOT_FOUND", "The page has no such file.")
        content, tag = files[name]
        headers = {**HEADERS, "ETag": tag}
        if name == "sw.js":  # it is for the whole page, and stands below it
            headers["Service-Worker-Allowed"] = "/"
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        kind = TYPES[name.rpartition(".")[2]]
        return Response(content, media_type=kind, headers=headers)

    async def login(self, request: Request) -> Response:
        """Exchange a code for the cookie; the code is used up."""
        _check_own(request)
        made = await self._gateway.fleet.logins.exchange((await parsed(request, _Code)).code)
        if made is None:
            self._gateway.meters.auth_failures += 1
            raise CallRefused(
                "UNAUTHORIZED",
                "This link is not good any more: `remoteclaw open` prints a new one.",
            )
        token, view = made
        person = person_id(view.name, is_admin=view.scope == "admin")
        await self._gateway.fleet.pairings.add(
            CHANNEL, DEFAULT_ACCOUNT, person, name=view.name, by="the page's login"
        )
        lasts_s = ((view.expires_ms or 0) - view.created_ms) // 1000
        answer = JSONResponse({"name": view.name, "scope": view.scope}, headers=HEADERS)
        self._set_cookie(request, answer, token, lasts_s=lasts_s)
        return answer

    async def logout(self, request: Request) -> Response:
        """Revoke the cookie's token."""
        _check_own(request)
        token = request.cookies.get(cookie_name(request), "")
        if view := await self._gateway.fleet.tokens.find(token):
            await self._gateway.fleet.tokens.revoke(view.id)
            person = person_id(view.name, is_admin=view.scope == "admin")
            await self._gateway.fleet.pushes.remove(person, view.id)
        answer = JSONResponse({}, headers=HEADERS)
        self._set_cookie(request, answer, "", lasts_s=0)
        return answer

    async def whoami(self, request: Request) -> Response:
        """Return who is logged in: a page can't tell a refused upgrade from a lost one.

        `session` is that of one's own first conversation, null for who may not write.
        """
        _check_own(request)
        view = await self._gateway.fleet.tokens.find(request.cookies.get(cookie_name(request), ""))
        if view is None:
            raise CallRefused("UNAUTHORIZED", "Nobody is logged in.")
        person = person_id(view.name, is_admin=view.scope == "admin")
        session = None
        with contextlib.suppress(ConfigError):  # the chat itself says what is wrong
            if view.scope != "read":
                session = str(session_of(self._gateway.config(), person, None))
        about = {"name": view.name, "scope": view.scope, "session": session}
        return JSONResponse(about, headers=HEADERS)

    async def take(self, request: Request) -> Response:
        """Store a file that is to be sent, as `POST /files` does."""
        return await self._files.take(with_token(request))

    async def give(self, request: Request) -> Response:
        """Return a file of a chat, as `GET /files/SID/BLOB` does: for saving, never for showing."""
        answer = await self._files.give(with_token(request))
        answer.headers.update({**HEADERS, "Content-Disposition": "attachment"})
        return answer

    def _set_cookie(self, request: Request, answer: Response, token: str, *, lasts_s: int) -> None:
        is_encrypted = request.headers.get("origin", "").lower().startswith("https:")
        answer.set_cookie(
            cookie_name(request),
            token,
            max_age=lasts_s,
            path="/page/",
            httponly=True,
            samesite="strict",
            secure=is_encrypted,
        )


class PageSocket:
    """Answers the page's WebSocket connections: events have what is Markdown as HTML, too."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._sockets = WebSocketDoor(gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a connection, which needs the page's origin: the guard has looked at it."""
        connection = HTTPConnection(scope)
        token = connection.cookies.get(cookie_name(connection), "")
        if not token or len(connection.headers.getlist("origin")) != 1:
            await send({"type": "websocket.close"})  # answers the upgrade with 403
            return
        await receive()
        page = _PageConnection(self._gateway, receive, send, address=address_of(scope), token=token)
        await self._sockets.answer(page, send)


class _PageConnection(Connection):
    """A connection of the page: what it is told as Markdown, it is told as HTML, too."""

    is_page = True

    def payload(self, result: Result) -> bytes:
        """Return a result as JSON."""
        if isinstance(result, AsksResult | Ask):
            return self._asks(result)
        if not isinstance(result, HistoryResult | Earlier):
            return super().payload(result)
        told, room = result.told(), MAX_OF_HISTORY
        for item in reversed(told["items" if "items" in told else "events"]):  # the newest first
            text = item.get("text") or ""
            is_markdown = item.get("role", "agent") in MARKDOWN and 0 < len(text) <= MAX_RENDERED
            if is_markdown and (room := room - len(text)) >= 0:
                item["html"] = html_of(text)
        return orjson.dumps(told)

    def _asks(self, result: AsksResult | Ask) -> bytes:
        """Return requests as JSON."""
        told, room = orjson.loads(super().payload(result)), MAX_OF_HISTORY
        for ask in told.get("asks", [told]):
            if (room := room - len(ask["what"])) >= 0:
                _render_plan(ask)
        return orjson.dumps(told)

    def tell(self, event: str, payload: dict[str, Any], *, may_be_missed: bool = False) -> None:
        """Queue an event for sending."""
        if isinstance(text := payload.get("text"), str) and len(text) <= MAX_RENDERED:
            payload = {**payload, "html": _rendered(text)}
        if event == "session.ask":
            payload = _render_plan(payload)
        super().tell(event, payload, may_be_missed=may_be_missed)


def _render_plan(ask: dict[str, Any]) -> dict[str, Any]:
    """Add the HTML of a plan, which is Markdown, to a request as it is told; return it."""
    if ask["kind"] == "plan" and len(ask["what"]) <= MAX_RENDERED:
        ask["html"] = _rendered(ask["what"])
    return ask


#: All who follow a session are told the same.
_rendered = functools.lru_cache(maxsize=8)(html_of)


def cookie_name(connection: HTTPConnection) -> str:
    """Return what the cookie is called: browsers don't tell the ports of a computer apart."""
    port = connection.url.port
    return f"remoteclaw_{port}" if port else "remoteclaw"


def with_token(request: Request) -> Request:
    """Return a request of the page with its cookie's token as the token that others send."""
    _check_own(request)
    token = request.cookies.get(cookie_name(request), "")
    named = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
    headers = [*named, (b"authorization", f"Bearer {token}".encode())]
    return Request({**request.scope, "headers": headers}, request.receive)


def _check_own(request: Request) -> None:
    """Refuse a request that another page may have had sent.

    The header is enough where a browser names no origin, as for what only reads: a page of another
    origin would have to ask whether it may send it.
    """
    origins = request.headers.getlist("origin")
    if request.headers.get(OWN) != "1" or (request.method != "GET" and len(origins) != 1):
        raise CallRefused("FORBIDDEN", "Only the page itself may ask this.")


@functools.cache
def _files() -> Mapping[str, tuple[bytes, str]]:
    """Return the page's files by name, each with its tag."""
    directory = resources.files("remoteclaw.gateway.page") / "static"
    found = {file.name: file.read_bytes() for file in directory.iterdir()}
    return {
        name: (content, f'"{hashlib.sha256(content).hexdigest()[:16]}"')
        for name, content in found.items()
    }
