"""A platform whose people write to agents: the story of a channel, and what may break it."""

import re
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.channels.rate import MOST
from remoteclaw.fleet import keys
from remoteclaw.fleet.commands import command_of
from remoteclaw.fleet.inbound import decode_entry
from remoteclaw.messages import Entry
from tests.support.channel import TestChannel
from tests.support.stack import Stack
from tests.support.waiting import eventually

POSITION = keys.position("test", "default")


@pytest.fixture
async def channel(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestChannel]:
    channel = TestChannel.installed(monkeypatch, stack)
    yield channel
    channel.end()


async def said(channel: TestChannel, chat: str, words: str) -> str:
    """Wait until the bot has said something in a chat; return it."""

    def found() -> str | None:
        return next((text for text in channel.texts(chat) if words in text), None)

    return str(await eventually(found))


async def test_a_stranger_is_let_in_and_answered(stack: Stack, channel: TestChannel) -> None:
    await stack.start_worker()
    channel.start()

    # A stranger is told a code, once. Their words reach nobody.
    channel.platform.say("bo", "bo", "memory")
    told = await said(channel, "bo", "Your code is")
    (code,) = re.findall(r"`([A-Z]{8})`, for an hour", told)
    channel.platform.say("bo", "bo", "are you there?")

    # An owner lets them in, in a chat of their own.
    channel.platform.say("alice", "alice", f"/pair {code}")
    await said(channel, "alice", "`no name` (`bo`) may write from now on.")
    await said(channel, "bo", "You were let in")

    # Now they are answered, and what they wrote as a stranger was not read.
    channel.platform.say("bo", "bo", "hello")
    await said(channel, "bo", "RemoteClaw's demo agent")
    channel.platform.say("bo", "bo", "memory")
    assert "are you there?" not in await said(channel, "bo", "- hello")
    assert len(channel.texts("bo")) == 4


async def test_commands_are_answered_while_a_turn_runs(stack: Stack, channel: TestChannel) -> None:
    await stack.start_worker()
    channel.start()
    channel.platform.say("alice", "alice", "slow")

    async def is_running() -> bool:
        _, busy = await stack.fleet.sessions.busy(limit=1)
        return bool(busy and busy[0].turn)

    await eventually(is_running)
    channel.platform.say("alice", "alice", "/status")
    assert "Running for" in await said(channel, "alice", "Running")
    channel.platform.say("alice", "alice", "/stop")
    await said(channel, "alice", "topped")


async def test_of_two_processes_one_works_and_the_other_takes_over(
    stack: Stack, channel: TestChannel
) -> None:
    first = channel.start()
    await eventually(channel.pollers)
    second = channel.start()
    channel.platform.say("alice", "alice", "/whoami")
    await said(channel, "alice", "an owner")
    assert set(channel.pollers()) == {first.pid}

    first.terminate()
    assert first.wait() == 0

    await eventually(lambda: second.pid in channel.pollers())
    channel.platform.say("alice", "alice", "/status")
    await said(channel, "alice", "Idle.")
    assert len(channel.texts("alice")) == 2


async def test_a_copy_that_was_frozen_does_nothing(stack: Stack, channel: TestChannel) -> None:
    frozen = channel.start()
    await eventually(channel.pollers)
    frozen.send_signal(signal.SIGSTOP)
    other = channel.start()
    await eventually(lambda: other.pid in channel.pollers())
    channel.platform.say("alice", "alice", "/whoami")
    await said(channel, "alice", "an owner")
    polls = channel.pollers().count(frozen.pid)

    frozen.send_signal(signal.SIGCONT)  # its poll returns what the other one has taken in
    seen = "nothing more is read here: another adapter reads"
    await eventually(lambda: seen in channel.log_file.read_text())
    channel.platform.say("alice", "alice", "/status")
    await said(channel, "alice", "Idle.")

    assert channel.pollers().count(frozen.pid) == polls
    assert len(channel.texts("alice")) == 2


