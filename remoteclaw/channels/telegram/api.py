"""A client of the Bot API, which it calls through `Bot.do_api_request` of python-telegram-bot.

It does not use the handlers and models of that library.

Responses of the Bot API and the exceptions that they become:

| response | exception |
|---|---|
| 400, 403, 413 | `TelegramRefused`, with an explanation for known errors |
| 401; 404 of `getMe` | `AccountRefused`: the token is invalid |
| 404 of any other method | `TelegramRefused`: the server has no such method |
| 409 | `AccountRefused`: a webhook is set, or another program polls |
| 429 | `PlatformBusy` for the time that the response names |
| 5xx other than 504; no connection | `PlatformAway` |
| 504; no response | `PlatformUnknown`; the adapter makes it `PlatformAway` for a poll |
| 400 with a chat's new id | none: the call is repeated with the new id |
"""

import logging
import sys
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
    RemoteClawError,
)

# If they are installed, httpx imports its command line with rich (4 MB of memory), and telegram
# imports cryptography for passports (6 MB). Neither is needed, so both imports are blocked.
_BLOCKED_IMPORTS = ("httpx._main", "cryptography.hazmat")
for _name in _BLOCKED_IMPORTS:
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]

import httpx  # noqa: E402
from telegram import Bot, InputFile  # noqa: E402
from telegram.error import (  # noqa: E402
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
)
from telegram.request import HTTPXRequest  # noqa: E402
from telegram.warnings import PTBUserWarning  # noqa: E402

for _name in _BLOCKED_IMPORTS:
    if sys.modules[_name] is None:
        del sys.modules[_name]

#: Time limits for connecting, for a response, and for the transfer of a file, in seconds.
CONNECT_S, ANSWER_S, FILE_S = 10.0, 20.0, 120.0
#: At most this many calls run at once, besides a poll: the relay's replies, and live text.
MAX_AT_ONCE = 128

#: Explanations for people, by a part of Telegram's error text.
_EXPLANATIONS = {
    "blocked by the user": "The person has blocked the bot in Telegram.",
    "user is deactivated": "The person's Telegram account is deleted.",
    "can't initiate conversation": "The person has to write to the bot first.",
    "bot was kicked": "The bot was removed from that group: add it there again.",
    "bot is not a member": "The bot is no member of that group: add it there.",
    "chat not found": "Telegram knows no such chat, or nobody has written to the bot there.",
    "message thread not found": "That topic of the chat is gone.",
    "message to": "There is no such message in that chat.",
    "topic_closed": "That topic of the chat is closed.",
    "reaction_invalid": "Telegram has no such reaction: it takes single emoji such as 👍 ❤ 🔥 👀.",
    "not enough rights": "The bot lacks the right: make it an administrator of that chat.",
    "have no rights": "The bot lacks the right: make it an administrator of that chat.",
    "can't be deleted": "Telegram lets bots delete only what is younger than 48 hours.",
    "file is too big": "The file is larger than the 20 MB that Telegram gives to bots.",
    "request entity too large": "The file is larger than the 50 MB that Telegram takes from bots.",
}


class TelegramRefused(PlatformRefused):
    """Raised when the Bot API refuses a call. Its text is an explanation, or Telegram's own."""

    def __init__(self, text: str) -> None:
        lower = text.lower()
        explanation = next((why for part, why in _EXPLANATIONS.items() if part in lower), "")
        super().__init__(explanation or f"Telegram refused it: {text[:200]}.")
        self._lower = lower

    def contains_any(self, parts: Sequence[str]) -> bool:
        """Whether Telegram's error text contains any of `parts`, which are in lower case."""
        return any(part in self._lower for part in parts)


