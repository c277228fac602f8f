"""The test platform as a channel of another package, run by `remoteclaw channel run`.

    channel = TestChannel.installed(monkeypatch, stack)   # the entry point, and [channels.test]
    channel.platform.say("42", "bo", "hi")                # a person writes there
    process = channel.start()                             # `remoteclaw channel run`

A chat with the name of its sender is a direct chat; any other chat is a group. The journal of the
platform has all calls: each poll is `polled`, with the process that makes it.
"""

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from remoteclaw.cli import main
from remoteclaw.config.model import AccountConfig, ChannelConfig
from remoteclaw.config.rights import BY_PEOPLE
from remoteclaw.fleet import keys
from remoteclaw.fleet.replies.replies import Replies
from remoteclaw.host.files import mime_type_of
from remoteclaw.profiles import Channel
from remoteclaw.protocols import (
    ChannelProfile,
    ContextMessage,
    Identity,
    Incoming,
    IncomingFile,
    MessageState,
    Place,
    PollResult,
)
from tests.support.agents import ROOT
from tests.support.command import REMOTECLAW, Process, start_program
from tests.support.extensions import EXAMPLE, look_again
from tests.support.platform import Platform, PlatformAdapter
from tests.support.plaza import BOT_TOKEN, FEED_TOKEN, PlazaServer
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: The directory with the metadata of the package that has the channels, and the example's code.
PACKAGES = (Path(__file__).with_name("packages"), EXAMPLE)
#: How long a poll waits for messages, in seconds.
POLL_S = 30.0


class PlatformAccount(AccountConfig):
    """The settings of an account on the platform."""

    directory: Annotated[str, BY_PEOPLE]
    """The directory of the platform."""
    buttons: Annotated[Literal["reactions"] | None, BY_PEOPLE] = None
    """How people answer requests, besides words."""


class PlatformConfig(PlatformAccount, ChannelConfig):
    """The settings of the channel `test` for its adapter."""

    accounts: Annotated[dict[str, PlatformAccount], BY_PEOPLE] = Field(default_factory=dict)


class Account(PlatformAdapter):
    """The adapter of an account: receives and sends."""

    def __init__(self, settings: PlatformAccount) -> None:
        super().__init__(Path(settings.directory))
        self.has_buttons = settings.buttons or False

    async def connect(self) -> Identity:
        await self._behaviour("connect", str(os.getpid()))
        await self._stop("connect after")
        return Identity("the_bot")

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        self._journal.add("polled", by=os.getpid(), cursors=dict(cursors))
        await self._behaviour("poll", str(os.getpid()))
        begin = int(cursors.get("", 0))
        until = asyncio.get_running_loop().time() + POLL_S
        while asyncio.get_running_loop().time() < until:
            events = self._journal.read()
            said = [event for event in events[begin:] if event["event"] == "said"]
            if said:
                await self._stop("poll after")
                return PollResult(tuple(map(incoming, said)), {"": str(len(events))})
            await asyncio.sleep(0.01)
        return PollResult()

    async def fetch(self, file: IncomingFile) -> bytes:
        await self._behaviour("fetch", file.name)
        self._journal.add("fetched", name=file.name)
        message, _, name = file.id.partition("/")
        if file.name == "odd":
            raise ValueError("as no adapter should")
        (event,) = [event for event in self._journal.read() if event["id"] == message]
        await self._stop("fetch after")
        return str({**event.get("files", {}), **event.get("quoted_files", {})}[name]).encode()

    async def context(self, place: Place, before: str, limit: int) -> Sequence[ContextMessage]:
        await self._behaviour("context", before, place.chat)
        earlier = itertools.takewhile(lambda event: event["id"] != before, self._journal.read())
        thread = [
            ContextMessage(event["by"], event["text"], f"Mx {event['by']}")
            for event in earlier
            if event["event"] in ("said", "delivered") and event["chat"] == place.chat
            if place.thread in (event.get("thread"), event["id"])
        ]
        return thread[-limit:]

    async def answer_invitation(self, incoming: Incoming, *, joins: bool) -> None:
        await self._behaviour("invitation", incoming.chat)
        self._journal.add("answered", chat=incoming.chat, joins=joins)

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        await self._behaviour("menu", "")
        self._journal.add("commands", commands=[name for name, _ in commands])
        await self._stop("menu after")

    async def aclose(self) -> None:
        pass


