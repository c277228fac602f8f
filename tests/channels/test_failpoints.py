"""At every step of a channel's process, the worst that can happen there.

Each case has `remoteclaw channel run` stopped at one step: at a command to Redis, by a proxy before
it, or at a call of its platform, before or behind what that does. There the process is killed, or
Redis is. In the end everything is there, in order and once, but for what the platform may have
been given without our knowledge: that comes again as "(perhaps a second time)".
"""

import asyncio
import contextlib
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from redis.exceptions import ConnectionError

from remoteclaw.config.home import Home
from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import decode_entry
from remoteclaw.fleet.reply import operation_payload
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Operation
from tests.support.channel import TestChannel
from tests.support.command import Process
from tests.support.failpoints import Proxy, Side
from tests.support.platform import Post
from tests.support.stack import REPLIES, Stack
from tests.support.talks import Talk
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGAIN = "(perhaps a second time)\n"
NOTHING_MORE = "nothing more is "
ACCOUNT = ("test", "default")
#: How long a claim lasts that a copy is to lose, in milliseconds.
CLAIM_MS = 1000


@dataclass
class Lab:
    """A channel's process behind a proxy, for all cases of this module."""

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
    """Held by a story but for its waits: only in those may Redis end."""

    @property
    def client(self) -> Any:
        return self.stack.fleet.scripts.client

    async def begin(self, claim_ms: int = 0) -> None:
        """Have the process at work, and a case begun; its claims may be short."""
        self.word, self.bo = uuid.uuid4().hex, uuid.uuid4().hex
        await self.client.delete(keys.PAIRING)
        if self.process and claim_ms != self.claim_ms:
            self.kill()
        self.claim_ms = claim_ms
        if self.process is None:
            self.start()

    def start(self) -> None:
        """Start a process; one that was killed before leaves its claim to it."""
        self.process = self.channel.start(url=self.proxy.url, claim_ms=self.claim_ms)

    async def is_unclaimed(self) -> bool:
        """Whether the claim of a process is over."""
        return not await self.client.exists(keys.reader(*ACCOUNT))

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self.process
        self.process.kill()
        self.process.wait()
        self.process = None

    def telling(self, story: "Story") -> asyncio.Task[None]:
        """Have a story told beside the test."""

        async def told() -> None:
            async with self.at_work:
                await story(self)

        return asyncio.create_task(told())

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Have a story wait for a condition; Redis may be away meanwhile."""

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
        """Kill Redis once it has answered all that the story asked of it; start it again."""
        async with self.at_work:
            self.stack.redis.kill()
            await asyncio.to_thread(self.stack.redis.start)

    async def is_settled(self) -> bool:
        """Whether all replies have their receipts, and no preview is noted."""
        left = await self.client.xlen(REPLIES) + await self.client.hlen(keys.previews(*ACCOUNT))
        return not left

    # What comes in.

    def say(self, text: str, **more: Any) -> None:
        """Have the owner write."""
        self.channel.platform.say("alice", "alice", text, thread=self.word, **more)

    async def accepted(self) -> list[tuple[str, list[str]]]:
        """Return what was accepted of the owner's: texts, and names of files."""
        session = SessionKey("main", *ACCOUNT, "alice", "alice", self.word)
        entries = await self.client.xrange(keys.inbound(session.sid))
        messages = [decode_entry(*entry).message for entry in entries]
        return [(one.text, [file.name for file in one.attachments]) for one in messages]

    async def is_read(self) -> bool:
        """Whether the position is behind all that people have written."""
        position = int(await self.client.get(keys.position(*ACCOUNT)) or 0)
        events = self.channel.platform.events[position:]
        return not [event for event in events if event["event"] == "said"]

    # What goes out.

    def posts(self) -> list[Post]:
        return self.channel.platform.chat(self.word)

    async def shown(self, turn: Talk, text: str) -> None:
        """Show how far a turn has come until that is seen."""

        async def is_seen() -> bool:
            is_noted = bool(await self.client.hlen(keys.previews(*ACCOUNT)))
            if is_noted and text in [post.text for post in self.posts()]:
                return True
            await turn.show(text)
            return False

        await self.until(is_seen)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    """One Redis, one platform, one account; a process is started where there is none."""
    with (
        tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        stack = Stack(Home(Path(name) / "home").create())
        await stack.start()
        proxy = await stack.proxied()
        channel = TestChannel.installed(monkeypatch, stack)
        try:
            yield Lab(stack, proxy, channel)
        finally:
            channel.end()
            await stack.stop()


Story = Callable[[Lab], Any]


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
    """Two messages; a turn that is shown, with a file; one that quotes; a reaction."""
    client, chat = lab.client, lab.word
    await lab.stack.put_replies(*ACCOUNT, ("one", "two"), chat=chat)
    await lab.until(lab.is_settled)
    turn = await Talk.begin(lab.stack.fleet, chat=chat)
    await lab.shown(turn, "Let")
    await lab.shown(turn, "Let me")
    file = await lab.stack.fleet.blobs.put(turn.lease.sid, "plan.txt", b"1, 2")
    await turn.end("Done.", attachments=(file,))
    await lab.until(lab.is_settled)
    turn = await Talk.begin(lab.stack.fleet, chat=chat)
    await lab.shown(turn, "Well")
    await turn.end("Yes.", reply_to_id="m1")
    await lab.until(lab.is_settled)
    args = {"messageId": lab.posts()[0].id, "emoji": "x"}
    payload = operation_payload(
        uuid.uuid4().hex, Operation("react", chat, None, args, expires_ms=2**60)
    )
    await client.xadd(REPLIES, {"reply": orjson.dumps(payload)})
    await lab.until(lab.is_settled)


async def see(lab: Lab, story: Story, *, again: tuple[str, ...] = ("one",), left: str = "") -> None:
    """See that a story has come to its end: all is there once, in order.

    `again` is how the first message stands there, and `left` a preview that nobody knows.
    """
    if story is write:
        assert await lab.accepted() == [("one", []), ("two", ["plan.txt"]), ("three", [])]
        # It may be on its way when the copy stops, and come behind what the next copy says.
        texts = sorted(lab.channel.texts(lab.bo), key=len)
        told = texts[0].removeprefix(AGAIN)
        assert "Your code is" in told
        assert texts in ([told], [f"{AGAIN}{told}"], [told, f"{AGAIN}{told}"])
        return
    posts = lab.posts()
    texts = [*again, "two", *([left] if left else []), "Done.", "Yes."]
    assert [post.text for post in posts] == texts
    assert [post.files for post in posts if post.files] == [{"plan.txt": "1, 2"}]
    assert posts[0].reaction == "x"


#: The steps of each story: calls of the platform, and commands to Redis.
CALLS = {
    **dict.fromkeys(("connect", "menu", "poll", "fetch"), write),
    **dict.fromkeys(("send", "preview", "edit", "typing", "replace", "file"), answer),
    **dict.fromkeys(("remove", "react"), answer),
}
COMMANDS = {
    **dict.fromkeys(("read", "pairing", "call_send", "append", "advance"), write),
    **dict.fromkeys(("mark_sent", "receipt", "preview"), answer),
}
#: How the first message stands in the chat where its outcome is not known.
PERHAPS = {
    "send before": (f"{AGAIN}one",),
    "send after": ("one", f"{AGAIN}one"),
    "mark_sent after": (f"{AGAIN}one",),
    "receipt before": ("one", f"{AGAIN}one"),
}
#: The same of a file: whether it says so, each time that it was sent.
FILES = {"file before": [True], "file after": [False, True]}


# What is killed before a call is so behind the one before.
@pytest.mark.thorough("connect", "menu", "poll-before", "fetch-before", "edit-after", "typing")
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
async def test_a_process_that_is_killed_in_the_call(lab: Lab, call: str, side: Side) -> None:
    await lab.begin()
    where, story, platform = f"{call} {side}", CALLS[call], lab.channel.platform
    held = len(platform.did("held"))
    platform.tell(stops=where)
    if call in ("connect", "menu"):
        lab.kill()
        lab.start()
    telling = lab.telling(story)
    await eventually(lambda: len(platform.did("held")) > held)
    lab.kill()
    platform.tell()
    lab.start()
    await telling

    # Nobody knows what the platform calls a preview whose id was lost: it stays.
    left = "Let" if where == "preview after" else ""
    await see(lab, story, again=PERHAPS.get(where, ("one",)), left=left)
    files = [event["is_again"] for event in platform.did("file") if event["chat"] == lab.word]
    assert files == (FILES.get(where, [False]) if story is answer else [])


@pytest.mark.thorough(  # what Redis has not heard of is sent again; the next step is killed before
    *("before-end_redis", "read-after"),
    *(f"{command}-after-kill" for command in ("pairing", "call_send", "append")),
)
@pytest.mark.parametrize("what_happens", ["kill", "end_redis"])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_process_at(lab: Lab, command: str, side: Side, what_happens: str) -> None:
    await lab.begin()
    where, story = f"{command} {side}", COMMANDS[command]
    failpoint = lab.proxy.arm(command, side)
    telling = lab.telling(story)
    await failpoint.wait()
    is_killed = what_happens == "kill"
    if is_killed:
        if story is write:  # what is killed while it sends may send twice
            await eventually(lab.is_settled)
        lab.kill()
        failpoint.cut()
        lab.start()
    else:
        await lab.end_redis()
        failpoint.cut()
    await telling

    left = "Let" if is_killed and where == "preview before" else ""
    await see(lab, story, again=PERHAPS.get(where, ("one",)) if is_killed else ("one",), left=left)


@pytest.mark.thorough("append-after", "advance-after", "receipt-after")
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("command", ["append", "advance", "mark_sent", "receipt"])
async def test_a_copy_that_freezes_past_its_claim_at(lab: Lab, command: str, side: Side) -> None:
    """Another one takes over. When it wakes, all is done, and it does nothing more."""
    await lab.begin(claim_ms=CLAIM_MS)
    where, story = f"{command} {side}", COMMANDS[command]
    failpoint = lab.proxy.arm(command, side)
    telling = lab.telling(story)
    await failpoint.wait()
    frozen = lab.process
    assert frozen
    frozen.send_signal(signal.SIGSTOP)
    await eventually(lab.is_unclaimed)
    lab.start()
    await telling
    said = lab.channel.log_file.read_text().count(NOTHING_MORE)
    failpoint.release()
    frozen.send_signal(signal.SIGCONT)
    await eventually(lambda: lab.channel.log_file.read_text().count(NOTHING_MORE) > said)
    frozen.kill()

    await see(lab, story, again=PERHAPS.get(where, ("one",)))
