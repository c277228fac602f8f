"""Replies while platforms, adapters and Redis fail: nothing lost, nothing said twice unsaid."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.channels import budget
from remoteclaw.channels.relay import relay
from remoteclaw.clock import boottime
from remoteclaw.errors import LeaseLost, PlatformAway, PlatformRefused, PlatformUnknown
from remoteclaw.fleet import keys
from remoteclaw.fleet.reader import CLAIM_MS, Mark, ReplyReader
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.messages import ChatPlace, SessionKey
from remoteclaw.protocols import Part, Reply, Sent
from tests.support.cli import run
from tests.support.leases import answered
from tests.support.platform import Platform, PlatformAdapter, Recipient
from tests.support.stack import REPLIES, SID, Stack, kill, message
from tests.support.waiting import eventually

AGAIN = "(perhaps a second time)\n"


@pytest.fixture
def platform(directory: Path) -> Iterator[Platform]:
    made = Platform(directory / "platform")
    yield made
    made.end()


async def say(stack: Stack, text: str, *, chat: str = "chat-1", **more: Any) -> None:
    await stack.put_reply("test", "default", text, chat=chat, **more)


async def empty(stack: Stack) -> None:
    """Wait until every reply has its receipt."""
    client: Any = stack.fleet.scripts.client

    async def is_empty() -> bool:
        return not await client.xlen(REPLIES)

    await eventually(is_empty)
    assert not await client.exists(keys.sending("test", "default"))


# -- rows -----------------------------------------------------------------------------------------


async def test_a_chat_that_hangs_holds_up_itself_alone(stack: Stack, platform: Platform) -> None:
    platform.tell(holds="slow")
    for index in range(3):
        await say(stack, f"slow {index}", chat="slow", index=index)
        await say(stack, f"quick {index}", chat="quick", index=index)
    async with platform.served(stack.fleet):
        await eventually(lambda: platform.texts == ["quick 0", "quick 1", "quick 2"])
        platform.tell()
        await empty(stack)

    assert platform.texts[3:] == ["slow 0", "slow 1", "slow 2"]


async def test_a_chat_that_is_asked_too_often_waits_as_long_as_it_is_told(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(busy_s={"slow": 0.3})
    await say(stack, "slow", chat="slow")
    async with platform.served(stack.fleet):
        await eventually(lambda: platform.did("busy"))
        await say(stack, "quick", chat="quick")
        await eventually(lambda: platform.texts == ["quick"])
        platform.tell()
        await empty(stack)

    assert platform.texts == ["quick", "slow"], "it certainly wasn't done: it is no second time"


async def test_topics_of_a_chat_are_served_beside_each_other(
    stack: Stack, platform: Platform
) -> None:
    stuck = asyncio.Event()

    class Topics(Recipient):
        async def take(self, reply: Reply, *_: object) -> None:
            if reply.thread_id == "a":
                await stuck.wait()
            said.append(reply.text)

    said: list[str] = []
    client: Any = stack.fleet.scripts.client
    for index, (thread, text) in enumerate((("a", "a 0"), ("b", "b 0"), ("a", "a 1"))):
        payload = reply_payload(
            ChatPlace("test", "default", "chat-1", thread),
            text,
            sid=SID,
            turn="1-0",
            attempt=1,
            index=index,
        )
        await client.xadd(REPLIES, {"reply": orjson.dumps(payload)})
    async with relayed(stack, Topics()):
        await eventually(lambda: said == ["b 0"])
        stuck.set()
        await empty(stack)

    assert said == ["b 0", "a 0", "a 1"]


async def test_what_is_dropped_while_it_waits_is_not_sent(stack: Stack, platform: Platform) -> None:
    platform.tell(busy_s={"chat-1": 0.1})
    async with platform.served(stack.fleet):
        await say(stack, "one")
        await eventually(lambda: platform.did("busy"))
        found = [reply async for reply in stack.fleet.replies.undelivered()]
        assert await stack.fleet.replies.drop(found) == 1
        platform.tell()
        await say(stack, "two", index=1)
        await empty(stack)

    assert platform.texts == ["two"]


@contextlib.asynccontextmanager
async def relayed(
    stack: Stack, adapter: Recipient, reader: ReplyReader | None = None
) -> AsyncIterator["asyncio.Task[None]"]:
    reader = reader or stack.fleet.replies.reader("test", "default")
    task = asyncio.create_task(relay(reader, adapter))
    yield task
    task.cancel()
    await asyncio.wait((task,))


async def test_a_busy_chat_is_not_asked_before_its_time(stack: Stack, platform: Platform) -> None:
    platform.tell(busy_s={"slow": 3600})
    await say(stack, "slow", chat="slow")
    async with platform.served(stack.fleet):
        await eventually(lambda: platform.did("busy"))
        for index in range(50):
            await say(stack, f"{index}", chat="quick", index=index)
        await eventually(lambda: len(platform.delivered) == 50)

    assert len(platform.did("busy")) == 1


# -- outages --------------------------------------------------------------------------------------


async def test_an_outage_gives_nothing_up_and_is_told_once(
    stack: Stack,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(budget, "FIRST_S", 0.01)
    monkeypatch.setattr(budget, "MAX_S", 0.05)
    platform.tell(breaks=True)
    for number in range(20):
        await say(stack, f"to {number}", chat=f"chat-{number % 5}", index=number)
    async with platform.served(stack.fleet) as relaying:
        await eventually(lambda: len(platform.did("broke")) > 20)
        assert not relaying.done()
        platform.tell()
        await empty(stack)

    assert sorted(platform.texts) == sorted(f"to {number}" for number in range(20))
    assert caplog.text.count("The platform is away.") == 1


async def test_one_attempt_at_a_time_looks_whether_a_platform_is_back(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FIRST_S", 0.01)
    monkeypatch.setattr(budget, "MAX_S", 0.1)
    running = most = 0
    is_away = True
    tried = list[str]()

    class Away(Recipient):
        async def take(self, reply: Reply, *_: object) -> None:
            nonlocal running, most
            if not is_away:
                return
            running += 1
            tried.append(reply.channel_id)
            if len(tried) > 40:
                most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            raise PlatformAway("The platform is away.")

    for number in range(20):
        await say(stack, "x", chat=f"chat-{number}")
    async with relayed(stack, Away()):
        await eventually(lambda: len(tried) > 60)
        is_away = False
        await empty(stack)

    assert most == 1


async def test_a_refused_account_keeps_everything_until_it_is_let_in_again(
    stack: Stack,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(budget, "MAX_S", 0.05)
    platform.tell(revoked="The token was revoked: make a new one.")
    await say(stack, "one", chat="a")
    await say(stack, "two", chat="b")
    async with platform.served(stack.fleet):
        await eventually(lambda: len(platform.did("refused")) > 3)
        platform.tell()
        await empty(stack)

    assert sorted(platform.texts) == ["one", "two"]
    assert caplog.text.count("The token was revoked: make a new one.") == 1


async def test_what_certainly_was_not_done_leaves_no_mark(stack: Stack, platform: Platform) -> None:
    """So an adapter that is ended in an outage says nothing of a second time."""
    client: Any = stack.fleet.scripts.client
    platform.tell(breaks=True)
    process = platform.start_process(stack.redis.url)
    await say(stack, "one")
    await eventually(lambda: platform.did("broke"))

    async def is_unmarked() -> bool:
        return not await client.exists(keys.sending("test", "default"))

    await eventually(is_unmarked)
    process.kill()
    process.wait()
    platform.tell()
    platform.start_process(stack.redis.url)
    await empty(stack)

    assert platform.texts == ["one"]


# -- what is not known ----------------------------------------------------------------------------


async def test_a_lost_answer_is_said_again_once_and_says_so(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FIRST_S", 0.05)
    platform.tell(answers=False)
    await say(stack, "one")
    async with platform.served(stack.fleet):
        await eventually(lambda: platform.delivered)
        platform.tell()
        await empty(stack)

    assert [event["text"] for event in platform.delivered] == ["one", f"{AGAIN}one"]


async def test_what_is_lost_twice_is_a_dead_letter(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FIRST_S", 0.01)
    platform.tell(answers=False)
    async with platform.served(stack.fleet):
        accepted = await answered(stack.fleet, "one")
        await empty(stack)
        platform.tell()
        await answered(stack.fleet, "two")
        await empty(stack)

    assert [event["text"] for event in platform.delivered] == ["one", f"{AGAIN}one", "two"]
    (letter,) = await stack.fleet.dead_letters.list()
    assert (letter.category, letter.session, letter.text) == ("unknown", accepted.session, "one")
    assert "perhaps sent" in letter.detail


async def test_a_relay_that_is_ended_in_a_call_leaves_it_to_its_next_run(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    """As when the polls of its account are refused: the process and its reader are the same."""
    reader = stack.fleet.replies.reader("test", "default")
    adapter = PlatformAdapter(directory / "platform")
    platform.tell(stops="send after")
    await say(stack, "one")
    async with relayed(stack, adapter, reader):
        await eventually(lambda: platform.did("held"))
    platform.tell()
    async with relayed(stack, adapter, reader):
        await empty(stack)

    assert [event["text"] for event in platform.delivered] == ["one", f"{AGAIN}one"]


async def test_an_answer_that_the_adapter_can_not_show_holds_nothing_up(stack: Stack) -> None:
    class Odd(Recipient):
        def parts(self, reply: Reply) -> Sequence[Part]:
            if reply.text == "odd":
                raise ValueError("odd")
            return super().parts(reply)

        async def take(self, reply: Reply, *_: object) -> None:
            said.append(reply.text)

    said: list[str] = []
    for index, text in enumerate(("odd", "even")):
        await say(stack, text, index=index)
    async with relayed(stack, Odd()) as task:
        await eventually(lambda: said == ["even"] or task.done())
        assert not task.done(), task
        await empty(stack)

    assert said == ["even"]
    (letter,) = await stack.fleet.dead_letters.list()
    assert (letter.text, letter.category) == ("odd", "refused")
    assert "ValueError" in letter.detail


async def _is_over(stack: Stack, task: "asyncio.Task[None]") -> bool:
    client: Any = stack.fleet.scripts.client
    return task.done() or not await client.xlen(REPLIES)


async def test_an_adapter_with_odd_answers_holds_nothing_up(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd(Recipient):
        async def send(self, reply: Reply, *_: object, **__: object) -> Sent:
            answer: Any = answers[reply.text]
            if isinstance(answer, BaseException):
                raise answer
            sent: Sent = answer
            return sent

    monkeypatch.setattr(budget, "FIRST_S", 0.01)
    answers: dict[str, Any] = {
        "cancelled": asyncio.CancelledError(),
        "nothing": None,
        "a number": Sent(5),  # type: ignore[arg-type]
        "an odd id": Sent("\ud800"),
        "an odd refusal": PlatformRefused("Not \ud800."),
        "well": Sent("m1"),
    }
    for index, text in enumerate(answers):
        await say(stack, text, index=index)
    async with relayed(stack, Odd()) as task:
        await eventually(partial(_is_over, stack, task))
        assert not task.done(), task

    letters = await stack.fleet.dead_letters.list()
    assert [(letter.text, letter.category) for letter in letters] == [
        ("cancelled", "unknown"),
        ("nothing", "unknown"),
        ("an odd refusal", "refused"),
    ]


async def test_parts_that_the_platform_has_are_not_sent_again(
    stack: Stack, platform: Platform
) -> None:
    """Killed while its second part is being sent: the first one is there, the third one is not."""
    files = [await stack.fleet.blobs.put(SID, f"{n}.txt", b"%d" % n) for n in range(2)]
    platform.tell(stops="file before")
    process = platform.start_process(stack.redis.url)
    await say(stack, "Here.", attachments=tuple(files))
    await eventually(lambda: platform.did("held"))
    process.kill()
    process.wait()
    platform.tell()
    platform.start_process(stack.redis.url)
    await empty(stack)

    (post,) = platform.chat("chat-1")
    assert (post.text, post.files) == ("Here.", {"0.txt": "0", "1.txt": "1"})
    assert [event["is_again"] for event in platform.did("file")] == [True, False]


async def test_a_part_that_was_sent_is_known_before_the_next_one_is_begun(
    stack: Stack, platform: Platform
) -> None:
    """Killed between the two: the second one was not begun, so it is no second time."""
    file = await stack.fleet.blobs.put(SID, "plan.txt", b"x")
    proxy = await stack.proxied()
    platform.tell(stops="send after")
    process = platform.start_process(proxy.url)
    await say(stack, "Here.", attachments=(file,))
    await eventually(lambda: platform.did("held"))
    failpoint = proxy.arm("mark_sent", "after")
    platform.tell()
    await failpoint.wait()
    process.kill()
    process.wait()
    failpoint.cut()
    platform.start_process(stack.redis.url)
    await empty(stack)

    assert platform.texts == ["Here."]
    assert [event["is_again"] for event in platform.did("file")] == [False]


@pytest.mark.parametrize("problem", [PlatformRefused("Not that."), PlatformUnknown("Lost.")])
async def test_what_is_given_up_and_sent_again_goes_on_where_it_was(
    stack: Stack, problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Partial(Recipient):
        def parts(self, reply: Reply) -> Sequence[Part]:
            return [Part(index, word) for index, word in enumerate(reply.text.split())]

        async def send(
            self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
        ) -> Sent:
            tried.append((part.content, is_again))
            if part.content == "two" and fails:
                raise problem
            return Sent(f"m{part.index}")

    monkeypatch.setattr(budget, "FIRST_S", 0.01)
    tried: list[tuple[str, bool]] = []
    fails = True
    is_unknown = isinstance(problem, PlatformUnknown)
    await say(stack, "one two three")
    async with relayed(stack, Partial()):
        await empty(stack)
        assert tried.pop(0) == ("one", False)
        fails = False
        tried.clear()
        (letter,) = await stack.fleet.dead_letters.list()
        await stack.fleet.dead_letters.send_again(letter)
        await empty(stack)

    assert tried == [("two", is_unknown), ("three", False)]
    client: Any = stack.fleet.scripts.client
    assert await client.exists(*(keys.said("test", "default", "chat-1", f"m{n}") for n in range(3)))


async def test_a_copy_that_was_frozen_sends_nothing(stack: Stack, platform: Platform) -> None:
    """It had leave to send when it froze; by the time that it wakes, another copy has sent."""
    claim_ms = 1000
    proxy = await stack.proxied()
    failpoint = proxy.arm("mark_sent", "after")
    frozen = platform.start_process(proxy.url, token="frozen", claim_ms=claim_ms)
    await eventually(lambda: platform.is_read(stack.fleet))
    await say(stack, "one")
    await failpoint.wait()
    kill(frozen.pid, signal.SIGSTOP)
    platform.start_process(stack.redis.url, token="next", claim_ms=claim_ms)
    await empty(stack)
    failpoint.release()
    kill(frozen.pid, signal.SIGCONT)
    log = platform.log
    await eventually(lambda: "nothing more is sent here" in log())

    assert [event["text"] for event in platform.delivered] == [f"{AGAIN}one"]


async def test_no_call_begins_late_in_a_claim(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = stack.fleet.replies.reader("test", "default")
    assert await reader.claim()
    assert reader.is_mine

    late_s = 0.8 * CLAIM_MS / 1000
    monkeypatch.setattr("remoteclaw.fleet.reader.boottime", lambda: boottime() + late_s)

    assert not reader.is_mine
    assert await stack.fleet.scripts.client.exists(keys.reader("test", "default"))
    await reader.check()
    assert reader.is_mine


async def test_a_standby_takes_over_where_the_other_one_was(
    stack: Stack, platform: Platform
) -> None:
    """Killed while many wait: each is there once, in order, but for the one that was begun."""
    platform.tell(holds="chat-0")
    first = platform.start_process(stack.redis.url, token="first", claim_ms=1000)
    await eventually(lambda: platform.is_read(stack.fleet))
    platform.start_process(stack.redis.url, token="second", claim_ms=1000)
    for number in range(30):
        await say(stack, f"{number}", chat=f"chat-{number % 3}", index=number)
    client: Any = stack.fleet.scripts.client

    async def are_others_receipted() -> bool:
        return int(await client.xlen(REPLIES)) == 10

    await eventually(are_others_receipted)
    first.kill()
    first.wait()
    platform.tell()
    await empty(stack)

    assert [post.text for post in platform.chat("chat-0")] == [
        f"{AGAIN}0",
        *(f"{number}" for number in range(3, 30, 3)),
    ]
    for chat in (1, 2):
        assert [post.text for post in platform.chat(f"chat-{chat}")] == [
            f"{number}" for number in range(chat, 30, 3)
        ]


async def test_redis_that_is_killed_while_a_platform_answers_doubles_nothing(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(stops="send after")
    async with platform.served(stack.fleet):
        await say(stack, "one")
        await eventually(lambda: platform.did("held"))
        stack.redis.kill()
        platform.tell()
        await asyncio.to_thread(stack.redis.start)
        await say(stack, "two", index=1)
        await empty(stack)

    assert [event["text"] for event in platform.delivered] == ["one", "two"]


async def test_redis_that_is_frozen_while_a_platform_answers_doubles_nothing(
    stack: Stack, platform: Platform
) -> None:
    """For longer than a claim lasts: what is due meanwhile is sent behind it, under a new claim."""
    platform.tell(stops="send after")
    async with platform.served(stack.fleet, claim_ms=500):
        await say(stack, "one")
        await say(stack, "two", index=1)
        await eventually(lambda: platform.did("held"))
        with stack.redis.frozen():
            platform.tell()
            await asyncio.sleep(1)
        await empty(stack)

    assert [event["text"] for event in platform.delivered] == ["one", "two"]


async def test_an_hour_s_outage_is_waited_out(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that goes faster: each attempt of a chat finds that its pause is over."""
    hours = 0.0

    def clock() -> float:
        nonlocal hours
        hours += 10  # so much later, whenever anybody looks
        return boottime() + hours

    monkeypatch.setattr(budget, "boottime", clock)
    platform.tell(breaks=True)
    for number in range(8):
        await say(stack, f"{number}", chat=f"chat-{number % 4}", index=number)
    async with platform.served(stack.fleet):
        await eventually(lambda: hours > 3600 and len(platform.did("broke")) > 20)
        platform.tell()
        await empty(stack)

    for chat in range(4):
        assert [post.text for post in platform.chat(f"chat-{chat}")] == [f"{chat}", f"{chat + 4}"]
    assert not await stack.fleet.dead_letters.count()


