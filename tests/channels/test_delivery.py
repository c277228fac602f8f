"""Replies while platforms, adapters and Redis fail: none is lost, and a repetition is marked."""

import asyncio
import contextlib
import math
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.channels import budget
from remoteclaw.channels.delivery import Delivery, Preview
from remoteclaw.channels.relay import relay
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import LeaseLost, PlatformAway, PlatformRefused, PlatformUnknown
from remoteclaw.fleet import keys
from remoteclaw.fleet.replies.reader import CLAIM_MS, Mark, ReplyReader
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.messages import ChatPlace, SessionKey
from remoteclaw.protocols import Live, Part, Place, Reply, Sent
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


async def queue_reply(stack: Stack, text: str, *, chat: str = "chat-1", **more: Any) -> None:
    await stack.put_reply("test", "default", text, chat=chat, **more)


async def wait_until_empty(stack: Stack) -> None:
    """Wait until every reply has its receipt."""
    client: Any = stack.fleet.scripts.client

    async def is_empty() -> bool:
        return not await client.xlen(REPLIES)

    await eventually(is_empty)
    assert not await client.exists(keys.delivery_marks("test", "default"))


# -- order within a chat ---------------------------------------------------------------------------


async def test_a_chat_that_hangs_delays_no_other_chat(stack: Stack, platform: Platform) -> None:
    platform.tell(holds="slow")
    for index in range(3):
        await queue_reply(stack, f"slow {index}", chat="slow", index=index)
        await queue_reply(stack, f"quick {index}", chat="quick", index=index)
    async with platform.served(stack.fleet):
        await eventually(lambda: platform.texts == ["quick 0", "quick 1", "quick 2"])
        platform.tell()
        await wait_until_empty(stack)

    assert platform.texts[3:] == ["slow 0", "slow 1", "slow 2"]


