"""The state of people's messages, as the account's reaction to each."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.channels.budget import Budget
from remoteclaw.channels.signs import MAX_REFUSALS, StateSigns
from remoteclaw.clock import boottime
from remoteclaw.errors import LeaseLost, PlatformUnknown
from remoteclaw.fleet import keys
from remoteclaw.fleet.replies.reply import operation_payload
from remoteclaw.fleet.replies.signs import Sign
from remoteclaw.protocols import Operation
from tests.support.bridges import acp_script, script
from tests.support.channel import STATES, TestChannel
from tests.support.conversations import AGENT, go
from tests.support.leases import accept, acquire
from tests.support.platform import Platform, PlatformAdapter
from tests.support.requests import BODY, open_request
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import eventually

GROUPS: dict[str, Any] = {"team": {"threads": "off"}}
SIGNS = keys.signs("test", "default")


@pytest.fixture
async def channel(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestChannel]:
    """A group with the owner alice, whose agent works on "wait" until the test lets it go on."""
    stack.agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    channel = TestChannel.installed(monkeypatch, stack, groups=GROUPS)
    yield channel
    channel.end()
    assert "Traceback" not in channel.log_file.read_text()


def say(channel: TestChannel, text: str, chat: str = "team", by: str = "alice", **more: Any) -> str:
    """Write a message for the agent; return its id."""
    return channel.platform.say(chat, by, text, **more)


def signs(channel: TestChannel, chat: str = "team") -> dict[str, str]:
    """Return the states that the messages of a chat show now, by message."""
    names = {emoji: state for state, emoji in STATES.items()} | {"": ""}
    return {
        post.id: names.get(post.reaction, "")
        for post in channel.platform.chat(chat)
        if post.by != "agent"
    }


def history(channel: TestChannel, message: str) -> list[str]:
    """Return the reactions that a message has had, in order."""
    return [each["emoji"] for each in channel.platform.did("react") if each["messageId"] == message]


async def shows(channel: TestChannel, state: str, *messages: str, chat: str = "team") -> None:
    """Wait until messages show a state, and say which don't."""
    wanted = dict.fromkeys(messages, state)

    def there() -> dict[str, str]:
        return {id_: now for id_, now in signs(channel, chat).items() if id_ in wanted}

    try:
        await eventually(lambda: there() == wanted)
    except AssertionError:
        raise AssertionError(f"the messages show {there()} and should show {state!r}") from None


async def are_over(stack: Stack) -> None:
    """Wait until no message shows a state that may still change."""

    async def is_over() -> bool:
        return not await stack.fleet.scripts.client.hlen(SIGNS)

    await eventually(is_over)


async def test_messages_in_a_group_show_that_they_are_received_worked_on_and_done(
    stack: Stack, channel: TestChannel
) -> None:
    about = {"directory": str(stack.home.path / "platform"), "owners": ["alice"], "groups": GROUPS}
    about |= {"threads": "platform"}
    queue = {"mode": "collect", "debounce_ms": 0, "gather_ms": 0}
    stack.configure(queue=queue, channels={"test": about})
    channel.start()
    first = say(channel, "wait")
    await shows(channel, "received", first)

    await stack.start_worker()

    await shows(channel, "works", first)
    batch = [say(channel, "two"), say(channel, "three")]
    await shows(channel, "received", *batch)
    go(stack)
    await shows(channel, "done", first, *batch)
    await are_over(stack)
    assert history(channel, first) == [STATES["received"], STATES["works"], STATES["done"]]
    assert "heard two + three" in channel.texts("team")[-1]


async def test_only_messages_to_the_agent_in_groups_show_their_state_unless_settings_say_otherwise(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    direct = say(channel, "one", "alice")
    command = say(channel, "/status")
    overheard = say(channel, "we talk", is_for_us=False)
    message = say(channel, "two")
    await shows(channel, "received", message)
    edit = say(channel, "two, edited", replaces=message)
    choice = say(channel, "", reply_to=message, reaction="👍")
    last = say(channel, "three")
    await shows(channel, "received", last)

    shown = {each["messageId"] for each in channel.platform.did("react")}
    assert shown == {message, last}, (direct, command, overheard, edit, choice)

    channel.configure(shows_state=True)
    direct = say(channel, "four", "alice")
    await shows(channel, "received", direct, chat="alice")
    channel.configure(shows_state=False)
    silent = say(channel, "five")

    async def is_accepted() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).accepted >= 9

    await eventually(is_accepted)
    await stack.start_worker()
    await are_over(stack)
    assert not history(channel, silent)