class BotApi:
    """The Bot API, with one bot's token."""

    def __init__(self, token: str, url: str) -> None:
        # These libraries log the URLs of requests, and each URL contains the token.
        for name in ("httpx", "httpcore", "telegram"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        # The library warns about each raw call, and about a field of its own exceptions.
        warnings.filterwarnings("ignore", category=PTBUserWarning)
        self._files = f"{url}/file/bot{token}"
        # Without TLS, a proxy of the environment would get the token, which is in each URL.
        options = {"verify": httpx.create_ssl_context(), "trust_env": url.startswith("https:")}
        self._calls = HTTPXRequest(
            connection_pool_size=MAX_AT_ONCE,
            read_timeout=ANSWER_S,
            write_timeout=ANSWER_S,
            connect_timeout=CONNECT_S,
            pool_timeout=ANSWER_S,
            media_write_timeout=FILE_S,
            httpx_kwargs=options,
        )
        self._polls = HTTPXRequest(
            connection_pool_size=1, connect_timeout=CONNECT_S, httpx_kwargs=options
        )
        self._bot = Bot(
            token,
            base_url=f"{url}/bot",
            request=self._calls,
            get_updates_request=self._polls,
        )
        self._moved: dict[str, str] = {}
        """The new ids of groups that have become supergroups, by their first ids."""
        self.moves: list[tuple[str, str]] = []
        """The first and the new ids of such groups, until the next poll reports them."""

    async def ask(self, method: str, *, more_s: float = 0, **params: Any) -> Any:
        """Call a method of the Bot API. The response may take `more_s` seconds longer than usual.

        Raises the exceptions of the table above.
        """
        for _ in range(2):
            if (chat := params.get("chat_id")) is not None:
                params["chat_id"] = self._moved.get(chat, chat)
            try:
                return await self._bot.do_api_request(
                    method, params, read_timeout=ANSWER_S + more_s
                )
            except ChatMigrated as moved:
                self._moved[str(chat)] = str(moved.new_chat_id)
                self.moves.append((str(chat), str(moved.new_chat_id)))
            except TelegramError as error:
                raise _failure(method, error) from None
        raise TelegramRefused("the chat has another id")

    async def fetch(self, file_id: str) -> bytes:
        """Return the content of a file. Raises the exceptions of the table above."""
        path = (await self.ask("getFile", file_id=file_id))["file_path"]
        try:
            return await self._calls.retrieve(f"{self._files}/{quote(path)}", read_timeout=FILE_S)
        except TelegramError as error:
            raise _failure("file", error) from None

    async def aclose(self) -> None:
        """Close all connections."""
        await self._calls.shutdown()
        await self._polls.shutdown()


def upload(content: bytes, name: str) -> InputFile:
    """Return a file as a parameter for `ask`."""
    return InputFile(content, filename=name)


def _failure(method: str, error: TelegramError) -> RemoteClawError:
    # A response that is no JSON, such as a proxy's, has another TelegramError as its cause.
    cause = None if isinstance(error.__cause__, TelegramError) else error.__cause__
    kind = type(cause).__name__ if cause else error.message.partition(". ")[0].rstrip(".")
    match error:
        case RetryAfter():
            after = error.retry_after
            after_s = after.total_seconds() if isinstance(after, timedelta) else float(after)
            return PlatformBusy("Telegram is asked too often.", after_s=after_s)
        case EndPointNotFound():
            return TelegramRefused(f"the server has no method {method}")
        case InvalidToken() if error.message == "Not Found" and method != "getMe":
            return TelegramRefused(f"the server has no method {method}")
        case InvalidToken():
            return AccountRefused(
                "Telegram doesn't know the bot's token: copy it again from @BotFather (/mybots, "
                "API Token); if it was revoked there, take the new one."
            )
        case Conflict() if "webhook" in error.message.lower():
            return AccountRefused(
                "A webhook is set for the bot, so its messages go elsewhere: stop the program that "
                "has set it and call the Bot API's deleteWebhook."
            )
        case Conflict():
            return AccountRefused(
                "Another program reads the bot's messages with the same token: stop it, or make a "
                "bot of its own for RemoteClaw at @BotFather (/newbot)."
            )
        case BadRequest() | Forbidden():
            return TelegramRefused(error.message)
        case NetworkError() if isinstance(cause, _NOT_SENT):
            return PlatformAway(f"Telegram can't be reached ({kind}).")
        case NetworkError() if cause is not None or "gateway time" in kind.lower():
            return PlatformUnknown(f"Telegram did not answer ({kind}): it may have been done.")
        case NetworkError() if "entity too large" in kind.lower():
            return TelegramRefused(kind)
    return PlatformAway(f"Telegram is out of order ({kind[:100]}).")


#: Errors that happen before a request is sent.
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
