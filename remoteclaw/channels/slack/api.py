"""A client of Slack's Web API with one token.

It repeats nothing. What Slack says, and the exceptions that it becomes:

| response | exception |
|---|---|
| `invalid_auth`, `token_revoked` and others of the account | `AccountRefused` |
| 429 | `PlatformBusy` for the time that the response names |
| `missing_scope` | `SlackRefused`, which names the scope |
| another error | `SlackRefused`, with an explanation for known ones |
| `internal_error`, another 5xx, no response | `PlatformUnknown`; `PlatformAway` for reading |
| no connection, 503 | `PlatformAway` |
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

import httpx2

from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
    RemoteClawError,
)
from remoteclaw.host.files import format_size

#: Time limits for connecting, for a response, and for the transfer of a file, in seconds.
CONNECT_S, ANSWER_S, FILE_S = 10.0, 30.0, 120.0
#: The pause after a 429 that names none, and the longest, in seconds.
BUSY_S, MAX_BUSY_S = 5.0, 600.0
#: Methods that change nothing that lasts, so that they can be repeated.
_READING = (
    *("apps.connections.", "assistant.", "auth.", "conversations.", "files.get", "files.info"),
    *("reactions.get", "users."),
)

#: Explanations for people, by Slack's error.
_EXPLANATIONS = {
    "not_in_channel": "The app is not in that channel: invite it with /invite.",
    "channel_not_found": "Slack knows no such channel, or the app is not in it: invite it with "
    "/invite.",
    "is_archived": "The channel is archived.",
    "ekm_access_denied": "The workspace's administrators have suspended messages there.",
    "restricted_action": "The workspace doesn't let apps post there.",
    "restricted_action_read_only_channel": "The channel is read-only.",
    "restricted_action_thread_only_channel": "The channel takes only replies in threads.",
    "msg_too_long": "Slack refuses it: it is too long.",
    "message_not_found": "Slack has no such message.",
    "messages_tab_disabled": "The app can't be written to: switch on the Messages Tab under App "
    "Home on the app's page.",
    "invalid_name": "Slack knows no such emoji.",
    "link_disabled": "Socket Mode is switched off: switch it on on the app's page.",
}
#: What Slack says if it refuses the account itself.
_ACCOUNT = {
    "invalid_auth": "Slack doesn't know one of the two tokens: run `remoteclaw channel add slack`, "
    "and copy both again from the app's page.",
    "not_authed": "Slack got no token: run `remoteclaw channel add slack`.",
    "token_revoked": "The token is revoked: install the app again on its page, and run "
    "`remoteclaw channel add slack` with the new one.",
    "token_expired": "The token has expired: switch off token rotation on the app's page, and run "
    "`remoteclaw channel add slack` with a new one.",
    "account_inactive": "The app is removed from the workspace, or the workspace is gone: install "
    "the app again on its page.",
    "team_access_not_granted": "The workspace has not approved the app: ask its administrators.",
    "access_denied": "The workspace doesn't allow the app: ask its administrators.",
    **dict.fromkeys(
        ("org_login_required", "team_added_to_org"),
        "The workspace is being moved to an Enterprise organization: wait until that is done.",
    ),
    "not_allowed_token_type": "That is the token of another kind: the bot token begins with xoxb-, "
    "and the app-level token with xapp-.",
    "link_disabled": _EXPLANATIONS["link_disabled"],
}
#: Of these, what Slack also says of a single channel or file, and the methods that concern neither.
_OF_ONE = ("access_denied", "team_access_not_granted", "not_allowed_token_type")
_OF_ACCOUNT = ("auth.test", "apps.connections.open")
_FAILED = ("internal_error", "fatal_error", "request_timeout")


class SlackRefused(PlatformRefused):
    """Raised when Slack refuses a call."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(text)
        self.error = error


