"""A Telegram of our own: the Bot API on loopback, and what people do there.

    bot = telegram.bot()                 a bot of the test's own, with a world of its own
    bot.say("hi", chat=7)                a person writes; returns the message's id
    bot.chat(7)                          the messages of a chat as people see it by now
    bot.calls("sendMessage")             what was asked of the API, with its parameters
    bot.fault("sendMessage", "lost")     what goes wrong at the next call
    bot.api_url, bot.token               what an adapter needs

One process serves all tests of a run, of whichever worker; aiogram, which judges each request, is
imported there.
"""

import base64
import contextlib
import re
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.doubles import ask, starter
from tests.support.shared import shared

__all__ = ["Telegram", "TelegramBot", "file", "mentions_in"]


class Telegram:
    """The server, in a process of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    @classmethod
    @contextlib.contextmanager
    def shared(cls, directory: Path) -> Iterator[Self]:
        """Have it running for all that name this directory."""
        with shared(directory, starter("tests.support.telegram")) as url:
            yield cls(url)

    def bot(self) -> "TelegramBot":
        """Return a new bot that nobody has written to."""
        made = ask(f"{self.url}/test/new", {})
        return TelegramBot(self.url, made["token"], made["me"])


class TelegramBot:
    """A bot, and the people and chats around it."""

    def __init__(self, api_url: str, token: str, me: dict[str, Any]) -> None:
        self.api_url = api_url
        self.token = token
        self.id = int(me["id"])
        self.username = str(me["username"])

    def say(self, text: str = "", **message: Any) -> int:
        """Have a person write; see `test_say` of the server."""
        return int(self._do("say", text=text, **message))

    def chat(self, chat: int, **about: Any) -> list[dict[str, Any]]:
        """Make or change a chat; return its messages as people see it by now."""
        return list(self._do("chat", chat=chat, **about))

    def texts(self, chat: int) -> list[str]:
        """Return the texts of a chat that are the bot's."""
        ours = (one for one in self.chat(chat) if one["from"]["id"] == self.id)
        return [one.get("text") or one.get("caption", "") for one in ours]

    def files(self, chat: int) -> dict[str, bytes]:
        """Return the files that the bot has sent to a chat."""
        found = {}
        for message in self.chat(chat):
            if "document" in message and message["from"]["id"] == self.id:
                about = message["document"]
                address = f"{self.api_url}/file/bot{self.token}/documents/{about['file_id']}"
                with urllib.request.urlopen(address) as answer:
                    found[about["file_name"]] = answer.read()
        return found

    def fault(self, method: str, kind: str, **more: Any) -> None:
        """Have the next calls of a method go wrong; see `_before` and `_behind` of the server."""
        self._do("fault", method=method, kind=kind, **more)

    def release(self) -> None:
        """Let go on what is held, and end all faults."""
        self._do("release")

    def react(self, emoji: str, *, chat: int, message: int, **by: Any) -> None:
        """Have a person react to a message; with no emoji, no more."""
        self._do("react", chat=chat, message=message, emoji=emoji, **by)

    def press(self, label: str = "", *, chat: int, message: int, **more: Any) -> str:
        """Have a person press a button; return the name of that."""
        return str(self._do("press", chat=chat, message=message, label=label, **more))

    def told(self, press: str) -> list[str]:
        """Return what was told to who has pressed a button."""
        return list(self._do("state")["presses"][press])

    def tell(self, update: dict[str, Any]) -> None:
        """Send an update of whatever shape."""
        self._do("tell", update=update)

    def move(self, chat: int, *, to: int, is_told: bool = True) -> None:
        """Make a supergroup of a group; the updates about it may be lost."""
        self._do("move", chat=chat, to=to, is_told=is_told)

    def set(self, **state: Any) -> None:
        """Set `webhook`, `is_revoked` or `limit_scale`."""
        self._do("set", **state)

    def calls(self, *methods: str) -> list[dict[str, Any]]:
        """Return what was asked of the API, but for polls, in order."""
        asked: Sequence[dict[str, Any]] = self._do("state")["calls"]
        return [call for call in asked if not methods or call["method"] in methods]

    def pending(self) -> list[dict[str, Any]]:
        """Return the updates that the bot has not acknowledged."""
        return list(self._do("state")["updates"])

    def commands(self) -> list[dict[str, str]]:
        """Return what its menu shows."""
        return list(self._do("state")["commands"])

    def is_polled(self) -> bool:
        """Whether somebody waits for updates."""
        return bool(self._do("state")["is_polled"])

    def polls(self) -> int:
        """Return how often it was asked for updates."""
        return self.until("getUpdates")

    def until(self, method: str, count: int = 0) -> int:
        """Wait until a method was done so often, or a poll begun; return how often it was."""
        return int(self._do("until", method=method, count=count))

    def held(self) -> int:
        """Return how many calls are held by a fault, before or behind what they do."""
        return int(self._do("state")["held"])

    def _do(self, verb: str, **asked: Any) -> Any:
        return ask(f"{self.api_url}/test/{verb}", {"token": self.token, **asked})


def file(name: str, content: bytes = b"", **more: Any) -> dict[str, Any]:
    """Return a file for `say(files=[…])`."""
    return {"name": name, "content": base64.b64encode(content).decode(), **more}


def mentions_in(message: dict[str, Any]) -> list[str]:
    """Return the names in a message that Telegram takes for mentions, which notify people.

    Code and addresses have none, but what only looks like an address does. Telegram removes some
    characters first.
    """
    raw = message.get("text", "").encode("utf-16-le")
    for entity in message.get("entities", ()):
        if entity["type"] in ("code", "pre"):
            start, end = 2 * entity["offset"], 2 * (entity["offset"] + entity["length"])
            raw = raw[:start] + b".\0" * entity["length"] + raw[end:]
    shown = re.sub("[\u2028-\u202e\u0333\u033f\u030a]", "", raw.decode("utf-16-le"))
    text = re.sub(r"https?://\w[\w-]*(\.\w+)+/\S*", "", shown)
    return re.findall(r"(?<!\w)@\w{2,32}(?!\w)", text)
