"""The contract of what people do: each report takes effect once, also after an outage.

In the platforms' worlds, what was said before the first start is in the owner's chat already.
"""

from typing import Any

import pytest

from remoteclaw.channels import late
from remoteclaw.clock import boottime, now_ms
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import EVERYONE, SessionKey
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import Card
from tests.support.requests import put_request
from tests.support.stack import Stack
from tests.support.waiting import eventually
from tests.support.worlds.platform import HistoryWorld, PlazaWorld, TestWorld
from tests.support.worlds.running import accepted, session_of, settled
from tests.support.worlds.telegram import TelegramWorld
from tests.support.worlds.world import OWNER, World

HOUR_MS = 3_600_000
PLAN = {"plan.txt": b"the plan"}
#: More than a busy machine needs for what takes less than a second, and less than any pause.
MOST_S = 10.0


async def arrived(stack: Stack, world: World, text: str) -> None:
    """Wait until a message of the owner is on the stream of its session."""

    async def is_there() -> bool:
        return text in [entry.message.text for entry in await accepted(stack, world, 1)]

    await eventually(is_there)


async def waiting(stack: Stack, world: World, *, thread: str | None = None) -> list[str]:
    """Return the texts of the owner's messages that an agent would get now."""
    sid = session_of(world, OWNER, thread).sid
    lease = await stack.fleet.leases.acquire(sid, worker="here", host="here")
    assert lease is not None
    return [decode_entry(*entry).message.text for entry in await lease.entries()]


