"""A client of a homeserver: the client-server API with the token of one account.

It repeats nothing. Responses of the homeserver and the exceptions that they become:

| response | exception |
|---|---|
| `M_UNKNOWN_TOKEN`, `M_MISSING_TOKEN`, a deactivated account | `AccountRefused` |
| 429 | `PlatformBusy` of the account, for the time that the response names |
| any other 4xx | `MatrixRefused`, with an explanation for known codes |
| 502 with a code, where another server is needed: that one can't be reached | `MatrixRefused` |
| any other 5xx than 504; no connection | `PlatformAway` |
| 504; no response | `PlatformUnknown`; `PlatformAway` for `get`, which has no effect |
"""

import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx2

from remoteclaw.errors import (
    AccountRefused,
    ConfigError,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
    RemoteClawError,
)
from remoteclaw.host.files import format_size

#: Time limits for connecting, for a response, and for the transfer of a file, in seconds.
CONNECT_S, ANSWER_S, FILE_S = 10.0, 30.0, 120.0
#: The pause after a 429 that names none, in seconds.
BUSY_S = 5.0
#: What reading an object of another form raises, also one that is nested too deep.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
MEDIA = "/_matrix/media/v3"
PERHAPS_DONE = ": it may have been done."

#: Explanations for people, by the homeserver's error code.
_EXPLANATIONS = {
    "M_FORBIDDEN": "The homeserver forbids it: the account is not in that room, or lacks the right "
    "there.",
    "M_NOT_FOUND": "The homeserver knows no such room or message.",
    "M_TOO_LARGE": "The homeserver refuses it: it is too large.",
    "M_GUEST_ACCESS_FORBIDDEN": "The homeserver forbids it to guests: use an account.",
    "M_CONSENT_NOT_GIVEN": "The homeserver wants its terms accepted first: log in to the account "
    "with a client, such as Element.",
}
#: Codes with which a homeserver refuses the account itself.
_ACCOUNT = {
    "M_UNKNOWN_TOKEN": "The homeserver has ended the account's login: run `remoteclaw channel add "
    "matrix` again, which logs in with the same device.",
    "M_MISSING_TOKEN": "The homeserver got no access token: run `remoteclaw channel add matrix`.",
    "M_USER_DEACTIVATED": "The account is deactivated: make another one.",
    "M_USER_SUSPENDED": "The homeserver has suspended the account: ask its administrators.",
    "M_USER_LOCKED": "The homeserver has locked the account: ask its administrators.",
}


class MatrixRefused(PlatformRefused):
    """Raised when the homeserver refuses a call."""

    def __init__(self, code: str, text: str, status: int, session: str = "") -> None:
        super().__init__(_EXPLANATIONS.get(code) or f"The homeserver refused it: {text[:200]}.")
        self.code = code
        self.status = status
        self.session = session
        """The session of an authentication that the homeserver asks for."""


