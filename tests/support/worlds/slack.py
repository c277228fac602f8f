"""Slack with people on it."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from remoteclaw.channels.slack.manifest import BOT_SCOPES, EVENTS
from tests.support.slack import SlackWorkspace
from tests.support.slack import file as slack_file
from tests.support.slack import mentions_in as slack_mentions
from tests.support.stack import Stack
from tests.support.waiting import eventually
from tests.support.worlds.world import MEGABYTE, NO_FILES, OWNER, World


class SlackWorld(World):
    """Slack. The owner wrote there before the account was set up."""

    provider = "slack"
    most = 4000
    large = 21 * MEGABYTE
    has_threads = True
    goes_by_time = True

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        self._team: SlackWorkspace = request.getfixturevalue("team")
        self._team.set(scopes=[*BOT_SCOPES], events=[*EVENTS])  # as the app's manifest says
        self._team.set(limit_scale=100)  # the suite is quicker than people
        self._people: dict[int, str] = {
            number: self._team.person(f"person{number}") for number in (OWNER, 8, 9)
        }
        self._chats: dict[int, str] = {
            number: self._team.direct(id_) for number, id_ in self._people.items()
        }
        self.group = self._team.channel("room", members=[*self._people.values()])
        self._last: dict[str, Any] = {}
        self.settings: dict[str, Any] = {
            "api_url": self._team.api_url,
            "token": self._team.bot_token,
            "app_token": self._team.app_token,
        }

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        await self.say("said before the first start")
        yield

    def person(self, number: int) -> str:
        return self._people[number]

    def chat(self, number: int) -> str:
        return self._chats[number]

    def called(self, number: int) -> str:
        return f"person{number} ({self.person(number)})"

    async def say(
        self,
        text: str,
        *,
        by: int = OWNER,
        name: str = "Ann",
        edits: str = "",
        files: Mapping[str, bytes] = NO_FILES,
        **more: Any,
    ) -> str:
        chat, user = more.pop("chat", self._chats[by]), self._people[by]
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        if name != "Ann":
            self._team.call_person(user, name)
        if edits:
            self._team.edit(chat, edits, text)
            return edits
        if more.pop("is_for_us", False):
            text = f"<@{self._team.bot}> {text}"
        if more.pop("is_bot", False):
            more["bot_id"] = "B0000000001"
        sent = [slack_file(title, what[:1000], size=len(what)) for title, what in files.items()]
        return str(self._team.say(chat, user, text, files=sent, **more))

    async def delete(self, message: str) -> None:
        self._team.delete(self._chats[OWNER], message)

    async def repeat(self) -> None:
        """Deliver the last event again, as after a lost acknowledgement."""
        events = [
            each["payload"] for each in self._team.envelopes() if each["type"] == "events_api"
        ]
        self._team.tell(events[-1]["event"])

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        shown = [each for each in self._ours(OWNER) if len(each.get("blocks", ())) > 1]
        self._team.press(self._chats[OWNER], shown[-1]["ts"], self._people[by], "once")

    def _ours(self, chat: int) -> list[dict[str, Any]]:
        found = self._team.messages(self._chats[chat])
        return [each for each in found if each["user"] == self._team.bot]

    def texts(self, chat: int = OWNER) -> list[str]:
        alone = [each["text"] for each in self._team.ephemerals(self._people[chat])]
        return [*filter(None, map(_read_in_slack, self._ours(chat))), *alone]

    def threads(self) -> list[str | None]:
        ours = [each for each in self._team.messages(self.group) if each["user"] == self._team.bot]
        return [each.get("thread_ts") for each in ours]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        return self._team.files(self._chats[chat])

    def mention(self, number: int | None) -> str:
        return "<!channel>" if number is None else f"<@{self.person(number)}>"

    def mentioned(self, chat: int = OWNER) -> list[str]:
        return [name for each in self._ours(chat) for name in slack_mentions(each)]

    def previewed(self) -> list[str]:
        calls = [each["arguments"] for each in self._team.calls("chat.postMessage")]
        return [str(each) for each in calls if each.get("unfurl_links") != "false"]

    def is_busy(self, after_s: int) -> None:
        self._team.fault("chat.postMessage", "limited", after_s=after_s)

    def forgets(self) -> None:
        self._team.fault("chat.postMessage", "drop", is_done=True, times=10**6)

    def is_away(self) -> None:
        self._team.fault("*", "status", status=503, times=10**6)
        self._team.drop()

    def holds_files(self) -> None:
        self._team.fault("files.info", "hold", times=10**6)

    async def come_back(self) -> None:
        """Start the process again; after a minute, Slack repeats what was not acknowledged."""
        await super().come_back()
        await eventually(self._team.sockets)
        self._team.advance(60)

    def is_back(self) -> None:
        self._team.release()


def _read_in_slack(message: Mapping[str, Any]) -> str:
    """Return the text of a message as people see it: its blocks, if it has some."""
    shown = [each["text"] for each in message.get("blocks", ()) if each["type"] == "markdown"]
    return "\n".join(shown) or str(message["text"])