async def test_while_redis_is_away_the_platform_keeps_what_comes(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    await eventually(channel.pollers)
    stack.redis.kill()
    for number in range(3):
        channel.platform.say("alice", "alice", f"number {number}")

    stack.redis.start()
    channel.platform.say("alice", "alice", "memory")

    told = await said(channel, "alice", "- number 2")
    assert [line for line in told.splitlines() if "number" in line] == [
        f"- number {number}" for number in range(3)
    ]


async def test_what_can_not_be_read_is_put_aside_and_holds_nothing_up(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    channel.platform.say("alice", "alice", "secret words", problem="it has a form of its own")
    channel.platform.say("alice\n", "alice\n", "an id that is none")
    channel.platform.say("alice", "alice", "/whoami")

    await said(channel, "alice", "an owner")

    async def are_counted() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).aside == 2

    await eventually(are_counted)
    assert "is put aside: it has a form of its own" in channel.log_file.read_text()
    assert "secret words" not in channel.log_file.read_text()


async def test_a_group_is_let_in_as_a_whole_and_its_people_are_told_apart(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    channel.platform.say("g1", "bo", "hello")  # nobody has let the group in: silence
    channel.platform.say("g1", "alice", "hello")
    await said(channel, "g1", "This group was not let in: `/pair` here")
    channel.platform.say("g1", "alice", "/pair@the_bot")
    await said(channel, "g1", "Everybody in this group may write to me now")

    channel.platform.say("g1", "bo", "not for the bot", is_for_us=False)
    channel.platform.say("g1", "bo", "one", sender_name="Alice")
    channel.platform.say("g1", "alice", "memory", sender_name="Alice")

    told = await said(channel, "g1", "- one")
    assert "not for the bot" not in told
    (view,) = await stack.fleet.sessions.list(limit=9)
    assert view.key.conversation == "g1:*:_"
    assert len(channel.texts("g1")) == 4


HEARD = {"groups": {"g1": {"require_mention": False}}}


async def entries(stack: Stack, conversation: str) -> list[Entry]:
    """Return what has come for a conversation."""
    sessions = await stack.fleet.sessions.list(limit=9)
    (sid,) = [view.sid for view in sessions if view.key.conversation == conversation] or [""]
    found: Any = await stack.fleet.scripts.client.xrange(keys.inbound(sid))
    return [decode_entry(*entry) for entry in found]


async def test_in_a_group_that_is_heard_whole_nothing_is_a_command_but_what_is_said_to_the_agent(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(**HEARD)
    channel.start()
    among_people = ("hello", "stop", "/new@other_bot", "/help")
    for text in among_people:
        channel.platform.say("g1", "bo", text, is_for_us=False)
    channel.platform.say("g1", "bo", files={"a.mp3": "sound"}, text="", is_for_us=False)
    channel.platform.say("g1", "bo", "/new", files={"a.txt": "text"}, is_for_us=False)
    channel.platform.say("g1", "bo", "/whoami")
    await said(channel, "g1", "`bo`")

    found = await entries(stack, "g1:*:_")
    assert [entry.message.text for entry in found] == [*among_people, "/new"]
    assert {command_of(entry) for entry in found} == {None}
    assert len(channel.texts("g1")) == 1


async def test_an_entry_says_in_what_kind_of_chat_it_was_said_and_whether_to_the_agent(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(**HEARD)
    channel.start()
    channel.platform.say("g1", "bo", "one", is_for_us=False)
    channel.platform.say("g1", "bo", "two")
    channel.platform.say("g1", "bo", "three", thread="t")
    channel.platform.say("alice", "alice", "four")
    channel.platform.say("g2", "alice", "nobody has let the group in", is_for_us=False)
    channel.platform.say("alice", "alice", "/whoami")
    await said(channel, "alice", "an owner")

    def facts(entry: Entry) -> tuple[str, str | None, bool | None]:
        return entry.message.text, entry.message.chat_kind, entry.message.is_addressed

    assert [*map(facts, await entries(stack, "g1:*:_"))] == [
        ("one", "group", False),
        ("two", "group", True),
    ]
    assert [*map(facts, await entries(stack, "g1:*:t"))] == [("three", "thread", True)]
    assert [*map(facts, await entries(stack, "alice:alice:_"))] == [("four", "direct", True)]
    assert not channel.texts("g2")


async def test_a_bot_and_who_is_in_no_list_are_not_heard(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(allow=["carol"])
    channel.start()
    channel.platform.say("carol", "carol", "/whoami", is_bot=True)
    channel.platform.say("g1", "carol", "/whoami")
    channel.platform.say("carol", "carol", "/status")

    await said(channel, "carol", "Idle.")

    assert channel.texts("g1") == []
    assert len(channel.texts("carol")) == 1


async def test_files_come_in_and_one_that_is_too_large_is_refused_in_a_sentence(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(attachment_mb=1)
    await stack.start_worker()
    channel.start()
    files = {"plan.txt": "the plan", "large.txt": "x" * (1024 * 1024 + 1)}
    channel.platform.say("alice", "alice", "look", files=files)

    await said(channel, "alice", "The file large.txt was not taken: files have 1 MB at most here.")
    assert "plan.txt" in await said(channel, "alice", "demo agent")
    assert [event["name"] for event in channel.platform.did("fetched")] == ["plan.txt"]


async def test_a_file_whose_size_is_not_told_is_refused_when_it_is_there(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(attachment_mb=1)
    channel.start()
    files = {"large.txt": "x" * (1024 * 1024 + 1)}
    channel.platform.say("alice", "alice", "", files=files, has_sizes=False)

    await said(channel, "alice", "The file large.txt was not taken: files have 1 MB at most here.")


async def test_a_slow_file_holds_up_its_own_conversation_alone(
    stack: Stack, channel: TestChannel
) -> None:
    client: Any = stack.fleet.scripts.client
    channel.configure(allow=["carol"])
    channel.start()
    channel.platform.tell(stops="fetch before")
    channel.platform.say("alice", "alice", "look", files={"plan.txt": "the plan"})
    await eventually(lambda: channel.platform.did("held"))
    channel.platform.say("alice", "alice", "/status")
    channel.platform.say("carol", "carol", "/whoami")
    await said(channel, "carol", "carol")
    channel.platform.say("carol", "carol", "/status")  # it comes with another poll
    await said(channel, "carol", "Idle.")

    assert channel.texts("alice") == []
    assert await client.get(POSITION) is None

    channel.platform.tell()
    await said(channel, "alice", "Waiting for a worker; one more waits.")

    async def is_accepted() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).accepted == 4

    await eventually(is_accepted)
    assert len(channel.platform.did("fetched")) == 1
    assert len(channel.texts("carol")) == 2


async def test_what_is_written_in_a_group_under_its_new_id_is_heard_behind_the_change(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.fleet.pairings.add("test", "default", "g1", name="a group", by="alice")
    channel.platform.tell(stops="fetch before")
    channel.platform.say("g1", "alice", "look", files={"plan.txt": "the plan"})
    channel.platform.say("g1", "alice", "", moved_to="g2")
    channel.platform.say("g2", "bo", "/whoami")
    channel.start()
    await eventually(lambda: channel.platform.did("held"))
    channel.platform.tell()

    assert "in the chat `g1`" in await said(channel, "g2", "bo")


async def test_who_writes_without_end_is_told_once_and_heard_again_in_the_next_minute(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    for number in range(MOST + 3):
        channel.platform.say("alice", "alice", f"number {number}", at_ms=60_000 + number)
    channel.platform.say("bo", "alice", "/whoami", at_ms=60_000)  # in another chat she is heard
    channel.platform.say("alice", "alice", "/whoami", at_ms=120_000)
    await said(channel, "alice", "an owner")

    (told,) = [post for post in channel.platform.chat("alice") if "more than" in post.text]
    assert told.text.startswith(f"You have written more than {MOST} messages in a minute")
    quoted = {post.id: post.text for post in channel.platform.chat("alice")}[str(told.quotes)]
    assert quoted == f"number {MOST}"
    (session,) = await stack.fleet.sessions.list(limit=9)
    client: Any = stack.fleet.scripts.client
    assert await client.xlen(keys.inbound(session.key.sid)) == MOST


async def test_who_wrote_what_fails_here_is_told_and_others_go_on(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    channel.platform.say("alice", "alice", "secret words", files={"odd": ""})
    channel.platform.say("alice", "alice", "/whoami")

    await said(channel, "alice", "Your message was not taken: something failed here")
    await said(channel, "alice", "an owner")

    async def is_counted() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).aside == 1

    await eventually(is_counted)
    assert "ValueError" in channel.log_file.read_text()
    assert "secret words" not in channel.log_file.read_text()


async def test_what_comes_while_redis_is_full_is_taken_in_once_it_has_room(
    stack: Stack, channel: TestChannel
) -> None:
    client: Any = stack.fleet.scripts.client
    channel.start()
    await eventually(channel.pollers)
    used = (await client.info("memory"))["used_memory"]
    await client.config_set("maxmemory", int(used / 0.9))  # it takes nothing beyond 0.8
    channel.platform.say("alice", "alice", "/whoami")
    waits = "test/default takes nothing in for now"
    await eventually(lambda: waits in channel.log_file.read_text())
    await client.config_set("maxmemory", 0)

    await said(channel, "alice", "an owner")
    assert len(channel.texts("alice")) == 1
