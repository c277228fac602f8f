"""A channel's process and its proxy to Redis, to kill or freeze the process at any step.

`write` and `answer` are what people and an agent do meanwhile; `check` says whether all of it has
arrived once and in order.
"""

import asyncio
import contextlib
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from redis.exceptions import ConnectionError

from remoteclaw.config.home import Home
from remoteclaw.fleet import keys
from remoteclaw.fleet.replies.reply import operation_payload
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Operation
from tests.support.channel import TestChannel
from tests.support.command import Process
from tests.support.failpoints import Proxy
from tests.support.manual_turn import ManualTurn
from tests.support.platform import AGAIN, Post, source_of
from tests.support.stack import Stack
from tests.support.waiting import eventually


@dataclass
class Lab:
    """A channel's process and its proxy to Redis, shared by all cases of this module."""

    stack: Stack
    proxy: Proxy
    channel: TestChannel
    process: Process | None = None
    claim_ms: int = 0
    bo: str = ""
    """The stranger of a case."""
    word: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The thread, and the chat, of a case."""
    at_work: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a scenario except while it waits; Redis is killed only then."""

    @property
    def account(self) -> tuple[str, str]:
        """The names of the channel and of the account."""
        return self.channel.form, "default"

    @property
    def client(self) -> Any:
        return self.stack.fleet.scripts.client

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, form: str) -> AsyncIterator["Lab"]:
        """Start a Redis and a platform of a form, with one account."""
        with (
            tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name,
            pytest.MonkeyPatch.context() as monkeypatch,
        ):
            stack = Stack(Home(Path(name) / "home").create())
            await stack.start()
            proxy = await stack.proxied()
            channel = TestChannel.installed(monkeypatch, stack, form)
            async with channel.there():
                try:
                    yield cls(stack, proxy, channel)
                finally:
                    channel.end()
                    await stack.stop()

    async def begin(self, claim_ms: int = 0) -> None:
        """Begin a case with a running process, whose claims may be short."""
        self.word, self.bo = uuid.uuid4().hex, uuid.uuid4().hex
        await self.client.delete(keys.PAIRING)
        if self.process and claim_ms != self.claim_ms:
            self.kill()
        self.claim_ms = claim_ms
        if self.process is None:
            self.start()

    def start(self) -> None:
        """Start a process; it gets the claim of a killed one."""
        self.process = self.channel.start(url=self.proxy.url, claim_ms=self.claim_ms)

    async def is_unclaimed(self) -> bool:
        """Whether no process has the claim."""
        return not await self.client.exists(keys.reader(*self.account))

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self.process
        self.process.kill()
        self.process.wait()
        self.process = None

    def play(self, scenario: "Scenario") -> asyncio.Task[None]:
        """Run a scenario as a task, in parallel with the test."""

        async def run_locked() -> None:
            async with self.at_work:
                await scenario(self)

        return asyncio.create_task(run_locked())

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait in a scenario for a condition; Redis may be down during the wait."""

        async def holds() -> bool:
            with contextlib.suppress(ConnectionError):
                return await condition()
            return False

        self.at_work.release()
        try:
            await eventually(holds)
        finally:
            await self.at_work.acquire()

    async def end_redis(self) -> None:
        """Kill and restart Redis at a moment without an unanswered command of the scenario."""
        async with self.at_work:
            self.stack.redis.kill()
            await asyncio.to_thread(self.stack.redis.start)

    async def is_settled(self) -> bool:
        """Whether all replies have their receipts, and no preview is noted."""
        left = await self.client.xlen(keys.replies(*self.account))
        left += await self.client.hlen(keys.previews(*self.account))
        return not left

    # Messages of people.

    def say(self, text: str, **more: Any) -> None:
        """Write a message as the owner."""
        self.channel.platform.say("alice", "alice", text, thread=self.word, **more)

    async def accepted(self) -> list[tuple[str, list[str]]]:
        """Return the texts and file names of the owner's accepted messages."""
        session = SessionKey("main", *self.account, "alice", "alice", self.word)
        entries = await self.client.xrange(keys.inbound(session.sid))
        messages = [decode_entry(*entry).message for entry in entries]
        return [(message.text, [file.name for file in message.attachments]) for message in messages]

    async def is_read(self) -> bool:
        """Whether all messages that people have written were handled."""
        cursors = await self.client.hgetall(keys.cursors(*self.account))

        def is_stored(number: int, event: dict[str, Any]) -> bool:
            sources = ("", source_of(event))
            return number <= max(int(cursors.get(source.encode(), 0)) for source in sources)

        events = enumerate(self.channel.platform.events, 1)
        said = [each for each in events if each[1]["event"] == "said"]
        inbox = keys.inbox(*self.account)
        return all(is_stored(*each) for each in said) and not await self.client.exists(inbox)

    # Replies.

    def posts(self) -> list[Post]:
        return self.channel.platform.chat(self.word)

    async def show(self, turn: ManualTurn, text: str) -> None:
        """Publish live text of a turn until the platform shows it."""

        async def is_seen() -> bool:
            is_noted = bool(await self.client.hlen(keys.previews(*self.account)))
            if is_noted and text in [post.text for post in self.posts()]:
                return True
            await turn.show(text)
            return False

        await self.until(is_seen)


