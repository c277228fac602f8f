"""The worst failures at every step of a channel's process.

Each case stops `remoteclaw channel run` at one step: at a command to Redis, by a proxy in front of
it, or at a call of its platform, before or after the call's effect. Then the process or Redis is
killed. In the end all messages and replies have arrived, in order and once. Only a call whose
outcome is unknown is repeated, with the note "(perhaps a second time)".
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
from remoteclaw.fleet.replies.reply import operation_payload
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Operation
from tests.support.channel import TestChannel
from tests.support.command import Process
from tests.support.failpoints import Proxy, Side
from tests.support.manual_turn import ManualTurn
from tests.support.platform import Post
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGAIN = "(perhaps a second time)\n"
STOP_NOTICE = " stops "
ACCOUNT = ("test", "default")
#: The duration of a claim that a process is to lose, in milliseconds.
CLAIM_MS = 1000


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
    def client(self) -> Any:
        return self.stack.fleet.scripts.client

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
        return not await self.client.exists(keys.reader(*ACCOUNT))

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
        left = await self.client.xlen(REPLIES) + await self.client.hlen(keys.previews(*ACCOUNT))
        return not left

    # Messages of people.

    def say(self, text: str, **more: Any) -> None:
        """Write a message as the owner."""
        self.channel.platform.say("alice", "alice", text, thread=self.word, **more)

    async def accepted(self) -> list[tuple[str, list[str]]]:
        """Return the texts and file names of the owner's accepted messages."""
        session = SessionKey("main", *ACCOUNT, "alice", "alice", self.word)
        entries = await self.client.xrange(keys.inbound(session.sid))
        messages = [decode_entry(*entry).message for entry in entries]
        return [(message.text, [file.name for file in message.attachments]) for message in messages]

    async def is_read(self) -> bool:
        """Whether all messages that people have written were handled."""
        position = int(await self.client.hget(keys.cursors(*ACCOUNT), "") or 0)
        events = self.channel.platform.events[position:]
        left = [event for event in events if event["event"] == "said"]
        return not left and not await self.client.exists(keys.inbox(*ACCOUNT))

    # Replies.

    def posts(self) -> list[Post]:
        return self.channel.platform.chat(self.word)

    async def show(self, turn: ManualTurn, text: str) -> None:
        """Publish live text of a turn until the platform shows it."""

        async def is_seen() -> bool:
            is_noted = bool(await self.client.hlen(keys.previews(*ACCOUNT)))
            if is_noted and text in [post.text for post in self.posts()]:
                return True
            await turn.show(text)
            return False

        await self.until(is_seen)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    """One Redis, one platform and one account; the cases start the process."""
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
    await lab.stack.put_replies(*ACCOUNT, ("one", "two"), chat=chat)
    await lab.until(lab.is_settled)
    turn = await ManualTurn.begin(lab.stack.fleet, chat=chat)
    await lab.show(turn, "Let")
    await lab.show(turn, "Let me")
    file = await lab.stack.fleet.blobs.put(turn.lease.sid, "plan.txt", b"1, 2")
    await turn.end("Done.", attachments=(file,))
    await lab.until(lab.is_settled)
    turn = await ManualTurn.begin(lab.stack.fleet, chat=chat)
    await lab.show(turn, "Well")
    await turn.end("Yes.", reply_to_id="m1")
    await lab.until(lab.is_settled)
    args = {"messageId": lab.posts()[0].id, "emoji": "x"}
    payload = operation_payload(
        uuid.uuid4().hex, Operation("react", chat, None, args, expires_ms=2**60)
    )
    await client.xadd(REPLIES, {"reply": orjson.dumps(payload)})
    await lab.until(lab.is_settled)


async def check(
    lab: Lab, scenario: Scenario, *, again: tuple[str, ...] = ("one",), left: str = ""
) -> None:
    """Check that everything of a scenario has arrived once and in order.

    `again` holds the expected copies of the first message, `left` the text of a lost preview.
    """
    if scenario is write:
        assert await lab.accepted() == [("one", []), ("two", ["plan.txt"]), ("three", [])]
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