@pytest.mark.thorough("matrix")
async def test_what_people_do_during_an_outage_is_answered_once(
    stack: Stack, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too old for an answer is told of once, and silently."""
    monkeypatch.setattr(late, "QUIET_S", 0.1)
    has_old = profile_of(world.provider).reads_history and not world.goes_by_time
    first, second, third = [await world.say(text) for text in ("first", "seond", "third")]
    await accepted(stack, world, 3)
    await world.leave()
    await world.say("second", edits=second)
    if world.provider != "telegram":
        await world.delete(third)
    if has_old:
        for hours in (30, 26):
            await world.say("long ago", at_ms=now_ms() - hours * HOUR_MS)
    typo = await world.say("helo")
    if world.provider != "telegram":
        await world.delete(await world.say("never mind"))
    await world.say("hello", edits=typo)
    if world.has_threads:
        await world.say("and here?", thread=first)
    await world.come_back()
    await arrived(stack, world, "hello")
    await world.say("last")
    await arrived(stack, world, "last")
    if has_old:
        await eventually(world.texts)
    await settled(stack, world)

    left = ["third"] if world.provider == "telegram" else []
    assert await waiting(stack, world) == ["first", "second", *left, "hello", "last"]
    if world.has_threads:
        await accepted(stack, world, 1, thread=first)
        assert await waiting(stack, world, thread=first) == ["and here?"]
    told = world.texts()
    assert len(told) == has_old
    assert all("I was away, so 2 messages from" in text for text in told)


@pytest.mark.thorough("matrix")
async def test_a_message_in_a_group_opens_a_thread_in_which_nobody_mentions_the_agent_again(
    stack: Stack, world: World
) -> None:
    """Also after an outage. A thread that people have opened begins with their messages."""
    group: dict[str, Any] = {"chat": world.group}

    async def texts(thread: str) -> list[tuple[str, str | None]]:
        sid = SessionKey("main", world.provider, "default", world.group, EVERYONE, thread).sid
        entries = await stack.fleet.inbound.unanswered(sid)
        return [(entry.message.text, entry.message.thread_context) for entry in entries]

    async def until(thread: str, *expected: tuple[str, str | None]) -> None:
        async def is_there() -> bool:
            return await texts(thread) == [*expected]

        await eventually(is_there)

    opened = await world.say("one", **group, is_for_us=True)
    await until(opened, ("one", None))
    await world.leave()
    await world.say("two", by=8, **group, thread=opened, is_for_us=False)
    other = await world.say("is it red?", **group, is_for_us=False)
    await world.say("look", by=8, **group, thread=other, is_for_us=True)
    await world.come_back()
    await until(opened, ("one", None), ("two", None))
    await until(other, ("look", f"{world.called(OWNER)}: is it red?"))
    await stack.start_worker()

    await eventually(lambda: {opened, other} <= set(world.threads()))
    assert None not in world.threads()


@pytest.mark.parametrize(
    "world",
    [HistoryWorld, PlazaWorld, TelegramWorld],
    ids=lambda kind: kind.provider,
    indirect=True,
)
async def test_an_answer_during_an_outage_counts_once(stack: Stack, world: World) -> None:
    """A platform that keeps no presses shows an error, so the person presses again."""
    about: Any = {"provider": world.provider, "channel_id": "7", "from_": "7"}
    message = await stack.append("x", **about)
    request = await put_request(stack, message, tool="Bash", what="touch x")
    card = Card(request.id, (("once", "Allow once"),))
    shown: Any = {"chat": "7", "card": card, "call": f"request:{request.id}"}
    await stack.put_reply(world.provider, "default", "main asks to use a tool", **shown)
    await settled(stack, world)
    await world.leave()
    if isinstance(world, PlazaWorld):
        assert world.press_in_vain(request.id)
    else:
        await world.allow(request.id)
    await world.come_back()
    if isinstance(world, PlazaWorld):
        await world.allow(request.id)

    async def is_answered() -> bool:
        found = await stack.fleet.requests.find(request.id)
        return bool(found and found.answer)

    await eventually(is_answered)
    await settled(stack, world)
    assert "already" not in "".join(world.texts())


async def test_a_message_that_is_deleted_while_it_waits_is_not_answered(
    stack: Stack, world: World
) -> None:
    await world.say("one")
    gone = await world.say("two")
    await accepted(stack, world, 2)
    await world.delete(gone)
    await world.say("three")
    await arrived(stack, world, "three")

    assert await waiting(stack, world) == ["one", "three"]


async def test_neither_a_bot_nor_what_was_said_before_the_first_start_is_answered(
    stack: Stack, world: World
) -> None:
    await world.say("from a bot", is_bot=True)
    await world.say("from a person")
    (entry,) = await accepted(stack, world, 1)
    await settled(stack, world)

    assert entry.message.text == "from a person"
    assert world.texts() == []


@pytest.mark.thorough("matrix")
async def test_a_report_that_is_not_stored_is_not_acknowledged(stack: Stack, world: World) -> None:
    """The process dies while it stores a message, and the platform repeats the message."""
    await world.say("one")
    await accepted(stack, world, 1)
    await world.leave()
    proxy = await stack.proxied()
    world.fleet = stack.open_at(proxy.url)
    failpoint = proxy.arm("inbox_store", "before")
    await world.come_back()
    await world.say("two")
    await failpoint.wait()
    await world.leave()
    failpoint.cut()
    await world.say("three")
    world.fleet = stack.fleet
    await world.come_back()
    await arrived(stack, world, "three")

    assert await waiting(stack, world) == ["one", "two", "three"]


@pytest.mark.thorough("matrix")
async def test_a_slow_file_and_a_flood_hold_up_nobody_else(stack: Stack, world: World) -> None:
    """A member's file takes as long as it likes, and a stranger writes all the time."""
    client: Any = stack.fleet.scripts.client

    async def is_accepted() -> bool:
        streams = [key async for key in client.scan_iter(keys.inbound("*").replace("{*}", "*"))]
        entries = [each for stream in streams for each in await client.xrange(stream)]
        return "hello" in [decode_entry(*entry).message.text for entry in entries]

    group: dict[str, Any] = {
        "chat": int(world.group) if world.provider == "telegram" else world.group
    }
    world.holds_files()
    await world.say("look", by=8, files=PLAN)
    for number in range(200):
        where: dict[str, Any] = group if number % 2 else {}
        await world.say(f"number {number}", by=9, is_for_us=False, files=PLAN, **where)
    began = boottime()
    await world.say("hello", is_for_us=True, **group)
    await eventually(is_accepted)
    seconds = boottime() - began
    world.is_back()

    assert seconds < MOST_S
    if isinstance(world, TestWorld):
        assert len(world.channel.platform.did("polled")) < 10, "the held file needs no calls"