class Keyed(Recipient):
    """A platform that drops repetitions by itself, and loses the first answer."""

    has_keys = True

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, bool]] = []

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        del content
        self.sent.append((reply.key, part.index, is_again))
        if len(self.sent) == 1:
            raise PlatformUnknown("The connection was lost.")
        return Sent("m1")


async def test_a_platform_with_keys_needs_no_mark(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FIRST_S", 0.01)
    proxy = await stack.proxied()
    marked = proxy.arm("mark_sent", "before")
    keyed = Keyed()
    fleet = stack.open_at(proxy.url)
    await say(stack, "one")
    task = asyncio.create_task(relay(fleet.replies.reader("test", "default"), keyed))
    await eventually(lambda: len(keyed.sent) == 2 or marked.reached.is_set())
    marked.release()
    await empty(stack)
    task.cancel()

    assert not marked.reached.is_set()
    assert keyed.sent == [(f"{SID}:1-0:1:0", 0, False)] * 2


async def test_a_key_is_not_repeated_for_ever(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FIRST_S", 0.001)
    monkeypatch.setattr(budget, "MAX_S", 0.001)
    tried = list[str]()

    class Silent(Keyed):
        async def send(self, reply: Reply, *_: object, **__: object) -> Sent:
            tried.append(reply.text)
            if reply.text == "one" and len(tried) == 30:
                raise PlatformAway("It is out of order.")  # so what follows counts anew
            if reply.text == "one":
                raise PlatformUnknown("No answer.")
            return Sent("m1")

    await say(stack, "one")
    await say(stack, "two", index=1)
    async with relayed(stack, Silent()):
        await empty(stack)

    assert tried == ["one"] * 90 + ["two"]
    (letter,) = await stack.fleet.dead_letters.list()
    assert (letter.text, letter.category) == ("one", "unknown")
    assert "after 60 tries it is unknown" in letter.detail


# -- refusals -------------------------------------------------------------------------------------


async def test_a_refused_answer_is_a_dead_letter_with_its_reason(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(refuses="You were blocked.")
    async with platform.served(stack.fleet):
        accepted = await answered(stack.fleet, "one")
        await empty(stack)
        outcome = await stack.outcome_so_far(accepted)
        assert [s.detail for s in outcome.steps if s.name == "undelivered"] == ["You were blocked."]
        (letter,) = await stack.fleet.dead_letters.list()
        listed = run(stack, "deadletters", "list").stdout
        assert "refused" in listed
        assert str(accepted.session) in listed
        shown = run(stack, "deadletters", "show", letter.id).stdout
        assert "You were blocked." in shown
        assert "one" in shown

        platform.tell()
        assert "sent again by test/default" in run(stack, "deadletters", "retry", letter.id).stdout
        await empty(stack)

    assert platform.texts == ["one"]
    assert not await stack.fleet.dead_letters.count()
    names = [step.name for step in (await stack.outcome_so_far(accepted)).steps]
    assert "delivered" in names
    assert "undelivered" not in names


async def test_a_refused_message_before_the_last_one_is_told_with_its_turn(
    stack: Stack, platform: Platform
) -> None:
    accepted = await answered(stack.fleet, "one")
    sid = accepted.session.sid
    client: Any = stack.fleet.scripts.client
    ((_, fields),) = await client.xrange(REPLIES)
    payload = {**orjson.loads(fields[b"reply"]), "entries": [], "channel_id": "nowhere"}
    await client.delete(REPLIES)
    await client.xadd(REPLIES, {"reply": orjson.dumps(payload)})
    async with platform.served(stack.fleet):
        await empty(stack)

    outcome = keys.outcome_prefix(sid) + accepted.entry_id
    assert (await client.hget(outcome, "undelivered")).endswith(b"There is no such chat.")


async def test_a_dead_reply_can_be_dropped_with_its_files(stack: Stack, platform: Platform) -> None:
    sid = SessionKey.of(message("one"), agent="main").sid
    file = await stack.fleet.blobs.put(sid, "plan.txt", b"x")
    platform.tell(refuses="You were blocked.")
    async with platform.served(stack.fleet):
        await answered(stack.fleet, "one", file)
        await empty(stack)
    (letter,) = await stack.fleet.dead_letters.list()
    assert await stack.fleet.blobs.get(sid, file) == b"x"

    await stack.fleet.dead_letters.drop(letter.id)

    assert await stack.fleet.blobs.get(sid, file) is None
    assert not await stack.fleet.dead_letters.count()


async def test_a_refused_file_is_told_and_kept_and_the_text_goes_on(
    stack: Stack, platform: Platform
) -> None:
    file = await stack.fleet.blobs.put(SID, "plan.txt", b"x")
    platform.tell(keeps_files=False)
    await say(stack, "Here.", attachments=(file,))
    async with platform.served(stack.fleet):
        await empty(stack)

    assert platform.texts == [
        "Here.",
        "(The file plan.txt could not be sent: Files can't be sent here.)",
    ]
    assert await stack.fleet.blobs.get(SID, file) == b"x"


async def test_the_claim_of_a_process_that_was_killed_is_not_waited_for(
    stack: Stack, platform: Platform
) -> None:
    process = platform.start_process(stack.redis.url, token="", claim_ms=3_600_000)
    await eventually(partial(platform.is_read, stack.fleet))
    reader = stack.fleet.replies.reader("test", "default")
    assert not await reader.claim()
    process.send_signal(signal.SIGSTOP)  # it may go on
    assert not await reader.claim()

    process.kill()
    process.wait()

    assert await reader.claim()


async def test_a_mark_is_obeyed_from_the_reader_alone(stack: Stack) -> None:
    late, next_ = (stack.fleet.replies.reader("test", "default") for _ in range(2))
    assert await late.claim()
    await say(stack, "one")
    replies = late.replies()
    reply = await anext(replies)
    await replies.aclose()
    await stack.fleet.scripts.client.delete(keys.reader("test", "default"))  # its time is over
    assert await next_.claim()

    with pytest.raises(LeaseLost):
        await late.mark(reply, Mark(is_begun=True), by="late")
    assert await next_.mark(reply, Mark(is_begun=True), by="next") is True


# -- what was sent --------------------------------------------------------------------------------


async def test_what_the_platform_has_leads_back_to_its_turn(
    stack: Stack, platform: Platform
) -> None:
    file = await stack.fleet.blobs.put(SID, "plan.txt", b"x")
    await say(stack, "Here.", attachments=(file,), entries=["1-0", "2-0"])
    async with platform.served(stack.fleet):
        await empty(stack)

    ids = [event["id"] for event in platform.events if event["event"] in ("delivered", "file")]
    assert len(ids) == 2
    for message_id in ids:
        said = await stack.fleet.replies.said("test", "default", "chat-1", message_id)
        assert said is not None
        assert (said.sid, said.turn, said.entries) == (SID, "1-0", ("1-0", "2-0"))
    assert await stack.fleet.replies.said("test", "default", "chat-2", ids[0]) is None


async def test_a_message_s_id_on_the_platform_leads_to_its_trace(
    stack: Stack, platform: Platform
) -> None:
    async with platform.served(stack.fleet):
        accepted = await answered(stack.fleet, "one")
        await empty(stack)
    (message_id,) = (event["id"] for event in platform.delivered)

    traced = run(stack, "sessions", "trace", f"test/default/chat-1/{message_id}").stdout

    assert traced.startswith(f"{accepted.session.sid[:8]}-{accepted.entry_id}")
    assert f"delivered             as {message_id}" in traced


async def test_replies_that_come_again_after_a_lost_claim_are_sent_once(
    stack: Stack, platform: Platform
) -> None:
    client: Any = stack.fleet.scripts.client
    reader, claims = keys.reader("test", "default"), keys.READERS
    platform.tell(holds="chat-1")
    async with platform.served(stack.fleet, claim_ms=500):
        for index, text in enumerate(("one", "two", "three")):
            await say(stack, text, index=index)
        await eventually(lambda: platform.did("held"))
        await client.set(reader, "another", px=1000)
        before = (await client.zscore(claims, "test\0default")) or 0

        async def is_claimed_again() -> bool:
            return bool(await client.zscore(claims, "test\0default") > before + 1000)

        await eventually(is_claimed_again)
        platform.tell()
        await empty(stack)

    assert platform.texts == ["one", "two", "three"]


async def test_what_waits_in_a_row_is_read_when_it_is_its_turn(
    stack: Stack, platform: Platform
) -> None:
    """An operator may have dropped it meanwhile."""
    platform.tell(is_held=True)
    async with platform.served(stack.fleet):
        for index, text in enumerate(("one", "two", "three")):
            await say(stack, text, index=index)
        await eventually(lambda: platform.did("held"))
        found = [reply async for reply in stack.fleet.replies.undelivered()]
        assert await stack.fleet.replies.drop(found[1:2]) == 1
        platform.tell()
        await empty(stack)

    assert platform.texts == ["one", "three"]
