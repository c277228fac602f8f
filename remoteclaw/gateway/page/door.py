"""The HTTP interface of the page: its files, the login, and its WebSocket.

A browser authenticates with an operator token of its own, in two halves. One half is a cookie that
no script can read. Browsers send it to every port of the host, so every server there can get it;
the other half, the key, is in the page's storage, which only the page's own origin can read.
Because other sites can make the browser send the cookie, a request also needs the page's own origin
(the guard checks it) and a header that no other site can set.
"""

import contextlib
import functools
import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any, Self

import orjson
from pydantic import Field
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from remoteclaw.channels.web.profile import CHANNEL, person_id
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.gateway.conversations import Conversations
from remoteclaw.gateway.doors.files import FilesDoor
from remoteclaw.gateway.doors.ws import WebSocketConnection, WebSocketDoor
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import address_of, parsed
from remoteclaw.gateway.page.html import hides_words, html_of
from remoteclaw.host.tokens import token_id_of
from remoteclaw.messages import DEFAULT_ACCOUNT
from remoteclaw.tools.base import Params, Result
from remoteclaw.tools.chat import EarlierEvents
from remoteclaw.tools.requests import RequestsResult, RequestView
from remoteclaw.tools.sessions import HistoryResult

#: The headers of every file: the page may use only its own files and its own gateway.
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
#: The header that marks the page's own requests.
PAGE_HEADER = "x-remoteclaw-page"
#: The header with the key; a WebSocket connection has it in `connect`.
KEY_HEADER = "x-remoteclaw-key"
#: The length of the key, the second half of a token's secret: 128 bits.
KEY_CHARS = 32
#: The longest text that is rendered as HTML, in characters: at worst this blocks the event loop for
#: a third of a second. The page shows a longer text unrendered.
MAX_RENDERED_CHARS = 30_000
#: How many characters of a history are rendered as HTML, for the same reason; its items are short.
MAX_HISTORY_CHARS = 100_000
#: The roles of the items that are Markdown: messages of agents and of RemoteClaw.
MARKDOWN_ROLES = frozenset(("agent", "error", "notice"))
#: The media types of the page's files, by extension.
MEDIA_TYPES = {
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
    """Answers the page's HTTP requests to one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._files = FilesDoor(gateway)

    async def file(self, request: Request) -> Response:
        """Return a file of the page: `/`, or `/page/NAME`."""
        return self._file(request, request.path_params.get("name", "index.html"))

    async def guest_file(self, request: Request) -> Response:
        """Return the page of guests, who watch one terminal: `/watch`."""
        return self._file(request, "watch.html")

    def _file(self, request: Request, name: str) -> Response:
        files = _files()
        if name not in files:
            raise CallRefused("NOT_FOUND", "The page has no such file.")
        file = files[name]
        is_packed = file.packed is not None and _takes_gzip(request)
        tag = f'"{file.digest}-gzip"' if is_packed else f'"{file.digest}"'
        headers = {**HEADERS, "ETag": tag, "Vary": "Accept-Encoding"}
        if name == "sw.js":  # its scope is /, and its own path is below that
            headers["Service-Worker-Allowed"] = "/"
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        media_type = MEDIA_TYPES[name.rpartition(".")[2]]
        content = file.packed if is_packed else file.content
        return Response(content, media_type=media_type, headers=headers)

    async def login(self, request: Request) -> Response:
        """Exchange a login code, which is valid once, for the cookie and the key."""
        _check_own(request)
        exchanged = await self._gateway.fleet.logins.exchange((await parsed(request, _Code)).code)
        if exchanged is None:
            self._gateway.metrics.auth_failures += 1
            raise CallRefused(
                "UNAUTHORIZED",
                "This link is not valid any more: `remoteclaw open` prints a new one.",
            )
        token, view = exchanged
        person = person_id(view.name, is_admin=view.scope == "admin")
        await self._gateway.fleet.pairings.add(
            CHANNEL, DEFAULT_ACCOUNT, person, name=view.name, by="the page's login"
        )
        lasts_s = ((view.expires_ms or 0) - view.created_ms) // 1000
        about = {"name": view.name, "scope": view.scope, "key": token[-KEY_CHARS:]}
        answer = JSONResponse(about, headers=HEADERS)
        self._set_cookie(request, answer, token[:-KEY_CHARS], lasts_s=lasts_s)
        return answer

    async def logout(self, request: Request) -> Response:
        """Revoke the browser's token."""
        _check_own(request)
        if view := await self._gateway.fleet.tokens.find(_token_of(request)):
            await self._gateway.fleet.tokens.revoke(view.id)
            person = person_id(view.name, is_admin=view.scope == "admin")
            await self._gateway.fleet.push_subscriptions.remove(person, view.id)
        answer = JSONResponse({}, headers=HEADERS)
        self._set_cookie(request, answer, "", lasts_s=0)
        return answer

    async def whoami(self, request: Request) -> Response:
        """Return the logged-in operator; 401 without a valid login, with the reason.

        The page needs this because it can't tell a refused WebSocket from a lost connection.
        `session` is the key of the operator's conversation with the first agent, null if they may
        not write.
        """
        _check_own(request)
        view = await self._gateway.fleet.tokens.find(_token_of(request))
        if view is None:
            raise CallRefused("UNAUTHORIZED", await self._why_unknown(request))
        person = person_id(view.name, is_admin=view.scope == "admin")
        session = None
        with contextlib.suppress(ConfigError):  # opening the chat reports the error
            if view.scope != "read":
                fleet, config = self._gateway.fleet, self._gateway.config()
                session = str(await Conversations(fleet.web, person, config).with_agent())
        about = {"name": view.name, "scope": view.scope, "session": session}
        return JSONResponse(about, headers=HEADERS)

    async def _why_unknown(self, request: Request) -> str:
        """Return why a browser is not logged in. A cookie that is a whole token is revoked."""
        cookie = request.cookies.get(cookie_name(request), "")
        if view := await self._gateway.fleet.tokens.find(cookie):
            await self._gateway.fleet.tokens.revoke(view.id)
        if token_id_of(cookie):
            return "An update has ended this login, which other servers of this computer could use."
        if cookie and not request.headers.get(KEY_HEADER):
            return "This browser has deleted the page's data, and with it half of your login."
        return "You are not logged in, or not any more."

    async def upload(self, request: Request) -> Response:
        """Store a file for a message, as `POST /files` does."""
        return await self._files.take(with_token(request))

    async def download(self, request: Request) -> Response:
        """Return a file of a chat, as `GET /files/SID/BLOB` does, but always as a download."""
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
    """Answers the page's WebSocket connections, and renders Markdown in their payloads as HTML."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._sockets = WebSocketDoor(gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a connection. It needs an origin, which the guard has checked."""
        connection = HTTPConnection(scope)
        cookie = connection.cookies.get(cookie_name(connection), "")
        if not cookie or len(connection.headers.getlist("origin")) != 1:
            await send({"type": "websocket.close"})  # answers the upgrade with 403
            return
        await receive()
        page = _PageConnection(
            self._gateway, receive, send, address=address_of(scope), cookie=cookie
        )
        await self._sockets.answer(page, send)


class _PageConnection(WebSocketConnection):
    """A connection of the page, whose payloads also have their Markdown as HTML."""

    is_page = True

    def __init__(
        self, gateway: Gateway, receive: Receive, send: Send, *, address: str, cookie: str
    ) -> None:
        super().__init__(gateway, receive, send, address=address)
        self._cookie = cookie

    def token_of(self, credential: str) -> str:
        """Return the token of the cookie and of the key that the page has sent."""
        return _joined(self._cookie, credential)

    def payload(self, result: Result) -> bytes:
        """Return a result as JSON."""
        if isinstance(result, RequestsResult | RequestView):
            return self._requests_payload(result)
        if not isinstance(result, HistoryResult | EarlierEvents):
            return super().payload(result)
        payload, room = result.to_json(), MAX_HISTORY_CHARS
        for item in reversed(payload["items" if "items" in payload else "events"]):  # newest first
            text = item.get("text") or ""
            is_markdown = (
                item.get("role", "agent") in MARKDOWN_ROLES and 0 < len(text) <= MAX_RENDERED_CHARS
            )
            if is_markdown and (room := room - len(text)) >= 0:
                item["html"] = html_of(text)
        return orjson.dumps(payload)

    def _requests_payload(self, result: RequestsResult | RequestView) -> bytes:
        """Return requests as JSON."""
        payload, room = orjson.loads(super().payload(result)), MAX_HISTORY_CHARS
        for shown in payload.get("requests", [payload]):
            if (room := room - len(shown["what"])) >= 0:
                _render_plan(shown)
        return orjson.dumps(payload)

    def send_event(
        self, event: str, payload: dict[str, Any], *, is_droppable: bool = False
    ) -> None:
        """Queue an event for sending, with its Markdown also as HTML."""
        if isinstance(text := payload.get("text"), str) and len(text) <= MAX_RENDERED_CHARS:
            payload = {**payload, "html": _rendered(text)}
        if event == "session.request":
            payload = _render_plan(payload)
        super().send_event(event, payload, is_droppable=is_droppable)


def _render_plan(shown: dict[str, Any]) -> dict[str, Any]:
    """Add the HTML of a plan, which is Markdown, to a request's payload; return the payload.

    A plan that the HTML would not show completely is shown as text.
    """
    plan = shown["what"] if shown["kind"] == "plan" else ""
    if plan and len(plan) <= MAX_RENDERED_CHARS and not _hides_words(plan):
        shown["html"] = _rendered(plan)
    return shown


#: Cached, because all subscribers of a session receive the same text.
_rendered = functools.lru_cache(maxsize=8)(html_of)
_hides_words = functools.lru_cache(maxsize=8)(hides_words)


def cookie_name(connection: HTTPConnection) -> str:
    """Return the cookie's name, with the port: a browser shares cookies between a host's ports."""
    port = connection.url.port
    return f"remoteclaw_{port}" if port else "remoteclaw"


def _token_of(request: Request) -> str:
    """Return the token whose halves a request has; empty if one is missing."""
    cookie = request.cookies.get(cookie_name(request), "")
    return _joined(cookie, request.headers.get(KEY_HEADER, ""))


def _joined(cookie: str, key: str) -> str:
    """Return the token of a cookie and a key; empty if the key is not half a secret."""
    return f"{cookie}{key}" if len(key) == KEY_CHARS else ""


def with_token(request: Request) -> Request:
    """Return a request of the page with its token in the header `Authorization`."""
    _check_own(request)
    token = _token_of(request)
    others = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
    headers = [*others, (b"authorization", f"Bearer {token}".encode())]
    return Request({**request.scope, "headers": headers}, request.receive)


def _check_own(request: Request) -> None:
    """Raise `CallRefused` for a request that another site may have caused.

    The header is enough for GET requests, for which browsers send no origin: another site can't set
    it without a preflight request.
    """
    origins = request.headers.getlist("origin")
    if request.headers.get(PAGE_HEADER) != "1" or (request.method != "GET" and len(origins) != 1):
        raise CallRefused("FORBIDDEN", "Only the page itself may send this request.")


def _takes_gzip(request: Request) -> bool:
    """Whether a browser accepts compressed files."""
    return bool(_GZIP.search(request.headers.get("accept-encoding", "")))


#: The coding gzip in `Accept-Encoding`, unless its quality is 0.
_GZIP = re.compile(r"(?:^|[,\s])gzip\s*(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))(?:[;,]|$)")


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the page."""

    content: bytes
    packed: bytes | None
    """The compressed content; None if that is no smaller."""
    digest: str

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return a file with a content."""
        packed = gzip.compress(content, mtime=0)
        digest = hashlib.sha256(content).hexdigest()[:16]
        return cls(content, packed if len(packed) < len(content) else None, digest)


@functools.cache
def _files() -> Mapping[str, _File]:
    """Return the page's files by name; they are read and compressed once."""
    directory = resources.files("remoteclaw.gateway.page") / "static"
    return {file.name: _File.of(file.read_bytes()) for file in directory.iterdir()}