@pytest.mark.thorough
async def test_ten_messages_at_once_cost_few_calls_and_end_as_done(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    messages = [say(channel, f"number {number}") for number in range(10)]
    await stack.start_worker()
    await eventually(lambda: "heard" in "".join(channel.texts("team")))

    await shows(channel, "done", *messages)

    calls = len(channel.platform.did("react"))
    assert calls <= 10 + 4, f"{calls} calls for ten messages whose turn took a second"


async def test_a_stopped_a_withdrawn_and_an_unanswered_message_lose_their_signs(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    message = say(channel, "wait")
    await shows(channel, "works", message)
    waiting = say(channel, "withdraw me")
    await shows(channel, "received", waiting)

    channel.platform.delete("team", waiting)
    say(channel, "", deletes=waiting)
    await eventually(lambda: waiting not in signs(channel))
    say(channel, "/stop")

    await shows(channel, "", message)
    await are_over(stack)
    assert history(channel, waiting) == [STATES["received"]]


@pytest.mark.thorough
async def test_a_message_whose_agent_can_not_start_shows_that_it_failed(
    stack: Stack, channel: TestChannel
) -> None:
    stack.agent["command"][-1:] = ["/nowhere/agent"]
    channel.configure(groups=GROUPS)
    channel.start()
    message = say(channel, "hello")
    await stack.start_worker()

    await shows(channel, "failed", message)
    await are_over(stack)


async def test_a_turn_that_asks_for_permission_shows_that_it_needs_a_person(
    stack: Stack, channel: TestChannel, directory: Path
) -> None:
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    channel.configure(groups=GROUPS)
    await stack.start_worker()
    channel.start()
    message = say(channel, "touch x")
    await open_request(stack)
    await shows(channel, "needs_you", message)

    say(channel, "1")

    await shows(channel, "done", message)
    await are_over(stack)


async def test_no_sign_says_works_after_the_worker_was_killed(
    stack: Stack, channel: TestChannel
) -> None:
    worker = await stack.start_worker()
    channel.start()
    message = say(channel, "wait")
    await shows(channel, "works", message)

    async with stack.swept():
        worker.kill()
        await shows(channel, "received", message)

        go(stack)
        await stack.start_worker()
        await shows(channel, "done", message)
    await are_over(stack)


@pytest.mark.parametrize(
    "where", [pytest.param("react before", marks=pytest.mark.thorough), "react after"]
)
async def test_the_next_process_corrects_the_signs_of_one_that_was_killed(
    stack: Stack, channel: TestChannel, where: str
) -> None:
    worker = await stack.start_worker()
    process = channel.start()
    message = say(channel, "wait")
    await shows(channel, "works", message)
    channel.platform.tell(stops=where)
    say(channel, "/stop")
    await eventually(lambda: channel.platform.did("held"))

    process.kill()
    process.wait()
    channel.platform.tell()
    channel.start()

    await shows(channel, "", message)
    await are_over(stack)
    assert worker.poll() is None


class PoorAdapter(PlatformAdapter):
    """An adapter whose reactions arrive late, or whose answers are lost."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.called, self.arrives, self.loses = list[str](), asyncio.Event(), False

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        self.called.append(operation.channel_id)
        await self.arrives.wait()
        done = await super().operate(operation)
        if self.loses:
            raise PlatformUnknown("The connection was lost.")
        return done


async def test_a_reaction_whose_answer_was_lost_is_not_believed(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.channels.signs.RETRY_S", 0.0)
    monkeypatch.setattr("remoteclaw.channels.signs.EVERY_S", 0.02)
    fleet, platform = stack.fleet, Platform(directory / "platform")
    message = platform.say("team", "alice", "hello")
    accepted = await accept(fleet)
    adapter = PoorAdapter(directory / "platform")
    adapter.arrives.set()
    reader = fleet.replies.reader("test", "default")
    assert await reader.claim()
    signs = StateSigns(fleet.signs, reader, adapter, Budget("test/default"), STATES)
    await signs.add(Sign("team", None, message, accepted.session.sid, accepted.entry_id))
    shown = asyncio.create_task(signs.run())

    def now() -> str:
        (post,) = platform.chat("team")
        return post.reaction

    await eventually(lambda: now() == STATES["received"])

    adapter.loses = True
    lease = await acquire(fleet, accepted)
    assert await lease.turns.begin([accepted.entry_id])
    await eventually(lambda: now() == STATES["works"])
    await fleet.scripts.run("expire", epoch=lease.epoch, sid=lease.sid, is_deliberate=False)
    adapter.loses = False

    await eventually(lambda: now() == STATES["received"])
    shown.cancel()
    await asyncio.wait((shown,))


async def test_a_sign_gives_way_to_replies_that_come_before_its_turn(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to those that wait for a new process: the answer may be refused."""
    monkeypatch.setattr("remoteclaw.channels.signs.EVERY_S", 0.2)
    fleet, platform = stack.fleet, Platform(directory / "platform")
    accepted = await accept(fleet)
    adapter, budget = PoorAdapter(directory / "platform"), Budget("test/default")
    reader = fleet.replies.reader("test", "default")
    assert await reader.claim()
    signs = StateSigns(fleet.signs, reader, adapter, budget, STATES)

    async def add(chat: str) -> None:
        message = platform.say(chat, "alice", "hello")
        await signs.add(Sign(chat, None, message, accepted.session.sid, accepted.entry_id))

    def shown() -> list[str]:
        return [each["chat"] for each in platform.did("react")]

    await add("a")
    await add("b")
    began = boottime()
    task = asyncio.create_task(signs.run())
    await eventually(lambda: adapter.called)
    assert boottime() - began >= 0.2, "the first look comes before the replies that wait"
    (first,) = adapter.called
    (second,) = {"a", "b"} - {first}
    with budget.replies(second):
        adapter.arrives.set()
        await eventually(lambda: first in shown())
        await add("c")
        await eventually(lambda: "c" in shown())
        assert second not in shown()
    await eventually(lambda: second in shown())
    task.cancel()
    await asyncio.wait((task,))


async def test_a_chat_whose_signs_were_refused_has_signs_again_after_an_hour(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have deleted three messages in a row."""
    monkeypatch.setattr("remoteclaw.channels.signs.EVERY_S", 0.02)
    fleet, platform = stack.fleet, Platform(directory / "platform")
    accepted = await accept(fleet)
    reader = fleet.replies.reader("test", "default")
    assert await reader.claim()
    adapter = PlatformAdapter(directory / "platform")
    signs = StateSigns(fleet.signs, reader, adapter, Budget("test/default"), STATES)

    async def add(message: str) -> bool:
        await signs.add(Sign("team", None, message, accepted.session.sid, accepted.entry_id))
        return bool(await fleet.scripts.client.hlen(SIGNS))

    for number in range(MAX_REFUSALS):
        assert await add(f"deleted {number}")
    task = asyncio.create_task(signs.run())
    await are_over(stack)
    assert not await add("m1")

    monkeypatch.setattr("remoteclaw.channels.signs.boottime", lambda: boottime() + 3601)
    assert await add(platform.say("team", "alice", "hello"))
    await eventually(lambda: platform.did("react"))
    task.cancel()
    await asyncio.wait((task,))


async def test_a_reaction_that_arrives_after_the_claim_was_lost_is_corrected(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.channels.signs.IDLE_S", 0.05)
    fleet, platform = stack.fleet, Platform(directory / "platform")
    message = platform.say("team", "alice", "hello")
    accepted = await accept(fleet)
    slow = PoorAdapter(directory / "platform")
    frozen = fleet.replies.reader("test", "default", claim_ms=100)
    assert await frozen.claim()
    signs = StateSigns(fleet.signs, frozen, slow, Budget("test/default"), STATES)
    await signs.add(Sign("team", None, message, accepted.session.sid, accepted.entry_id))
    late = asyncio.create_task(signs.run())
    await eventually(lambda: slow.called)

    reader = fleet.replies.reader("test", "default")
    await eventually(reader.claim)
    adapter = PlatformAdapter(directory / "platform")
    after = StateSigns(fleet.signs, reader, adapter, Budget("test/default"), STATES)
    lease = await acquire(fleet, accepted)
    assert await lease.turns.begin([accepted.entry_id])
    await lease.turns.finish("done", reply=[{"type": "text", "text": "Yes."}])
    shown = asyncio.create_task(after.run())
    emoji = [STATES["done"]]
    await eventually(lambda: [each["emoji"] for each in platform.did("react")] == emoji)
    await are_over(stack)

    slow.arrives.set()

    with pytest.raises(LeaseLost):
        await late
    emoji += [STATES["received"], STATES["done"]]
    await eventually(lambda: [each["emoji"] for each in platform.did("react")] == emoji)
    shown.cancel()
    await asyncio.wait((shown,))


async def test_an_agents_own_reaction_takes_the_place_of_the_sign(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    message = say(channel, "wait")
    await shows(channel, "works", message)

    async def react(emoji: str) -> None:
        args = {"messageId": message, "emoji": emoji}
        operation = Operation("react", "team", None, args, expires_ms=2**60)
        reply = orjson.dumps(operation_payload(uuid.uuid4().hex, operation))
        await stack.fleet.scripts.client.xadd(REPLIES, {"reply": reply})
        await eventually(lambda: any(each == emoji for each in history(channel, message)))

    await react("🎉")

    await are_over(stack)
    go(stack)
    await eventually(lambda: "heard wait" in "".join(channel.texts("team")))
    last = say(channel, "and now")
    await shows(channel, "done", last)
    assert history(channel, message)[-1] == "🎉"


@pytest.mark.thorough
async def test_a_sign_that_the_platform_refuses_leaves_no_earlier_one(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    message = say(channel, "wait")
    await shows(channel, "received", message)
    channel.platform.tell(refuses="Only some emoji are allowed here.")
    await stack.start_worker()
    await eventually(lambda: "react" in [each["what"] for each in channel.platform.did("refused")])

    channel.platform.tell()

    await shows(channel, "", message)
    await are_over(stack)
    assert history(channel, message) == [STATES["received"], ""]


@pytest.mark.thorough
async def test_a_chat_without_reactions_is_left_alone(stack: Stack, channel: TestChannel) -> None:
    channel.platform.tell(lacks=("react",))
    channel.start()
    for number in range(MAX_REFUSALS):
        say(channel, f"number {number}")
    await eventually(lambda: "do not show their state" in channel.log_file.read_text())
    await are_over(stack)

    last = say(channel, "the last")

    channel.platform.tell()
    await stack.start_worker()
    await eventually(lambda: "the last" in "".join(channel.texts("team")))
    assert not history(channel, last)
    assert not channel.platform.did("react")
