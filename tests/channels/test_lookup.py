"""Messages that were perhaps sent: keys that platforms remember for a while, and their histories.

A repetition with a key that the platform remembers is no second message. Behind that, the platform
is asked for the message, and only one that it lacks is sent again, with a label.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.channels import budget, delivery
from remoteclaw.channels.relay import relay
from remoteclaw.clock import boottime
from remoteclaw.errors import PlatformAway, PlatformRefused, PlatformUnknown
from remoteclaw.fleet import keys
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.protocols import ChannelAdapter, Part, Reply, Sent
from tests.support import looking
from tests.support.failpoints import Side
from tests.support.looking import LookingPlatform
from tests.support.manual_turn import ManualTurn, wait_for_live_text_listener
from tests.support.platform import AGAIN, Platform, PlatformAdapter
from tests.support.stack import REPLIES, Stack, kill
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first pause that no test waits for."""
    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.01)


@pytest.fixture
def platform(directory: Path) -> Iterator[Platform]:
    made = Platform(directory / "platform")
    yield made
    made.end()


async def queue_reply(stack: Stack, text: str, **more: Any) -> None:
    await stack.put_reply("test", "default", text, chat="chat-1", **more)


async def wait_until_empty(stack: Stack) -> None:
    """Wait until every reply has its receipt."""
    client: Any = stack.fleet.scripts.client

    async def is_empty() -> bool:
        return not await client.xlen(REPLIES)

    await eventually(is_empty)
    assert not await client.exists(keys.delivery_marks("test", "default"))


@contextlib.asynccontextmanager
async def relayed(stack: Stack, adapter: ChannelAdapter) -> AsyncIterator[None]:
    reader = stack.fleet.replies.reader("test", "default", token="the test's")
    assert await reader.claim()
    task = asyncio.create_task(relay(reader, adapter))
    yield
    task.cancel()
    await asyncio.wait((task,))


def shown(platform: Platform) -> list[str]:
    return [post.text for post in platform.chat("chat-1")]


class Lossy(LookingPlatform):
    """Loses messages on their way, or the platform's responses about them."""

    def __init__(self, directory: Path, *, messages: int = 0, responses: int = 0) -> None:
        super().__init__(directory)
        self._messages, self._responses = messages, responses

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        if self._messages:
            self._messages -= 1
            raise PlatformUnknown("The connection was lost.")
        sent = await super().send(reply, part, content, is_again=is_again)
        if self._responses:
            self._responses -= 1
            raise PlatformUnknown("The connection was lost.")
        return sent


# -- look-ups --------------------------------------------------------------------------------------