class WebApi:
    """The Web API, with one token."""

    def __init__(self, url: str, token: str) -> None:
        for library in ("httpx2", "httpcore2"):  # they log each request
            logging.getLogger(library).setLevel(logging.WARNING)
        self._url = url
        self._token = token
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=64, max_keepalive_connections=16),
            trust_env=url.startswith("https:"),
            event_hooks={"request": [self._sign]},
        )
        self.scopes: frozenset[str] = frozenset()
        """The scopes of the token, as the newest response says."""
        self.moved: dict[str, str] = {}
        """The new ids of channels: calls with the old ones concern these."""
        self.answered = ""
        """When Slack has answered last, as HTTP writes a time."""

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method; arguments that are None are left out. Return the response."""
        for name in {"channel", "channel_id"} & arguments.keys():
            arguments[name] = self.moved.get(arguments[name], arguments[name])
        sent = {name: _encoded(value) for name, value in arguments.items() if value is not None}
        is_reading = method.startswith(_READING)
        try:
            response = await self._http.post(f"{self._url}/{method}", data=sent)
        except _NOT_SENT as error:
            raise PlatformAway(_no_answer(error)) from None
        except httpx2.HTTPError as error:
            raise _unknown(type(error).__name__, is_reading=is_reading) from None
        answer, self.answered = _parsed(response.content), response.headers.get("date", "")
        if scopes := response.headers.get("x-oauth-scopes"):
            self.scopes = frozenset(each.strip() for each in scopes.split(","))
        if response.status_code == 200 and answer.get("ok") is True:
            return answer
        raise _failure(method, response, answer, is_reading=is_reading)

    async def _sign(self, request: httpx2.Request) -> None:
        """Add the token to a request, also to one that follows a redirect.

        A file's address can be anywhere, because apps make files out of addresses. Raises
        `PlatformRefused` for another server than Slack's: it must not get the token, and one in the
        network here must not be asked.
        """
        slack, asked = httpx2.URL(self._url), request.url
        is_same = (asked.scheme, asked.port) == (slack.scheme, slack.port)
        if not is_same or not f".{asked.host}".endswith(f".{slack.host}"):
            raise PlatformRefused("Slack doesn't have its content, only a link to it.")
        request.headers["Authorization"] = f"Bearer {self._token}"

    async def upload(self, url: str, content: bytes) -> None:
        """Store the content of a file at the address that Slack has given for it."""
        try:
            response = await self._http.post(url, content=content, timeout=FILE_S)
        except httpx2.HTTPError as error:  # the file is not shared yet
            raise PlatformAway(_no_answer(error)) from None
        if response.status_code != 200:
            raise PlatformAway(f"Slack did not take the file (HTTP {response.status_code}).")

    async def download(self, url: str, *, max_bytes: int, is_html: bool) -> bytes:
        """Return the content of a file, which is a web page only if it `is_html`.

        Raises `PlatformRefused` for one that is too large or not Slack's, and for a login page.
        """
        content = b""
        try:
            async with self._http.stream(
                "GET", url, timeout=FILE_S, follow_redirects=True
            ) as response:
                if response.status_code != 200:
                    raise PlatformAway(
                        f"Slack did not give the file (HTTP {response.status_code})."
                    )
                if "html" in response.headers.get("content-type", "") and not is_html:
                    raise PlatformRefused(NO_FILES)
                async for piece in response.aiter_bytes():
                    content += piece
                    if len(content) > max_bytes:
                        limit = format_size(max_bytes)
                        raise PlatformRefused(f"The file is larger than {limit}.")
        except httpx2.HTTPError as error:
            raise PlatformAway(_no_answer(error)) from None
        return content

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()


NO_FILES = (
    "Slack shows a login page instead of the file: give the app the scope files:read, and install "
    "it again."
)


def next_page(page: Mapping[str, Any]) -> str:
    """Return the cursor of the page after one; empty if that is the last."""
    return str((page.get("response_metadata") or {}).get("next_cursor") or "")


def _encoded(value: Any) -> str:
    """Return an argument as a field of a form; half characters become question marks."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return json.dumps(value, separators=(",", ":"))


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _no_answer(error: Exception) -> str:
    return f"Slack can't be reached ({type(error).__name__})."


def _unknown(why: str, *, is_reading: bool) -> RemoteClawError:
    if is_reading:  # it has no effect, so it can be repeated
        return PlatformAway(f"Slack did not answer ({why}).")
    return PlatformUnknown(f"Slack did not answer ({why}): it may have been done.")


def _failure(
    method: str, response: httpx2.Response, answer: Mapping[str, Any], *, is_reading: bool
) -> RemoteClawError:
    error, status = str(answer.get("error", "")), response.status_code
    if status == 429 or error in ("ratelimited", "rate_limited"):
        after = response.headers.get("Retry-After", "")
        pause = min(float(after), MAX_BUSY_S) if after.isdecimal() else BUSY_S
        is_account = method != "chat.postMessage"
        return PlatformBusy("Slack is asked too often.", after_s=pause, is_account=is_account)
    why = _ACCOUNT.get(error) or _EXPLANATIONS.get(error)
    if error in _ACCOUNT and (error not in _OF_ONE or method in _OF_ACCOUNT):
        return AccountRefused(_ACCOUNT[error])
    if status == 503 or error == "service_unavailable":
        return PlatformAway("Slack is out of order (503).")
    if status >= 500 or error in _FAILED:
        return _unknown(error or f"HTTP {status}", is_reading=is_reading)
    if error == "missing_scope":
        is_app = method.startswith("apps.")
        how = "make an app-level token with it" if is_app else "add it, and install the app again"
        why = f"The app lacks the scope {answer.get('needed')}: {how} on its page."
    return SlackRefused(error, why or f"Slack refused it ({error or f'HTTP {status}'}).")


#: Errors that happen before a request is sent.
_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