class Homeserver:
    """A homeserver, with the access token of an account."""

    def __init__(self, url: str, token: str = "") -> None:
        for library in ("httpx2", "httpcore2"):  # they log each request
            logging.getLogger(library).setLevel(logging.WARNING)
        self.url = url
        # Without TLS, a proxy of the environment would get the token.
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=64, max_keepalive_connections=16),
            trust_env=url.startswith("https:"),
        )

    async def get(
        self, *path: str, version: str = "v3", wait_s: float = 0, **params: Any
    ) -> dict[str, Any]:
        """Return what is at a path of a version of the API, given as its segments.

        The response may take `wait_s` seconds longer than usual.
        """
        timeout = httpx2.Timeout(ANSWER_S + wait_s, connect=CONNECT_S)
        try:
            return await self._json("GET", _path(path, version), params=params, timeout=timeout)
        except PlatformUnknown as unknown:  # it has no effect, so it can be repeated
            raise PlatformAway(str(unknown).replace(PERHAPS_DONE, ".")) from None

    async def put(self, *path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Put a body at a path of the API; return the response."""
        return await self._json("PUT", _path(path), content=json_of(body))

    async def post(self, *path: str, body: Mapping[str, Any], **params: Any) -> dict[str, Any]:
        """Post a body to a path of the API; return the response."""
        return await self._json("POST", _path(path), content=json_of(body), params=params)

    async def join(self, room: str, *, through: str) -> None:
        """Join a room, if need be through the server of a user who is in it."""
        server = through.partition(":")[2]
        about = {"via": server, "server_name": server}  # older homeservers know the second one only
        await self.post("join", room, body={}, **about)

    async def upload(self, content: bytes, name: str, mime_type: str) -> str:
        """Store a file on the homeserver; return its address (`mxc://…`)."""
        answer = await self._json(
            "POST",
            f"{MEDIA}/upload",
            params={"filename": name},
            content=content,
            headers={"Content-Type": mime_type},
            timeout=httpx2.Timeout(FILE_S, connect=CONNECT_S),
        )
        return str(answer["content_uri"])

    async def download(self, uri: str, *, max_bytes: int) -> bytes:
        """Return the content of a file. Raises `PlatformRefused` for one that is too large."""
        server, _, media = uri.removeprefix("mxc://").partition("/")
        path = f"/_matrix/client/v1/media/download/{quote(server, safe='')}/{quote(media, safe='')}"
        content = b""
        try:
            async with self._http.stream(
                "GET", path, timeout=httpx2.Timeout(FILE_S, connect=CONNECT_S)
            ) as response:
                if response.status_code != 200:
                    raise _failure(response, await response.aread())
                async for piece in response.aiter_bytes():
                    content += piece
                    if len(content) > max_bytes:
                        limit = format_size(max_bytes)
                        raise PlatformRefused(f"The file is larger than {limit}.")
        except httpx2.HTTPError as error:
            raise PlatformAway(_no_answer(self.url, error)) from None
        return content

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        try:
            response = await self._http.request(method, path, **request)
        except _NOT_SENT as error:
            raise PlatformAway(_no_answer(self.url, error)) from None
        except httpx2.HTTPError as error:
            kind = type(error).__name__
            raise PlatformUnknown(f"The homeserver did not answer ({kind}){PERHAPS_DONE}") from None
        if response.status_code == 200 and isinstance(answer := _parsed(response.content), dict):
            return answer
        raise _failure(response, response.content)


async def discovered(name: str) -> str:
    """Return the address of a homeserver by its name, such as matrix.org, or by its address.

    Raises `ConfigError` if there is none.
    """
    name = name.strip().rstrip("/")
    url = name if name.startswith(("https://", "http://")) else f"https://{name}"
    async with httpx2.AsyncClient(timeout=CONNECT_S, follow_redirects=True) as http:
        for known in (await _well_known(http, url), url):
            try:
                answer = await http.get(f"{known}/_matrix/client/versions")
            except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
                continue
            found = _parsed(answer.content)
            if isinstance(found, dict) and "versions" in found:
                return known
    raise ConfigError(
        f"There is no Matrix homeserver at {url}: check the name, which is what follows the colon "
        "in your Matrix id."
    )


async def _well_known(http: httpx2.AsyncClient, url: str) -> str:
    try:
        found = _parsed((await http.get(f"{url}/.well-known/matrix/client")).content)
        return str(found["m.homeserver"]["base_url"]).rstrip("/")
    except (httpx2.HTTPError, httpx2.InvalidURL, KeyError, TypeError, ValueError):
        return url


def json_of(body: Any) -> bytes:
    """Return a body as the homeserver reads it; half characters become question marks."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _path(segments: tuple[str, ...], version: str = "v3") -> str:
    names = (quote(segment, safe="") for segment in segments)
    return "/".join((f"/_matrix/client/{version}", *names))


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _no_answer(url: str, error: Exception) -> str:
    return f"The homeserver {url} can't be reached ({type(error).__name__})."


def _failure(response: httpx2.Response, content: bytes) -> RemoteClawError:
    answer, status = _parsed(content), response.status_code
    answer = answer if isinstance(answer, dict) else {}
    code, text = str(answer.get("errcode", "")), str(answer.get("error", f"HTTP {status}"))
    if why := _ACCOUNT.get(code):
        return AccountRefused(why)
    if status == 429:
        pause_s = _pause(answer, response)
        return PlatformBusy("The homeserver is asked too often.", after_s=pause_s, is_account=True)
    if status == 504:
        return PlatformUnknown(f"The homeserver did not answer (504){PERHAPS_DONE}")
    path = response.request.url.raw_path
    is_of_another = status == 502 and code and any(each in path for each in _OF_OTHERS)
    if 400 <= status < 500 or is_of_another:
        session = str(answer.get("session", ""))
        return MatrixRefused(code, text.rstrip("."), status, session)
    return PlatformAway(f"The homeserver is out of order (HTTP {status}).")


def _pause(answer: Mapping[str, Any], response: httpx2.Response) -> float:
    """Return the pause that a 429 names, in seconds."""
    try:
        return float(answer["retry_after_ms"]) / 1000
    except (KeyError, TypeError, ValueError):
        after = response.headers.get("Retry-After", "")
        return float(after) if after.isdecimal() else BUSY_S


#: Calls for which the homeserver may need another server.
_OF_OTHERS = (b"/v3/join/", b"/v1/media/download/")
#: Errors that happen before a request is sent.
_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