async def test_a_message_whose_response_was_lost_is_found_and_not_repeated(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    began_ms = await stack.fleet.scripts.now_ms()
    await queue_reply(stack, "one")
    async with relayed(stack, Lossy(directory / "platform", responses=1)):
        await wait_until_empty(stack)

    (post,) = platform.chat("chat-1")
    assert post.text == "one"
    (look,) = platform.did("find")
    assert look["since_ms"] >= began_ms - delivery.SKEW_MS
    assert await stack.fleet.replies.message_origin("test", "default", "chat-1", post.id)


async def test_a_message_that_the_platform_lacks_is_sent_again_and_says_so(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    """The first one may still arrive."""
    await queue_reply(stack, "one")
    async with relayed(stack, Lossy(directory / "platform", messages=1)):
        await wait_until_empty(stack)

    assert shown(platform) == [f"{AGAIN}one"]


async def test_an_earlier_message_with_the_same_words_is_not_taken_for_a_lost_one(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    """Nor is a preview, which is removed after the answer."""
    await queue_reply(stack, "Yes.")
    async with relayed(stack, LookingPlatform(directory / "platform")):
        await wait_for_live_text_listener(stack.fleet)
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Yes.")
        await eventually(lambda: platform.did("preview"))
        await wait_until_empty(stack)
    # The answer quotes a message, so it does not replace the preview.
    await turn.end("Yes.", reply_to_id="m1")
    async with relayed(stack, Lossy(directory / "platform", messages=1)):
        await wait_until_empty(stack)
        await eventually(lambda: platform.did("delete"))

    assert shown(platform) == ["Yes.", f"{AGAIN}Yes."]


async def test_a_message_is_given_up_only_after_a_last_look(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    """Without an answer to its second attempt, a message is found, or becomes a dead letter."""
    await queue_reply(stack, "one")
    async with relayed(stack, Lossy(directory / "platform", messages=1, responses=1)):
        await wait_until_empty(stack)
    assert shown(platform) == [f"{AGAIN}one"]
    assert not await stack.fleet.dead_letters.count()

    await queue_reply(stack, "two")
    async with relayed(stack, Lossy(directory / "platform", messages=2)):
        await wait_until_empty(stack)
        (letter,) = await stack.fleet.dead_letters.list()
        assert "after 2 tries it is unknown" in letter.detail
        # It arrives late, so the operator's retry finds it.
        await LookingPlatform(directory / "platform").send(
            await _reply_of(letter), Part(0, "two"), None
        )
        await stack.fleet.dead_letters.send_again(letter)
        await wait_until_empty(stack)

    assert shown(platform) == [f"{AGAIN}one", "two"]


async def _reply_of(letter: Any) -> Reply:
    assert isinstance(letter.reply, Reply)
    return letter.reply


async def test_a_look_up_that_is_cut_off_is_no_attempt(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    """A message that the platform lacks still has its second attempt."""
    await queue_reply(stack, "one")
    for _ in range(3):
        held = len(platform.did("held"))
        platform.tell(stops="find before")
        async with relayed(stack, Lossy(directory / "platform", messages=1 - min(held, 1))):
            await eventually(lambda: len(platform.did("held")) > held)  # noqa: B023
    platform.tell()
    async with relayed(stack, LookingPlatform(directory / "platform")):
        await wait_until_empty(stack)

    assert shown(platform) == [f"{AGAIN}one"]


@pytest.mark.parametrize("problem", [PlatformRefused("No scope."), ValueError("a bug")])
async def test_a_look_up_that_fails_is_repeated_or_replaced_by_the_label(
    stack: Stack, platform: Platform, directory: Path, problem: Exception
) -> None:
    class Sealed(Lossy):
        async def find(self, *args: Any, **more: Any) -> Sent | None:
            looks.append(None)
            if len(looks) < 3:
                raise PlatformAway("It is out of order.")
            raise problem

    looks = list[None]()
    await queue_reply(stack, "one")
    async with relayed(stack, Sealed(directory / "platform", responses=1)):
        await wait_until_empty(stack)

    assert len(looks) == 3
    assert shown(platform) == ["one", f"{AGAIN}one"]


# -- keys ------------------------------------------------------------------------------------------


class Keyed(PlatformAdapter):
    """A platform that remembers keys for a minute; its clock is Redis'. Its responses are lost."""

    key_window_s = 60.0

    def __init__(self, directory: Path, reader: ReplyReader, *, losses: int) -> None:
        super().__init__(directory)
        self._reader, self._losses = reader, losses
        self.sent: dict[str, tuple[int, Sent]] = {}
        """By key, when each message came and its answer."""
        self.labels: list[bool] = []

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        self.labels.append(is_again)
        now_ms = await self._reader.now_ms()
        at_ms, sent = self.sent.get(reply.key, (-(10**9), Sent()))
        if now_ms - at_ms > self.key_window_s * 1000:
            sent = await super().send(reply, part, content, is_again=is_again)
            self.sent[reply.key] = now_ms, sent
        if self._losses:
            self._losses -= 1
            raise PlatformUnknown("The connection was lost.")
        return sent


class LookingKeyed(Keyed, LookingPlatform):
    """Such a platform with a history."""


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By how many seconds Redis' clock is ahead, for the times of attempts."""
    now_ms, ahead_s = ReplyReader.now_ms, [0.0]

    async def shifted(reader: ReplyReader) -> int:
        return await now_ms(reader) + int(ahead_s[0] * 1000)

    monkeypatch.setattr(ReplyReader, "now_ms", shifted)
    return ahead_s


async def test_a_repetition_with_a_key_that_is_remembered_has_no_label(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    """It counts as the same message, however often it is repeated."""
    adapter = LookingKeyed(
        directory / "platform", stack.fleet.replies.reader("test", "default"), losses=3
    )
    await queue_reply(stack, "one")
    async with relayed(stack, adapter):
        await wait_until_empty(stack)

    assert shown(platform) == ["one"]
    assert adapter.labels == [False] * 4
    assert not platform.did("find")


@pytest.mark.parametrize("kind", [Keyed, LookingKeyed])
async def test_a_key_is_not_relied_on_once_its_window_is_over(
    stack: Stack, platform: Platform, directory: Path, later: list[float], kind: type[Keyed]
) -> None:
    """The window begins with the first attempt, also if another process has made it."""
    reader = stack.fleet.replies.reader("test", "default")
    first = kind(directory / "platform", reader, losses=2)
    await queue_reply(stack, "one")
    async with relayed(stack, first):
        await eventually(lambda: len(first.labels) == 2 or None)
    later[0] = 61
    second = kind(directory / "platform", reader, losses=0)
    async with relayed(stack, second):
        await wait_until_empty(stack)

    if kind is LookingKeyed:
        assert (shown(platform), second.labels) == (["one"], [])
    else:
        assert (shown(platform), second.labels) == (["one", f"{AGAIN}one"], [True])


async def test_a_window_that_ends_while_redis_is_away_is_over(
    stack: Stack,
    platform: Platform,
    directory: Path,
    later: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mark of a repetition is stored late; the platform may have forgotten the key by then."""
    mark, count = ReplyReader.mark, 0

    async def late(reader: ReplyReader, *args: Any, **more: Any) -> Any:
        nonlocal count
        stored = await mark(reader, *args, **more)
        count += 1
        later[0] = 61.0 if count > 1 else 0.0
        return stored

    monkeypatch.setattr(ReplyReader, "mark", late)
    monkeypatch.setattr(delivery, "boottime", lambda: boottime() + later[0])
    adapter = LookingKeyed(
        directory / "platform", stack.fleet.replies.reader("test", "default"), losses=1
    )
    await queue_reply(stack, "one")
    async with relayed(stack, adapter):
        await wait_until_empty(stack)

    assert (shown(platform), adapter.labels) == (["one"], [False])


# -- kills and freezes -----------------------------------------------------------------------------

#: Where a process stops: at a script of its delivery, or at a call of its platform.
STEPS = ("mark_sent", "send", "find", "receipt")


@pytest.mark.thorough(
    *("mark_sent-before", "mark_sent-after-kill", "send-before", "send-after-freeze"),
    *("find-before-freeze", "find-after-kill", "receipt"),
)
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "freeze"])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_process_that_ends_at_any_step_of_a_delivery_repeats_nothing_that_arrived(
    stack: Stack, platform: Platform, step: str, side: Side, ending: signal.Signals
) -> None:
    """The next process looks the message up; the frozen one sends nothing when it wakes."""
    proxy = await stack.proxied()
    is_script = step in ("mark_sent", "receipt")
    failpoint = proxy.arm(step, side) if is_script else None
    platform.tell(stops="" if is_script else f"{step} {side}", answers=step != "find")
    start = partial(platform.start_process, program=looking.__name__, claim_ms=1000)
    process = start(proxy.url, token="the first")
    await eventually(lambda: platform.is_read(stack.fleet))
    await queue_reply(stack, "one")
    await (failpoint.wait() if failpoint else eventually(lambda: platform.did("held")))
    kill(process.pid, ending)
    if failpoint and ending == signal.SIGKILL:
        failpoint.cut()
    platform.tell()
    # A killed process leaves its claim at once.
    start(stack.redis.url, token="next" if ending == signal.SIGSTOP else "the first")
    await wait_until_empty(stack)
    if ending == signal.SIGSTOP:
        if failpoint:
            failpoint.release()
        kill(process.pid, signal.SIGCONT)
        if (step, side) != ("receipt", "after"):  # then it had nothing left to do
            await eventually(lambda: "stops sending replies" in platform.log())

    never_sent = (step, side) in {("mark_sent", "after"), ("send", "before")}
    # A call that was under way arrives when its process wakes: that is why there is a label.
    late = ["one"] if (step, side, ending) == ("send", "before", signal.SIGSTOP) else []
    assert shown(platform) == ([f"{AGAIN}one", *late] if never_sent else ["one"])
