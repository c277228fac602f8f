"""A Slack of our own: the Web API and Socket Mode on loopback, and what people do there.

    team = slack.workspace()                        a workspace of the test's own, with one app
    ann, room = team.person("ann"), team.channel("room")
    ts = team.say(room, ann, "hi")                  a person writes; returns the message's `ts`
    team.messages(room), team.texts(room)           what people see there by now
    team.calls("chat.postMessage")                  what was asked of the API
    team.fault("chat.postMessage", "drop", is_done=True)    the next post is done, the answer lost
    team.advance(60)                                time passes: limits, repetitions, triggers
    team.api_url, team.bot_token, team.app_token    what an adapter needs

`door.Door` has all that a test can do, each a method of `team`; `server.Fault` has what can go
wrong. What the app must acknowledge (a press, a command) returns a key for `team.envelope(key)`.

One process serves all tests of a run. It takes and refuses what Slack does, as far as an adapter of
ours uses it; `@slack/web-api`'s types judge arguments and events, slack-sdk's models the blocks.
Stricter than Slack: it refuses every unknown argument, allows no bursts, and sends a repetition in
a new envelope. Two messages of different channels may have the same `ts`. Markdown stays as it is.
"""

import base64
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from tests.support.doubles import ask, starter
from tests.support.shared import shared
from tests.support.slack.writing import mentions_in

__all__ = ["Slack", "SlackWorkspace", "file", "mentions_in"]


class Slack:
    """The server, in a process of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    @classmethod
    @contextlib.contextmanager
    def shared(cls, directory: Path) -> Iterator[Self]:
        """Have it running for all that name this directory."""
        with shared(directory, starter("tests.support.slack")) as url:
            yield cls(url)

    def workspace(self) -> "SlackWorkspace":
        """Return a new workspace, in which nobody is but the app."""
        return SlackWorkspace(self.url, ask(f"{self.url}/test/new", {}))


class SlackWorkspace:
    """A workspace. All ids are Slack's, but for the keys of envelopes."""

    def __init__(self, url: str, made: dict[str, str]) -> None:
        self.url = url
        self.api_url = f"{url}/api/"
        self.team, self.bot = made["team"], made["bot"]
        self.bot_token, self.app_token = made["bot_token"], made["app_token"]

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        """Return what does a thing behind the door."""
        if verb.startswith("_"):
            raise AttributeError(verb)

        def do(*asked: Any, **named: Any) -> Any:
            return self._do(verb, *asked, **named)

        return do

    def files(self, channel: str) -> dict[str, bytes]:
        """Return the files that the app has shared in a channel, by name."""
        found = self._do("files", channel).items()
        return {name: base64.b64decode(content) for name, content in found}

    def rotate(self) -> None:
        """Revoke the tokens, and make new ones."""
        made = self._do("rotate")
        self.bot_token, self.app_token = made["bot_token"], made["app_token"]

    def _do(self, verb: str, *asked: Any, **named: Any) -> Any:
        return ask(f"{self.url}/test/{verb}", {"team": self.team, "asked": asked, "named": named})


def file(name: str, content: bytes = b"", **more: Any) -> dict[str, Any]:
    """Return a file for `say(files=[…])`, perhaps with `file_access` or a `redirect`."""
    return {"name": name, "content": base64.b64encode(content).decode(), **more}