async def test_a_rate_limited_chat_waits_and_delays_no_other_chat(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(busy_s={"slow": 0.3})
    await queue_reply(stack, "slow", chat="slow")
    async with platform.served(stack.fleet):
        await eventually(lambda: platform.did("busy"))
        await queue_reply(stack, "quick", chat="quick")
        await eventually(lambda: platform.texts == ["quick"])
        platform.tell()
        await wait_until_empty(stack)

    assert platform.texts == ["quick", "slow"], "a busy chat got nothing, so this is no repetition"


async def test_topics_of_a_chat_are_delivered_independently(
    stack: Stack, platform: Platform
) -> None:
    stuck = asyncio.Event()

    class Topics(Recipient):
        async def take(self, reply: Reply, *_: object) -> None:
            if reply.thread_id == "a":
                await stuck.wait()
            delivered.append(reply.text)

    delivered: list[str] = []
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
        await eventually(lambda: delivered == ["b 0"])
        stuck.set()
        await wait_until_empty(stack)

    assert delivered == ["b 0", "a 0", "a 1"]


async def test_a_reply_dropped_while_its_chat_is_busy_is_not_sent(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(busy_s={"chat-1": 0.1})
    async with platform.served(stack.fleet):
        await queue_reply(stack, "one")
        await eventually(lambda: platform.did("busy"))
        undelivered = [reply async for reply in stack.fleet.replies.undelivered()]
        assert await stack.fleet.replies.drop(undelivered) == 1
        platform.tell()
        await queue_reply(stack, "two", index=1)
        await wait_until_empty(stack)

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


async def test_a_busy_chat_is_not_tried_before_its_retry_time(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(busy_s={"slow": 3600})
    await queue_reply(stack, "slow", chat="slow")
    async with platform.served(stack.fleet):
        await eventually(lambda: platform.did("busy"))
        for index in range(50):
            await queue_reply(stack, f"{index}", chat="quick", index=index)
        await eventually(lambda: len(platform.delivered) == 50)

    assert len(platform.did("busy")) == 1


# -- outages --------------------------------------------------------------------------------------


async def test_an_outage_loses_no_reply_and_is_logged_once(
    stack: Stack,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(budget, "MAX_PAUSE_S", 0.05)
    platform.tell(breaks=True)
    for number in range(20):
        await queue_reply(stack, f"to {number}", chat=f"chat-{number % 5}", index=number)
    async with platform.served(stack.fleet) as relaying:
        await eventually(lambda: len(platform.did("broke")) > 20)
        assert not relaying.done()
        platform.tell()
        await wait_until_empty(stack)

    assert sorted(platform.texts) == sorted(f"to {number}" for number in range(20))
    assert caplog.text.count("The platform is away.") == 1


async def test_during_an_outage_one_attempt_at_a_time_probes_the_platform(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(budget, "MAX_PAUSE_S", 0.1)
    running = max_running = 0
    is_away = True
    tried = list[str]()

    class Away(Recipient):
        async def take(self, reply: Reply, *_: object) -> None:
            nonlocal running, max_running
            if not is_away:
                return
            running += 1
            tried.append(reply.channel_id)
            if len(tried) > 40:
                max_running = max(max_running, running)
            await asyncio.sleep(0)
            running -= 1
            raise PlatformAway("The platform is away.")

    for number in range(20):
        await queue_reply(stack, "x", chat=f"chat-{number}")
    async with relayed(stack, Away()):
        await eventually(lambda: len(tried) > 60)
        is_away = False
        await wait_until_empty(stack)

    assert max_running == 1


async def test_a_refused_account_keeps_its_replies_until_it_is_accepted_again(
    stack: Stack,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(budget, "MAX_PAUSE_S", 0.05)
    platform.tell(revoked="The token was revoked: make a new one.")
    await queue_reply(stack, "one", chat="a")
    await queue_reply(stack, "two", chat="b")
    async with platform.served(stack.fleet):
        await eventually(lambda: len(platform.did("refused")) > 3)
        platform.tell()
        await wait_until_empty(stack)

    assert sorted(platform.texts) == ["one", "two"]
    assert caplog.text.count("The token was revoked: make a new one.") == 1


async def test_a_send_that_certainly_failed_leaves_no_delivery_mark(
    stack: Stack, platform: Platform
) -> None:
    """So an adapter that restarts during an outage doesn't mark the reply as a repetition."""
    client: Any = stack.fleet.scripts.client
    platform.tell(breaks=True)
    process = platform.start_process(stack.redis.url)
    await queue_reply(stack, "one")
    await eventually(lambda: platform.did("broke"))

    async def is_unmarked() -> bool:
        return not await client.exists(keys.delivery_marks("test", "default"))

    await eventually(is_unmarked)
    process.kill()
    process.wait()
    platform.tell()
    platform.start_process(stack.redis.url)
    await wait_until_empty(stack)

    assert platform.texts == ["one"]


# -- unknown outcomes ------------------------------------------------------------------------------


async def test_a_reply_with_an_unknown_outcome_is_sent_once_more_and_says_so(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.05)
    platform.tell(answers=False)
    await queue_reply(stack, "one")
    async with platform.served(stack.fleet):
        await eventually(lambda: platform.delivered)
        platform.tell()
        await wait_until_empty(stack)

    assert [event["text"] for event in platform.delivered] == ["one", f"{AGAIN}one"]


async def test_a_reply_whose_outcome_is_unknown_twice_is_a_dead_letter(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.01)
    platform.tell(answers=False)
    async with platform.served(stack.fleet):
        accepted = await answered(stack.fleet, "one")
        await wait_until_empty(stack)
        platform.tell()
        await answered(stack.fleet, "two")
        await wait_until_empty(stack)

    assert [event["text"] for event in platform.delivered] == ["one", f"{AGAIN}one", "two"]
    (letter,) = await stack.fleet.dead_letters.list()
    assert (letter.category, letter.session, letter.text) == ("unknown", accepted.session, "one")
    assert "perhaps sent" in letter.detail


async def test_a_send_that_was_cancelled_with_its_relay_is_repeated_by_the_next_relay(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    """This happens when the account's polls are refused; the process and its reader go on."""
    reader = stack.fleet.replies.reader("test", "default")
    adapter = PlatformAdapter(directory / "platform")
    platform.tell(stops="send after")
    await queue_reply(stack, "one")
    async with relayed(stack, adapter, reader):
        await eventually(lambda: platform.did("held"))
    platform.tell()
    async with relayed(stack, adapter, reader):
        await wait_until_empty(stack)

    assert [event["text"] for event in platform.delivered] == ["one", f"{AGAIN}one"]


async def test_a_reply_that_the_adapter_cannot_split_blocks_no_other(stack: Stack) -> None:
    class Odd(Recipient):
        def parts(self, reply: Reply) -> Sequence[Part]:
            if reply.text == "odd":
                raise ValueError("odd")
            return super().parts(reply)

        async def take(self, reply: Reply, *_: object) -> None:
            delivered.append(reply.text)

    delivered: list[str] = []
    for index, text in enumerate(("odd", "even")):
        await queue_reply(stack, text, index=index)
    async with relayed(stack, Odd()) as task:
        await eventually(lambda: delivered == ["even"] or task.done())
        assert not task.done(), task
        await wait_until_empty(stack)

    assert delivered == ["even"]
    (letter,) = await stack.fleet.dead_letters.list()
    assert (letter.text, letter.category) == ("odd", "refused")
    assert "ValueError" in letter.detail


async def _is_finished(stack: Stack, task: "asyncio.Task[None]") -> bool:
    client: Any = stack.fleet.scripts.client
    return task.done() or not await client.xlen(REPLIES)


async def test_invalid_results_of_an_adapter_block_no_other_reply(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd(Recipient):
        async def send(self, reply: Reply, *_: object, **__: object) -> Sent:
            answer: Any = answers[reply.text]
            if isinstance(answer, BaseException):
                raise answer
            sent: Sent = answer
            return sent

    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.01)
    answers: dict[str, Any] = {
        "cancelled": asyncio.CancelledError(),
        "nothing": None,
        "a number": Sent(5),  # type: ignore[arg-type]
        "an odd id": Sent("\ud800"),
        "an odd refusal": PlatformRefused("Not \ud800."),
        "well": Sent("m1"),
    }
    for index, text in enumerate(answers):
        await queue_reply(stack, text, index=index)
    async with relayed(stack, Odd()) as task:
        await eventually(partial(_is_finished, stack, task))
        assert not task.done(), task

    letters = await stack.fleet.dead_letters.list()
    assert [(letter.text, letter.category) for letter in letters] == [
        ("cancelled", "unknown"),
        ("nothing", "unknown"),
        ("an odd refusal", "refused"),
    ]


async def test_parts_that_were_delivered_are_not_sent_again(
    stack: Stack, platform: Platform
) -> None:
    """The process is killed while it sends the second of three parts."""
    files = [await stack.fleet.blobs.put(SID, f"{n}.txt", b"%d" % n) for n in range(2)]
    platform.tell(stops="file before")
    process = platform.start_process(stack.redis.url)
    await queue_reply(stack, "Here.", attachments=tuple(files))
    await eventually(lambda: platform.did("held"))
    process.kill()
    process.wait()
    platform.tell()
    platform.start_process(stack.redis.url)
    await wait_until_empty(stack)

    (post,) = platform.chat("chat-1")
    assert (post.text, post.files) == ("Here.", {"0.txt": "0", "1.txt": "1"})
    assert [event["is_again"] for event in platform.did("file")] == [True, False]


async def test_a_sent_part_is_recorded_before_the_next_part_begins(
    stack: Stack, platform: Platform
) -> None:
    """The process is killed between two parts, so the second one is no repetition."""
    file = await stack.fleet.blobs.put(SID, "plan.txt", b"x")
    proxy = await stack.proxied()
    platform.tell(stops="send after")
    process = platform.start_process(proxy.url)
    await queue_reply(stack, "Here.", attachments=(file,))
    await eventually(lambda: platform.did("held"))
    failpoint = proxy.arm("mark_sent", "after")
    platform.tell()
    await failpoint.wait()
    process.kill()
    process.wait()
    failpoint.cut()
    platform.start_process(stack.redis.url)
    await wait_until_empty(stack)

    assert platform.texts == ["Here."]
    assert [event["is_again"] for event in platform.did("file")] == [False]


@pytest.mark.parametrize("problem", [PlatformRefused("Not that."), PlatformUnknown("Lost.")])
async def test_a_retried_dead_letter_continues_with_its_first_unsent_part(
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

    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.01)
    tried: list[tuple[str, bool]] = []
    fails = True
    is_unknown = isinstance(problem, PlatformUnknown)
    await queue_reply(stack, "one two three")
    async with relayed(stack, Partial()):
        await wait_until_empty(stack)
        assert tried.pop(0) == ("one", False)
        fails = False
        tried.clear()
        (letter,) = await stack.fleet.dead_letters.list()
        await stack.fleet.dead_letters.send_again(letter)
        await wait_until_empty(stack)

    assert tried == [("two", is_unknown), ("three", False)]
    client: Any = stack.fleet.scripts.client
    assert await client.exists(
        *(keys.message_origin("test", "default", "chat-1", f"m{n}") for n in range(3))
    )


async def test_a_frozen_adapter_sends_nothing_after_its_claim_expired(
    stack: Stack, platform: Platform
) -> None:
    """It freezes with permission to send. Before it wakes, another adapter sends the reply."""
    claim_ms = 1000
    proxy = await stack.proxied()
    failpoint = proxy.arm("mark_sent", "after")
    frozen = platform.start_process(proxy.url, token="frozen", claim_ms=claim_ms)
    await eventually(lambda: platform.is_read(stack.fleet))
    await queue_reply(stack, "one")
    await failpoint.wait()
    kill(frozen.pid, signal.SIGSTOP)
    platform.start_process(stack.redis.url, token="next", claim_ms=claim_ms)
    await wait_until_empty(stack)
    failpoint.release()
    kill(frozen.pid, signal.SIGCONT)
    log = platform.log
    await eventually(lambda: "stops sending replies" in log())

    assert [event["text"] for event in platform.delivered] == [f"{AGAIN}one"]


async def test_no_platform_call_begins_shortly_before_its_claim_expires(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = stack.fleet.replies.reader("test", "default")
    assert await reader.claim()
    assert reader.has_claim

    late_s = 0.8 * CLAIM_MS / 1000
    monkeypatch.setattr("remoteclaw.fleet.replies.reader.boottime", lambda: boottime() + late_s)

    assert not reader.has_claim
    assert await stack.fleet.scripts.client.exists(keys.reader("test", "default"))
    await reader.ensure_claim()
    assert reader.has_claim


async def test_a_standby_continues_where_the_killed_adapter_stopped(
    stack: Stack, platform: Platform
) -> None:
    """Each reply arrives once and in order; only the one that was being sent is marked."""
    platform.tell(holds="chat-0")
    first = platform.start_process(stack.redis.url, token="first", claim_ms=1000)
    await eventually(lambda: platform.is_read(stack.fleet))
    platform.start_process(stack.redis.url, token="second", claim_ms=1000)
    for number in range(30):
        await queue_reply(stack, f"{number}", chat=f"chat-{number % 3}", index=number)
    client: Any = stack.fleet.scripts.client

    async def are_others_receipted() -> bool:
        return int(await client.xlen(REPLIES)) == 10

    await eventually(are_others_receipted)
    first.kill()
    first.wait()
    platform.tell()
    await wait_until_empty(stack)

    assert [post.text for post in platform.chat("chat-0")] == [
        f"{AGAIN}0",
        *(f"{number}" for number in range(3, 30, 3)),
    ]
    for chat in (1, 2):
        assert [post.text for post in platform.chat(f"chat-{chat}")] == [
            f"{number}" for number in range(chat, 30, 3)
        ]


async def test_killing_redis_during_a_send_duplicates_no_reply(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(stops="send after")
    async with platform.served(stack.fleet):
        await queue_reply(stack, "one")
        await eventually(lambda: platform.did("held"))
        stack.redis.kill()
        platform.tell()
        await asyncio.to_thread(stack.redis.start)
        await queue_reply(stack, "two", index=1)
        await wait_until_empty(stack)

    assert [event["text"] for event in platform.delivered] == ["one", "two"]


async def test_freezing_redis_during_a_send_duplicates_no_reply(
    stack: Stack, platform: Platform
) -> None:
    """Redis is frozen for longer than a claim lasts; the second reply needs a new claim."""
    platform.tell(stops="send after")
    async with platform.served(stack.fleet, claim_ms=500):
        await queue_reply(stack, "one")
        await queue_reply(stack, "two", index=1)
        await eventually(lambda: platform.did("held"))
        with stack.redis.frozen():
            platform.tell()
            await asyncio.sleep(1)
        await wait_until_empty(stack)

    assert [event["text"] for event in platform.delivered] == ["one", "two"]


async def test_an_outage_of_an_hour_loses_no_reply(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock runs faster, so that each attempt finds its pause over."""
    hours = 0.0

    def clock() -> float:
        nonlocal hours
        hours += 10  # ten seconds later at each reading
        return boottime() + hours

    monkeypatch.setattr(budget, "boottime", clock)
    platform.tell(breaks=True)
    for number in range(8):
        await queue_reply(stack, f"{number}", chat=f"chat-{number % 4}", index=number)
    async with platform.served(stack.fleet):
        await eventually(lambda: hours > 3600 and len(platform.did("broke")) > 20)
        platform.tell()
        await wait_until_empty(stack)

    for chat in range(4):
        assert [post.text for post in platform.chat(f"chat-{chat}")] == [f"{chat}", f"{chat + 4}"]
    assert not await stack.fleet.dead_letters.count()


class Keyed(Recipient):
    """A platform with idempotency keys that loses its first response."""

    key_window_s = math.inf

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


async def test_a_platform_with_idempotency_keys_needs_no_delivery_mark(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.01)
    proxy = await stack.proxied()
    marked = proxy.arm("mark_sent", "before")
    keyed = Keyed()
    fleet = stack.open_at(proxy.url)
    await queue_reply(stack, "one")
    task = asyncio.create_task(relay(fleet.replies.reader("test", "default"), keyed))
    await eventually(lambda: len(keyed.sent) == 2 or marked.reached.is_set())
    marked.release()
    await wait_until_empty(stack)
    task.cancel()

    assert not marked.reached.is_set()
    assert keyed.sent == [(f"{SID}:1-0:1:0", 0, False)] * 2


@pytest.mark.parametrize("has_history", [False, True])
async def test_a_keyed_send_is_not_retried_forever(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, *, has_history: bool
) -> None:
    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(budget, "MAX_PAUSE_S", 0.001)
    tried = list[str]()

    class Silent(Keyed):
        async def send(self, reply: Reply, *_: object, **__: object) -> Sent:
            tried.append(reply.text)
            if reply.text == "one" and len(tried) == 30:
                # An outage resets the count of unknown outcomes.
                raise PlatformAway("It is out of order.")
            if reply.text == "one":
                raise PlatformUnknown("No answer.")
            return Sent("m1")

    class Looking(Silent):
        async def find(self, *_: object, **__: object) -> Sent | None:
            return None

    await queue_reply(stack, "one")
    await queue_reply(stack, "two", index=1)
    async with relayed(stack, Looking() if has_history else Silent()):
        await wait_until_empty(stack)

    assert tried == ["one"] * 90 + ["two"]
    (letter,) = await stack.fleet.dead_letters.list()
    assert (letter.text, letter.category) == ("one", "unknown")
    assert "after 60 tries it is unknown" in letter.detail


# -- stops ----------------------------------------------------------------------------------------


async def test_a_stop_drops_what_is_not_sent_of_an_answer_and_its_outcome_says_so(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(stops="send after")
    async with platform.served(stack.fleet):
        accepted = await answered(stack.fleet, "one", from_="bo", channel_id="chat")
        session = accepted.session
        texts = ("two", "three")
        await queue_turn(stack, accepted, *texts)
        await eventually(lambda: platform.did("held"))
        assert await stack.fleet.replies.unsent(session) == 3, "the first one is being sent"
        place = session.place
        await stack.fleet.calls.send_notice(place, "a notice", name="1")
        await stack.fleet.sessions.stop(session.sid)
        platform.tell()
        await wait_until_empty(stack)
        await answered(stack.fleet, "four", from_="bo", channel_id="chat")
        await wait_until_empty(stack)

    assert platform.texts == ["one", "a notice", "four"]
    assert not await stack.fleet.dead_letters.count()
    outcome = await stack.outcome_so_far(accepted)
    why = "/stop dropped the answer from its message 2 on."
    assert [step.detail for step in outcome.steps if step.name == "undelivered"] == [why]
    assert await stack.fleet.replies.unsent(session) == 0


async def queue_turn(stack: Stack, accepted: Accepted, *texts: str) -> None:
    """Queue further messages of the turn of `accepted`."""
    client: Any = stack.fleet.scripts.client
    for index, text in enumerate(texts, 1):
        payload = reply_payload(
            accepted.session.place,
            text,
            sid=accepted.session.sid,
            turn=accepted.entry_id,
            attempt=1,
            index=index,
        )
        await client.xadd(REPLIES, {"reply": orjson.dumps(payload)})


async def test_a_stop_ends_a_reply_between_its_parts_and_drops_its_files(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(stops="send after")
    file = await stack.fleet.blobs.put(SID, "plot.png", b"plot")
    async with platform.served(stack.fleet):
        accepted = await answered(stack.fleet, "one", file)
        await eventually(lambda: platform.did("held"))
        await stack.fleet.sessions.stop(accepted.session.sid)
        platform.tell()
        await wait_until_empty(stack)

    assert platform.texts == ["one"]
    assert not platform.did("file")
    assert not await stack.fleet.dead_letters.count()
    names = [step.name for step in (await stack.outcome_so_far(accepted)).steps]
    assert "undelivered" in names


async def test_a_stopped_answer_does_not_replace_its_preview(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    adapter = PlatformAdapter(directory / "platform")
    accepted = await answered(stack.fleet, "one", channel_id="chat-1")
    reader = stack.fleet.replies.reader("test", "default")
    async with contextlib.aclosing(reader.replies()) as replies:
        reply = await anext(replies)
    place = Place("chat-1")
    message_id = await adapter.preview(place, Live(text="o"), message_id=None)
    await stack.fleet.sessions.stop(accepted.session.sid)

    preview = Preview(place, reply.sid, message_id, since_ms=now_ms())
    result = await Delivery(reader, adapter, budget.Budget("x"), reply, preview).run()

    assert result is not None
    assert result.given_up is not None
    assert (result.given_up.category, platform.delivered) == ("stopped", [])


async def test_an_answer_that_was_perhaps_sent_does_not_replace_a_preview_without_a_label(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    """The process ended before the receipt; the next one takes over the preview."""
    adapter = PlatformAdapter(directory / "platform")
    await answered(stack.fleet, "one", channel_id="chat-1")
    reader = stack.fleet.replies.reader("test", "default")
    assert await reader.claim()
    async with contextlib.aclosing(reader.replies()) as replies:
        reply = await anext(replies)
    place = Place("chat-1")
    message_id = await adapter.preview(place, Live(text="o"), message_id=None)

    preview = Preview(place, reply.sid, message_id, since_ms=now_ms())
    for each in (None, preview):
        await Delivery(reader, adapter, budget.Budget("x"), reply, each).run()

    assert platform.texts == ["one", f"{AGAIN}one"]


async def test_a_stop_drops_a_reply_that_a_platform_with_keys_does_not_take(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(budget, "MAX_PAUSE_S", 0.01)

    class Away(Keyed):
        async def send(self, reply: Reply, *_: object, **__: object) -> Sent:
            tried.append(reply.text)
            raise PlatformAway("It is out of order.")

    tried = list[str]()
    accepted = await answered(stack.fleet, "one")
    async with relayed(stack, Away()):
        await eventually(lambda: tried)
        await stack.fleet.sessions.stop(accepted.session.sid)
        await wait_until_empty(stack)

    names = [step.name for step in (await stack.outcome_so_far(accepted)).steps]
    assert "undelivered" in names


# -- refusals -------------------------------------------------------------------------------------


async def test_a_refused_reply_is_a_dead_letter_with_its_reason(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(refuses="You were blocked.")
    async with platform.served(stack.fleet):
        accepted = await answered(stack.fleet, "one")
        await wait_until_empty(stack)
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
        await wait_until_empty(stack)

    assert platform.texts == ["one"]
    assert not await stack.fleet.dead_letters.count()
    names = [step.name for step in (await stack.outcome_so_far(accepted)).steps]
    assert "delivered" in names
    assert "undelivered" not in names


async def test_a_refused_message_before_the_last_is_noted_in_its_turns_outcome(
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
        await wait_until_empty(stack)

    outcome = keys.outcome(sid, accepted.entry_id)
    assert (await client.hget(outcome, "undelivered")).endswith(b"There is no such chat.")


async def test_a_dead_reply_can_be_dropped_with_its_files(stack: Stack, platform: Platform) -> None:
    sid = SessionKey.of(message("one"), agent="main").sid
    file = await stack.fleet.blobs.put(sid, "plan.txt", b"x")
    platform.tell(refuses="You were blocked.")
    async with platform.served(stack.fleet):
        await answered(stack.fleet, "one", file)
        await wait_until_empty(stack)
    (letter,) = await stack.fleet.dead_letters.list()
    assert await stack.fleet.blobs.get(sid, file) == b"x"

    await stack.fleet.dead_letters.drop(letter.id)

    assert await stack.fleet.blobs.get(sid, file) is None
    assert not await stack.fleet.dead_letters.count()


async def test_a_refused_file_is_reported_and_kept_and_the_text_is_delivered(
    stack: Stack, platform: Platform
) -> None:
    file = await stack.fleet.blobs.put(SID, "plan.txt", b"x")
    platform.tell(keeps_files=False)
    await queue_reply(stack, "Here.", attachments=(file,))
    async with platform.served(stack.fleet):
        await wait_until_empty(stack)

    assert platform.texts == [
        "Here.",
        "(The file plan.txt could not be sent: Files can't be sent here.)",
    ]
    assert await stack.fleet.blobs.get(SID, file) == b"x"


async def test_the_claim_of_a_killed_process_is_free_at_once(
    stack: Stack, platform: Platform
) -> None:
    process = platform.start_process(stack.redis.url, token="", claim_ms=3_600_000)
    await eventually(partial(platform.is_read, stack.fleet))
    reader = stack.fleet.replies.reader("test", "default")
    assert not await reader.claim()
    process.send_signal(signal.SIGSTOP)  # a frozen process may continue
    assert not await reader.claim()

    process.kill()
    process.wait()

    assert await reader.claim()


async def test_only_the_current_reader_can_set_a_delivery_mark(stack: Stack) -> None:
    late, next_ = (stack.fleet.replies.reader("test", "default") for _ in range(2))
    assert await late.claim()
    await queue_reply(stack, "one")
    replies = late.replies()
    reply = await anext(replies)
    await replies.aclose()
    await stack.fleet.scripts.client.delete(keys.reader("test", "default"))  # it has expired
    assert await next_.claim()

    with pytest.raises(LeaseLost):
        await late.mark(reply, Mark(is_begun=True), by="late")
    assert await next_.mark(reply, Mark(is_begun=True), by="next") is True


# -- ids of sent messages --------------------------------------------------------------------------


async def test_the_ids_of_delivered_messages_lead_to_their_turn(
    stack: Stack, platform: Platform
) -> None:
    file = await stack.fleet.blobs.put(SID, "plan.txt", b"x")
    await queue_reply(stack, "Here.", attachments=(file,), entries=["1-0", "2-0"])
    async with platform.served(stack.fleet):
        await wait_until_empty(stack)

    ids = [event["id"] for event in platform.events if event["event"] in ("delivered", "file")]
    assert len(ids) == 2
    for message_id in ids:
        origin = await stack.fleet.replies.message_origin("test", "default", "chat-1", message_id)
        assert origin is not None
        assert (origin.sid, origin.turn, origin.entries) == (SID, "1-0", ("1-0", "2-0"))
    assert await stack.fleet.replies.message_origin("test", "default", "chat-2", ids[0]) is None


async def test_a_message_s_id_on_the_platform_leads_to_its_trace(
    stack: Stack, platform: Platform
) -> None:
    async with platform.served(stack.fleet):
        accepted = await answered(stack.fleet, "one")
        await wait_until_empty(stack)
    (message_id,) = (event["id"] for event in platform.delivered)

    traced = run(stack, "sessions", "trace", f"test/default/chat-1/{message_id}").stdout

    assert traced.startswith(f"{accepted.session.sid[:8]}-{accepted.entry_id}")
    assert f"delivered             as {message_id}" in traced


async def test_replies_read_again_after_a_lost_claim_are_sent_once(
    stack: Stack, platform: Platform
) -> None:
    client: Any = stack.fleet.scripts.client
    reader, claims = keys.reader("test", "default"), keys.READERS
    platform.tell(holds="chat-1")
    async with platform.served(stack.fleet, claim_ms=500):
        for index, text in enumerate(("one", "two", "three")):
            await queue_reply(stack, text, index=index)
        await eventually(lambda: platform.did("held"))
        await client.set(reader, "another", px=1000)
        before = (await client.zscore(claims, "test\0default")) or 0

        async def is_claimed_again() -> bool:
            return bool(await client.zscore(claims, "test\0default") > before + 1000)

        await eventually(is_claimed_again)
        platform.tell()
        await wait_until_empty(stack)

    assert platform.texts == ["one", "two", "three"]


async def test_a_reply_dropped_from_the_queue_of_its_chat_is_not_sent(
    stack: Stack, platform: Platform
) -> None:
    """An operator may drop a reply while it waits in the queue."""
    platform.tell(is_held=True)
    async with platform.served(stack.fleet):
        for index, text in enumerate(("one", "two", "three")):
            await queue_reply(stack, text, index=index)
        await eventually(lambda: platform.did("held"))
        undelivered = [reply async for reply in stack.fleet.replies.undelivered()]
        assert await stack.fleet.replies.drop(undelivered[1:2]) == 1
        platform.tell()
        await wait_until_empty(stack)

    assert platform.texts == ["one", "three"]