#: The steps of each scenario: calls of the platform, and commands to Redis.
CALLS = {
    **dict.fromkeys(("connect", "menu", "poll", "fetch"), write),
    **dict.fromkeys(("send", "preview", "edit", "typing", "replace", "file"), answer),
    **dict.fromkeys(("remove", "react"), answer),
}
COMMANDS = {
    **dict.fromkeys(("read", "pairing", "call_send", "append", "inbox_store", "inbox_done"), write),
    **dict.fromkeys(("mark_sent", "receipt", "preview"), answer),
}
#: The copies of the first message in the chat if its outcome is unknown.
PERHAPS = {
    "send before": (f"{AGAIN}one",),
    "send after": ("one", f"{AGAIN}one"),
    "mark_sent after": (f"{AGAIN}one",),
    "receipt before": ("one", f"{AGAIN}one"),
}
#: Whether each copy of the file is marked as a repetition, in order.
FILES = {"file before": [True], "file after": [False, True]}


# A kill before a call equals a kill after the previous call.
@pytest.mark.thorough("connect", "menu", "poll-before", "fetch-before", "edit-after", "typing")
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
async def test_a_process_killed_during_a_platform_call_loses_nothing(
    lab: Lab, call: str, side: Side
) -> None:
    await lab.begin()
    where, scenario, platform = f"{call} {side}", CALLS[call], lab.channel.platform
    held = len(platform.did("held"))
    platform.tell(stops=where)
    if call in ("connect", "menu"):
        lab.kill()
        lab.start()
    playing = lab.play(scenario)
    await eventually(lambda: len(platform.did("held")) > held)
    lab.kill()
    platform.tell()
    lab.start()
    await playing

    # A preview whose id was lost can't be removed.
    left = "Let" if where == "preview after" else ""
    await check(lab, scenario, again=PERHAPS.get(where, ("one",)), left=left)
    files = [event["is_again"] for event in platform.did("file") if event["chat"] == lab.word]
    assert files == (FILES.get(where, [False]) if scenario is answer else [])


@pytest.mark.thorough(  # a command that Redis didn't get is repeated; the next step covers the rest
    *("before-end_redis", "read-after"),
    *(f"{command}-after-kill" for command in ("pairing", "call_send", "append")),
)
@pytest.mark.parametrize("what_happens", ["kill", "end_redis"])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_process_or_redis_killed_at_any_command_loses_nothing(
    lab: Lab, command: str, side: Side, what_happens: str
) -> None:
    await lab.begin()
    where, scenario = f"{command} {side}", COMMANDS[command]
    failpoint = lab.proxy.arm(command, side)
    playing = lab.play(scenario)
    await failpoint.wait()
    is_killed = what_happens == "kill"
    if is_killed:
        if scenario is write:  # a process that is killed during a send may send twice
            await eventually(lab.is_settled)
        lab.kill()
        failpoint.cut()
        lab.start()
    else:
        await lab.end_redis()
        failpoint.cut()
    await playing

    left = "Let" if is_killed and where == "preview before" else ""
    await check(
        lab, scenario, again=PERHAPS.get(where, ("one",)) if is_killed else ("one",), left=left
    )


@pytest.mark.thorough("append-after", "inbox_store-after", "receipt-after")
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("command", ["append", "inbox_store", "inbox_done", "mark_sent", "receipt"])
async def test_a_process_frozen_past_its_claim_does_nothing_more(
    lab: Lab, command: str, side: Side
) -> None:
    """Another process takes over. When the frozen one wakes, it does nothing more."""
    await lab.begin(claim_ms=CLAIM_MS)
    where, scenario = f"{command} {side}", COMMANDS[command]
    failpoint = lab.proxy.arm(command, side)
    playing = lab.play(scenario)
    await failpoint.wait()
    frozen = lab.process
    assert frozen
    frozen.send_signal(signal.SIGSTOP)
    await eventually(lab.is_unclaimed)
    lab.start()
    await playing
    count = lab.channel.log_file.read_text().count(STOP_NOTICE)
    failpoint.release()
    frozen.send_signal(signal.SIGCONT)
    await eventually(lambda: lab.channel.log_file.read_text().count(STOP_NOTICE) > count)
    frozen.kill()

    await check(lab, scenario, again=PERHAPS.get(where, ("one",)))