Scenario = Callable[[Lab], Any]


async def write(lab: Lab) -> None:
    """A stranger and the owner write, the owner with a file."""
    lab.channel.platform.say(lab.bo, lab.bo, "let me in")
    lab.say("one")
    lab.say("two", files={"plan.txt": "1, 2"})
    await lab.until(lab.is_read)
    lab.say("three")
    await lab.until(lab.is_read)
    await lab.until(lab.is_settled)


async def answer(lab: Lab) -> None:
    """Send two messages, a turn with live text and a file, a quoting turn, and a reaction."""
    client, chat = lab.client, lab.word
    await lab.stack.put_replies(*lab.account, ("one", "two"), chat=chat)
    await lab.until(lab.is_settled)
    turn = await ManualTurn.begin(lab.stack.fleet, provider=lab.channel.form, chat=chat)
    await lab.show(turn, "Let")
    await lab.show(turn, "Let me")
    file = await lab.stack.fleet.blobs.put(turn.lease.sid, "plan.txt", b"1, 2")
    await turn.end("Done.", attachments=(file,))
    await lab.until(lab.is_settled)
    turn = await ManualTurn.begin(lab.stack.fleet, provider=lab.channel.form, chat=chat)
    await lab.show(turn, "Well")
    await turn.end("Yes.", reply_to_id="m1")
    await lab.until(lab.is_settled)
    args = {"messageId": lab.posts()[0].id, "emoji": "x"}
    payload = operation_payload(
        uuid.uuid4().hex, Operation("react", chat, None, args, expires_ms=2**60)
    )
    await client.xadd(keys.replies(*lab.account), {"reply": orjson.dumps(payload)})
    await lab.until(lab.is_settled)


async def check(
    lab: Lab, scenario: Scenario, *, again: tuple[str, ...] = ("one",), left: str = ""
) -> None:
    """Check that everything of a scenario has arrived once and in order.

    `again` holds the expected copies of the first message, `left` the text of a lost preview.
    """
    if scenario is write:
        got = await lab.accepted()
        assert got == [("one", []), ("two", ["plan.txt"]), ("three", [])], got
        # The code may be in flight when the process is killed, and arrive after its repetition.
        texts = sorted(lab.channel.texts(lab.bo), key=len)
        text = texts[0].removeprefix(AGAIN)
        assert "Your code is" in text
        assert texts in ([text], [f"{AGAIN}{text}"], [text, f"{AGAIN}{text}"])
        return
    posts = lab.posts()
    texts = [*again, "two", *([left] if left else []), "Done.", "Yes."]
    assert [post.text for post in posts] == texts
    assert [post.files for post in posts if post.files] == [{"plan.txt": "1, 2"}]
    assert posts[0].reaction == "x"
