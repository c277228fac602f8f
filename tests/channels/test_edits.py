"""Messages that are edited, deleted, reported again, or consist of several parts; and `/stop`."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.channels.changes import EDIT_LATE, EDIT_REFUSED, EDITED_COMMAND, WITHDRAWN_LATE
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.edits import content_digest
from remoteclaw.fleet.turns.inbound import Known
from remoteclaw.messages import MAX_TEXT_BYTES, SessionKey
from tests.support.bridges import script
from tests.support.channel import TestChannel, until_stored
from tests.support.conversations import AGENT, go
from tests.support.stack import Stack, message
from tests.support.waiting import eventually

ALICE = SessionKey.of(message("-", id="1", from_="alice", channel_id="alice"), agent="main")


@pytest.fixture
async def channel(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestChannel]:
    """A channel whose agent works on "wait" until the test lets it go on."""
    stack.agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    channel = TestChannel.installed(monkeypatch, stack)
    yield channel
    channel.end()


def asked(stack: Stack) -> list[str]:
    """Return the lines that agents have received from people."""
    file = stack.home.path / "workspaces" / "main" / "prompts"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if line and not line.startswith("[")]


def headers(stack: Stack) -> list[dict[str, Any]]:
    """Return the header of each turn."""
    lines = (stack.home.path / "workspaces" / "main" / "prompts").read_text().splitlines()
    begin = "[remoteclaw "
    return [json.loads(line[len(begin) : -1]) for line in lines if line.startswith(begin)]


async def until_told(channel: TestChannel, chat: str, words: str) -> None:
    await eventually(lambda: any(words in text for text in channel.texts(chat)))


async def until_asked(stack: Stack, line: str) -> None:
    await eventually(lambda: line in asked(stack))


async def handled(stack: Stack, count: int) -> None:
    """Wait until the channel has handled so many reports."""

    async def is_handled() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).accepted >= count

    await eventually(is_handled)


@pytest.mark.parametrize("reaction", ["before", "after"])
async def test_a_message_that_is_reported_again_unchanged_runs_once(
    stack: Stack, channel: TestChannel, reaction: str
) -> None:
    """For example, Telegram reports a message as edited when somebody reacts to it."""
    await stack.start_worker()
    channel.start()
    first = channel.platform.say("alice", "alice", "deploy")
    if reaction == "after":
        await until_told(channel, "alice", "heard deploy")
    for _ in range(3):
        channel.platform.say("alice", "alice", "deploy", replaces=first)
    channel.platform.say("alice", "alice", "the next one")
    await until_told(channel, "alice", "heard the next one")

    assert asked(stack) == ["deploy", "the next one"]
    assert len(channel.texts("alice")) == 2


@pytest.mark.parametrize("mode", ["collect", "followup", "aside"])
async def test_an_edit_takes_the_place_of_a_message_that_waits(
    stack: Stack, channel: TestChannel, mode: str
) -> None:
    about = {"directory": str(stack.home.path / "platform"), "owners": ["alice"]}
    stack.configure(queue={"mode": mode, "debounce_ms": 0}, channels={"test": about})
    await stack.start_worker()
    channel.start()
    channel.platform.say("alice", "alice", "wait")
    await until_asked(stack, "wait")
    second = channel.platform.say("alice", "alice", "later: delete the table")
    channel.platform.say("alice", "alice", "later: the third")
    await handled(stack, 3)
    channel.platform.say("alice", "alice", "later: show the table", replaces=second)
    await handled(stack, 4)
    go(stack)
    await until_asked(stack, "later: the third")

    assert asked(stack) == ["wait", "later: show the table", "later: the third"]
    assert EDIT_LATE not in channel.texts("alice")
    client = stack.fleet.scripts.client

    async def is_cleared() -> bool:
        return not await client.exists(keys.edits(ALICE.sid))

    await eventually(is_cleared)


async def test_a_message_that_was_edited_during_an_outage_runs_once_with_its_new_text(
    stack: Stack, channel: TestChannel
) -> None:
    first = channel.platform.say("alice", "alice", "paint it blue")
    number = channel.platform.say("alice", "alice", "1")
    channel.platform.say("alice", "alice", "paint it red", replaces=first)
    channel.platform.say("alice", "alice", "/new", replaces=number)
    await stack.start_worker()
    channel.start()
    await until_told(channel, "alice", EDITED_COMMAND)
    await until_told(channel, "alice", "heard 1, knew paint it red")

    assert asked(stack) == ["paint it red", "1"]


async def test_an_edit_during_its_aside_is_answered_by_a_turn(
    stack: Stack, channel: TestChannel
) -> None:
    about = {"directory": str(stack.home.path / "platform"), "owners": ["alice"]}
    queue = {"mode": "aside", "debounce_ms": 0}
    stack.configure(queue=queue, channels={"test": about}, linger_s=1)
    await stack.start_worker()
    channel.start()
    channel.platform.say("alice", "alice", "wait")
    await until_asked(stack, "wait")
    # The agent answers this aside after the turn, once the file `later` exists.
    second = channel.platform.say("alice", "alice", "slow is it blue")
    asides = stack.home.path / "workspaces" / "main" / "asides"
    await eventually(lambda: asides.exists() and "is it blue" in asides.read_text())
    channel.platform.say("alice", "alice", "is it red", replaces=second)
    await handled(stack, 3)
    go(stack)
    asides.with_name("later").touch()
    await until_asked(stack, "is it red")

    assert "beside: is it blue" not in channel.texts("alice")


async def test_an_edit_after_its_answer_is_noted_and_runs_nothing(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    first = channel.platform.say("alice", "alice", "paint it blue")
    await until_told(channel, "alice", "heard paint")
    for _ in range(2):  # the second report changes nothing
        channel.platform.say("alice", "alice", "paint it red", replaces=first)
    await until_told(channel, "alice", EDIT_LATE)
    channel.platform.say("alice", "alice", "thank you")
    await until_told(channel, "alice", "heard thank you")

    assert asked(stack) == ["paint it blue", "thank you"]
    (note,) = headers(stack)[1]["meanwhile"]
    assert (note["edited"], note["id"]) == ("paint it red", first)
    assert channel.texts("alice").count(EDIT_LATE) == 1


async def test_an_edit_brings_no_command_and_repeats_none(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    channel.platform.say("alice", "alice", "hello")
    await until_told(channel, "alice", "heard hello")
    command = channel.platform.say("alice", "alice", "/new")
    await until_told(channel, "alice", "A new conversation.")
    channel.platform.say("alice", "alice", "remember this")
    await until_told(channel, "alice", "heard remember this")
    channel.platform.say("alice", "alice", "/new", replaces=command)  # a reaction to it
    channel.platform.say("alice", "alice", "hello", replaces="m1000")  # a message from before
    edited = channel.platform.say("alice", "alice", "and this")
    await until_told(channel, "alice", "heard and this, knew remember this")
    channel.platform.say("alice", "alice", "/new", replaces=edited)
    await until_told(channel, "alice", EDITED_COMMAND)
    channel.platform.say("alice", "alice", "do something", replaces=command)
    await until_told(channel, "alice", EDIT_REFUSED)
    channel.platform.say("alice", "alice", "the last")
    await until_told(channel, "alice", "heard the last, knew remember this + and this")

    assert asked(stack) == ["hello", "remember this", "and this", "the last"]


async def test_a_mention_that_is_added_later_counts(stack: Stack, channel: TestChannel) -> None:
    """People forget the mention and add it; it counts once, and only in groups with access."""
    channel.configure(groups={"team": {}})
    await stack.start_worker()
    channel.start()
    for group in ("team", "elsewhere"):
        said = channel.platform.say(group, "bo", f"build {group}", is_for_us=False)
        for _ in range(2):
            again = {"replaces": said, "is_for_us": True}
            channel.platform.say(group, "bo", f"bot, build {group}", **again)
    channel.platform.say("team", "bo", "bot, what now?", is_for_us=True)
    await until_told(channel, "team", "heard bot, what now?")

    assert asked(stack) == ["bot, build team", "bot, what now?"]
    assert not channel.texts("elsewhere")


async def test_files_are_replaced_with_their_message(stack: Stack, channel: TestChannel) -> None:
    channel.start()
    first = channel.platform.say("alice", "alice", "look", files={"old.txt": "old"})
    await handled(stack, 1)
    channel.platform.say("alice", "alice", "see", files={"new.txt": "new"}, replaces=first)
    await handled(stack, 2)

    client: Any = stack.fleet.scripts.client
    blobs = [
        await client.get(name) async for name in client.scan_iter(match=keys.blob(ALICE.sid, "*"))
    ]
    assert blobs == [b"new"]


async def test_a_deleted_message_that_waits_is_withdrawn(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    first = channel.platform.say("alice", "alice", "wait")
    await until_asked(stack, "wait")
    second = channel.platform.say("alice", "alice", "my password is 1234")
    await handled(stack, 2)
    reference = await stack.fleet.sessions.view(ALICE.sid)
    assert reference is not None
    assert reference.last_entry is not None
    for message_id in (second, first):
        channel.platform.say("alice", "alice", "", deletes=message_id)
    await until_told(channel, "alice", WITHDRAWN_LATE)
    go(stack)
    channel.platform.say("alice", "alice", "the next one")
    await until_told(channel, "alice", "heard the next one")

    outcome = await stack.fleet.outcomes.read(ALICE.sid, reference.last_entry)
    assert outcome is not None
    assert (outcome.status, (outcome.error or {})["category"]) == ("dropped", "withdrawn")
    assert asked(stack) == ["wait", "the next one"]
    client: Any = stack.fleet.scripts.client
    lines = await client.xrange(keys.history("test", "default", "alice"))
    assert not [line for line in lines if b"1234" in line[1][b"line"]]


# -- the parts of one act --------------------------------------------------------------------------


async def test_the_parts_of_a_message_are_one_message(stack: Stack, channel: TestChannel) -> None:
    channel.platform.say("alice", "alice", "the first half ")
    channel.platform.say("alice", "alice", "and the second", continues="")
    await stack.start_worker()
    channel.start()
    await until_told(channel, "alice", "heard the first half and the second")

    assert len(channel.texts("alice")) == 1


async def test_no_joined_message_exceeds_the_limits_of_a_message(
    stack: Stack, channel: TestChannel
) -> None:
    channel.platform.say("alice", "alice", "x" * (MAX_TEXT_BYTES - 10))
    for number in range(3):
        channel.platform.say("alice", "alice", f"part {number} ", continues="")
    await stack.start_worker()
    channel.start()
    await until_told(channel, "alice", "heard part 1 part 2")


async def test_a_part_that_was_accepted_alone_before_a_crash_loses_no_other(
    stack: Stack, channel: TestChannel
) -> None:
    first = channel.platform.say("alice", "alice", "the first half")
    once = (Known(first, content_digest("the first half", ("for us",))),)
    half = message("the first half", id=first, from_="alice", channel_id="alice")
    await stack.fleet.inbound.append(half, agent="main", once=once)
    channel.platform.say("alice", "alice", "the second", continues="")
    await stack.start_worker()
    channel.start()
    await until_told(channel, "alice", "heard the second")

    assert asked(stack) == ["the first half", "the second"]


async def test_a_part_that_arrives_during_the_first_one_is_not_lost(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    channel.platform.tell(stops="fetch before")
    channel.platform.say("alice", "alice", "the first", files={"a.txt": "a"})
    await eventually(lambda: channel.platform.did("held"))
    channel.platform.say("alice", "alice", "the second", continues="\n")
    await until_stored(stack, 2)
    channel.platform.tell()
    await until_told(channel, "alice", "heard the second")

    assert asked(stack) == ["the first", "the second"]


# -- what overtakes a slow file --------------------------------------------------------------------


@pytest.mark.parametrize("end", ["released", "killed"])
async def test_a_stop_overtakes_a_slow_file_and_withdraws_its_message(
    stack: Stack, channel: TestChannel, end: str
) -> None:
    proxy = await stack.proxied()
    channel.configure(allow=["carol"])
    await stack.start_worker()
    process = channel.start(url=proxy.url)
    channel.platform.say("alice", "alice", "wait")
    await until_asked(stack, "wait")
    channel.platform.tell(stops="fetch before")
    channel.platform.say("alice", "alice", "look", files={"plan.txt": "the plan"})
    channel.platform.say("carol", "carol", "mine", files={"mine.txt": "her plan"})
    await eventually(lambda: len(channel.platform.did("held")) == 2)
    channel.platform.say("alice", "alice", "and this")
    await until_stored(stack, 3)
    held = [proxy.arm("inbox_done", "before") for _ in range(2)] if end == "killed" else []
    channel.platform.say("alice", "alice", "/stop")
    await until_told(channel, "alice", "2 messages were withdrawn")
    for failpoint in held:
        await failpoint.wait()
    if end == "killed":
        process.send_signal(signal.SIGKILL)
        process.wait()
    for failpoint in held:
        failpoint.cut()
    channel.platform.tell()
    if end == "killed":
        channel.start()
    channel.platform.say("alice", "alice", "the next one")
    await until_told(channel, "alice", "heard the next one")

    await until_told(channel, "carol", "heard mine")
    assert asked(stack)[0] == "wait"
    assert sorted(asked(stack)[1:]) == ["mine", "the next one"]


async def test_a_stop_withdraws_no_message_of_another_conversation(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(groups={"team": {"require_mention": False}}, sessions="person")
    await stack.start_worker()
    channel.start()
    channel.platform.tell(stops="fetch before")
    channel.platform.say("team", "alice", "look", files={"plan.txt": "the plan"}, is_for_us=True)
    await eventually(lambda: channel.platform.did("held"))
    channel.platform.say("team", "bo", "/stop", is_for_us=True)
    await until_told(channel, "team", "Nothing runs here.")
    channel.platform.tell()
    await until_told(channel, "team", "heard look")


async def test_an_edit_is_not_lost_if_its_message_was_accepted_before_a_crash(
    stack: Stack, channel: TestChannel
) -> None:
    first = channel.platform.say("alice", "alice", "paint it blue")
    once = (Known(first, content_digest("paint it blue", ("for us",))),)
    before = message("paint it blue", id=first, from_="alice", channel_id="alice")
    await stack.fleet.inbound.append(before, agent="main", once=once)
    for colour in ("green", "red"):
        channel.platform.say("alice", "alice", f"paint it {colour}", replaces=first)
    channel.start()
    await handled(stack, 1)
    await stack.start_worker()
    await until_told(channel, "alice", "heard paint it red")

    assert asked(stack) == ["paint it red"]


async def test_a_crash_after_an_edit_leaves_nobody_without_an_answer(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    proxy = await stack.proxied()
    process = channel.start(url=proxy.url)
    first = channel.platform.say("alice", "alice", "paint it blue")
    await until_told(channel, "alice", "heard paint it blue")
    failpoint = proxy.arm("edit", "after")
    channel.platform.say("alice", "alice", "paint it red", replaces=first)
    await failpoint.wait()
    process.kill()
    process.wait()
    failpoint.cut()
    channel.start(url=proxy.url)
    await until_told(channel, "alice", EDIT_LATE)


async def test_a_mention_that_is_removed_withdraws_a_message_that_waits(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(groups={"team": {}})
    await stack.start_worker()
    channel.start()
    first = channel.platform.say("team", "bo", "wait", is_for_us=True)
    await until_asked(stack, "wait")
    second = channel.platform.say("team", "bo", "drop the table", is_for_us=True)
    third = channel.platform.say("team", "bo", "show the table", is_for_us=True)
    await handled(stack, 3)
    channel.platform.say("team", "bo", "wrong chat, sorry", replaces=second, is_for_us=False)
    # The same text: for example, the message that this one answers was deleted.
    channel.platform.say("team", "bo", "show the table", replaces=third, is_for_us=False)
    channel.platform.say("team", "bo", "never mind", replaces=first, is_for_us=False)
    await until_told(channel, "team", WITHDRAWN_LATE)
    go(stack)
    await until_told(channel, "team", "heard show the table")

    assert asked(stack) == ["wait", "show the table"]


async def test_the_second_of_two_stops_does_not_withdraw_the_first(
    stack: Stack, channel: TestChannel
) -> None:
    channel.platform.tell(stops="fetch before")
    channel.platform.say("alice", "alice", "look", files={"plan.txt": "the plan"})
    for _ in range(2):
        channel.platform.say("alice", "alice", "/stop")
    channel.start()
    await until_told(channel, "alice", "Nothing runs here.")

    withdrawn = "1 message was withdrawn before the agent got it."
    assert channel.texts("alice") == [withdrawn, "Nothing runs here."]


async def test_a_withdrawn_command_does_not_run_after_a_crash(
    stack: Stack, channel: TestChannel
) -> None:
    proxy = await stack.proxied()
    await stack.start_worker()
    process = channel.start(url=proxy.url)
    channel.platform.say("alice", "alice", "remember this")
    await until_told(channel, "alice", "heard remember this")
    channel.platform.tell(stops="fetch before")
    channel.platform.say("alice", "alice", "look", files={"plan.txt": "the plan"})
    channel.platform.say("alice", "alice", "/new")
    await until_stored(stack, 2)
    held = [proxy.arm("inbox_done", "before") for _ in range(2)]
    channel.platform.say("alice", "alice", "/stop")
    await until_told(channel, "alice", "2 messages were withdrawn")
    for failpoint in held:
        await failpoint.wait()
    process.kill()
    process.wait()
    for failpoint in held:
        failpoint.cut()
    channel.platform.tell()
    channel.start()
    channel.platform.say("alice", "alice", "the next one")
    await until_told(channel, "alice", "heard the next one, knew remember this")


async def test_a_stop_that_was_interrupted_by_a_crash_still_says_what_it_withdrew(
    stack: Stack, channel: TestChannel
) -> None:
    proxy = await stack.proxied()
    channel.platform.tell(stops="fetch before")
    channel.platform.say("alice", "alice", "look", files={"plan.txt": "the plan"})
    failpoint = proxy.arm("stop", "before")
    channel.platform.say("alice", "alice", "/stop")
    process = channel.start(url=proxy.url)
    await failpoint.wait()
    process.kill()
    process.wait()
    failpoint.cut()
    channel.start(url=proxy.url)
    await until_told(channel, "alice", "1 message was withdrawn")


async def test_a_stop_counts_only_messages_for_the_agent(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(groups={"team": {}})
    channel.platform.tell(stops="fetch before")
    channel.platform.say("team", "bo", "look", files={"plan.txt": "the plan"}, is_for_us=True)
    channel.platform.say("team", "carol", "and lunch?", is_for_us=False)
    channel.platform.say("team", "bot", "a feed", is_for_us=True, is_bot=True)
    channel.platform.say("team", "bo", "/stop", is_for_us=True)
    channel.start()
    await until_told(channel, "team", "1 message was withdrawn before the agent got it.")