def incoming(event: Mapping[str, Any]) -> Incoming:
    known = {"event", "id", "chat", "by", "text", "files", "quoted_files", "at_ms", "has_sizes"}
    known |= {"is_dropped"}

    def files(kind: str) -> tuple[IncomingFile, ...]:
        return tuple(
            IncomingFile(
                f"{event['id']}/{name}",
                name,
                mime_type_of(name, b""),
                len(content) if event.get("has_sizes", True) else None,
            )
            for name, content in event.get(kind, {}).items()
        )

    more: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in event.items()
        if name not in known
    }
    return Incoming(
        id=event["id"],
        chat=event["chat"],
        sender=event["by"],
        is_group=event["chat"] != event["by"],
        at_ms=event["at_ms"],
        text=event["text"],
        files=files("files"),
        quoted_files=files("quoted_files"),
        **more,
    )


async def until_stored(stack: Stack, count: int) -> None:
    """Wait until so many reports are in the inbox of the account."""

    async def are_stored() -> bool:
        return bool(await stack.fleet.scripts.client.hlen(keys.inbox("test", "default")) == count)

    await eventually(are_stored)


#: The emoji of the states that messages show.
STATES: dict[MessageState, str] = {
    "received": "👀",
    "works": "🔨",
    "needs_you": "🙏",
    "done": "👍",
    "failed": "💔",
}
CHANNEL = Channel(
    profile=ChannelProfile(
        opens_threads=True, reactions="differences", private_replies=True, state_emoji=STATES
    ),
    settings=f"{__name__}:PlatformConfig",
    adapter=f"{__name__}:Account",
)


class TestChannel:
    """The platform, with the processes that run an account on it."""

    __test__ = False

    def __init__(self, stack: Stack, form: str) -> None:
        directory = stack.home.path / "platform"
        self.form = form
        self.platform = Platform(directory, form)
        self.settings: dict[str, Any] = {"directory": str(directory)}
        """The settings of the account."""
        if form == "plaza":
            self.settings = {"token": BOT_TOKEN, "feed_token": FEED_TOKEN}
        self._stack = stack
        self._directory = directory
        self._processes: list[Process] = []

    @classmethod
    def installed(
        cls, monkeypatch: pytest.MonkeyPatch, stack: Stack, form: str = "test", /, **settings: Any
    ) -> "TestChannel":
        """Put the channel's package on the path of this process and of later ones.

        `form` is the name of the channel: `test`, `history`, or `plaza`, whose server runs
        in `there()`.
        """
        for directory in PACKAGES:
            monkeypatch.syspath_prepend(str(directory))
        path = (*map(str, PACKAGES), str(ROOT), os.environ.get("PYTHONPATH"))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
        look_again(monkeypatch)
        channel = cls(stack, form)
        channel.configure(**settings)
        return channel

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        """Run the server of a platform that has one, and configure its address."""
        if self.form != "plaza":
            yield
            return
        async with PlazaServer(self._directory).serving() as self.settings["url"]:
            self.configure()
            yield

    def configure(self, **settings: Any) -> None:
        """Write the channel's settings; alice is its owner, and no message opens a thread."""
        about = {**self.settings, "owners": ["alice"], "threads": "platform", **settings}
        self._stack.configure(channels={self.form: about})

    def start(self, *names: str, url: str = "", claim_ms: int = 0) -> Process:
        """Start `remoteclaw channel run`, with the Redis at `url` if it is given.

        `claim_ms` shortens its claims, for a test that waits until they expire.
        """
        env = {"REMOTECLAW__REDIS__URL": url} if url else {}
        run = [__name__, str(claim_ms)] if claim_ms else [REMOTECLAW]
        argv = [*run, "channel", "run", *names]
        process = start_program(argv, env=self._stack.env(**env), log=self.log_file)
        self._processes.append(process)
        return process

    @property
    def log_file(self) -> Path:
        return self._stack.home.logs / "channel.log"

    def pollers(self) -> list[int]:
        """Return the ids of the processes that have polled, in order."""
        return [event["by"] for event in self.platform.did("polled")]

    def texts(self, chat: str) -> list[str]:
        """Return the texts of the bot in a chat."""
        return [post.text for post in self.platform.chat(chat) if post.by == "agent"]

    def end(self) -> None:
        """End the processes that were started."""
        for process in self._processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    assert Replies.reader.__kwdefaults__, "it has a time of its own"
    Replies.reader.__kwdefaults__["claim_ms"] = int(sys.argv.pop(1))
    main(prog_name="remoteclaw")
