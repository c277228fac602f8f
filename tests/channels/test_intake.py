"""Incoming messages of a channel: access, commands, groups, files, limits and failures."""

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, cast

import pytest

from remoteclaw.bridge.turn_prompt import build_turn_prompt
from remoteclaw.channels import arrival, intake, late, order
from remoteclaw.channels.handling import FAILED_OFTEN, MAX_OF_SENDER, TOO_SLOW
from remoteclaw.channels.intake import Intake
from remoteclaw.channels.rate import MAX_PER_MINUTE, RateLimiter
from remoteclaw.channels.report import InboundContext
from remoteclaw.clock import now_ms
from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.commands import command_of
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import Entry, SessionKey, Turn
from remoteclaw.protocols import ChannelProfile, Incoming, IncomingFile, PlatformAdapter, PollResult
from tests.support.channel import TestChannel, until_stored
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import eventually

CURSORS = keys.cursors("test", "default")


@pytest.fixture
async def channel(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestChannel]:
    channel = TestChannel.installed(monkeypatch, stack)
    yield channel
    channel.end()


def has_held(channel: TestChannel, count: int) -> bool:
    """Whether so many calls of the platform were held."""
    return len(channel.platform.did("held")) >= count


async def wait_for_reply(channel: TestChannel, chat: str, words: str) -> str:
    """Wait for a message of the bot in a chat that contains `words`; return its text."""

    def found() -> str | None:
        return next((text for text in channel.texts(chat) if words in text), None)

    return str(await eventually(found))


async def test_a_stranger_who_was_granted_access_is_answered(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()

    # A stranger gets a code once. Their messages reach no agent.
    channel.platform.say("bo", "bo", "memory")
    reply = await wait_for_reply(channel, "bo", "Your code is")
    (code,) = re.findall(r"`([A-Z]{8})`; it is valid for an hour", reply)
    channel.platform.say("bo", "bo", "are you there?")

    # An owner grants access, in the owner's own chat.
    channel.platform.say("alice", "alice", f"/pair {code}")
    await wait_for_reply(channel, "alice", "`no name` (`bo`) may write from now on.")
    await wait_for_reply(channel, "bo", "You have access now")

    # From then on the stranger is answered; their earlier messages were not read.
    channel.platform.say("bo", "bo", "hello")
    await wait_for_reply(channel, "bo", "RemoteClaw's demo agent")
    channel.platform.say("bo", "bo", "memory")
    assert "are you there?" not in await wait_for_reply(channel, "bo", "- hello")
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
    assert "Running for" in await wait_for_reply(channel, "alice", "Running")
    channel.platform.say("alice", "alice", "/stop")
    await wait_for_reply(channel, "alice", "topped")


async def test_a_stop_drops_the_rest_of_an_answer_that_is_being_delivered(
    stack: Stack, channel: TestChannel
) -> None:
    """The turn has ended, but its messages arrive one after the other."""
    await stack.start_worker()
    channel.start()
    channel.platform.tell(stops="replace after")
    channel.platform.say("alice", "alice", "long")
    await eventually(lambda: channel.platform.did("held"))
    (session,) = [view.key for view in await stack.fleet.sessions.list(limit=1)]

    async def has_ended() -> bool:
        view = await stack.fleet.sessions.view(session.sid)
        return bool(view and view.status == "idle")

    await eventually(has_ended)
    unsent = await stack.fleet.replies.unsent(session)
    channel.platform.say("alice", "alice", "/stop")
    await eventually(lambda: len(channel.platform.did("said")) == 2)

    async def is_stopped() -> bool:
        return bool(await stack.fleet.replies.waiting("test", "default") > unsent)

    await eventually(is_stopped)
    channel.platform.tell()

    await wait_for_reply(channel, "alice", f"not sent yet of my answer: {unsent} messages.")
    assert unsent > 2
    assert len(channel.texts("alice")) == 2, "the part that was being sent, and the reply to /stop"


async def test_a_second_channel_process_takes_over_when_the_first_ends(
    stack: Stack, channel: TestChannel
) -> None:
    first = channel.start()
    await eventually(channel.pollers)
    second = channel.start()
    channel.platform.say("alice", "alice", "/whoami")
    await wait_for_reply(channel, "alice", "an owner")
    assert set(channel.pollers()) == {first.pid}

    first.terminate()
    assert first.wait() == 0

    await eventually(lambda: second.pid in channel.pollers())
    channel.platform.say("alice", "alice", "/status")
    await wait_for_reply(channel, "alice", "Idle.")
    assert len(channel.texts("alice")) == 2


async def test_a_frozen_channel_process_does_nothing_after_another_took_over(
    stack: Stack, channel: TestChannel
) -> None:
    frozen = channel.start()
    await eventually(channel.pollers)
    frozen.send_signal(signal.SIGSTOP)
    other = channel.start()
    await eventually(lambda: other.pid in channel.pollers())
    channel.platform.say("alice", "alice", "/whoami")
    await wait_for_reply(channel, "alice", "an owner")
    polls = channel.pollers().count(frozen.pid)

    # Its poll returns messages that the other process has accepted.
    frozen.send_signal(signal.SIGCONT)
    notice = "stops reading messages: another adapter reads"
    await eventually(lambda: notice in channel.log_file.read_text())
    channel.platform.say("alice", "alice", "/status")
    await wait_for_reply(channel, "alice", "Idle.")

    assert channel.pollers().count(frozen.pid) == polls
    assert len(channel.texts("alice")) == 2


async def test_messages_written_while_redis_is_down_are_read_afterwards(
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

    reply = await wait_for_reply(channel, "alice", "- number 2")
    assert [line for line in reply.splitlines() if "number" in line] == [
        f"- number {number}" for number in range(3)
    ]


async def test_an_unreadable_message_is_set_aside_and_blocks_no_other(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    channel.platform.say("alice", "alice", "secret words", problem="it has a form of its own")
    channel.platform.say("alice\n", "alice\n", "an id that is none")
    channel.platform.say("alice", "alice", "/whoami")

    await wait_for_reply(channel, "alice", "an owner")

    async def are_counted() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).skipped == 2

    await eventually(are_counted)
    assert "is skipped: it has a form of its own" in channel.log_file.read_text()
    assert "secret words" not in channel.log_file.read_text()


async def test_a_group_gets_access_as_a_whole_and_has_one_session(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    channel.platform.say("g1", "bo", "hello")  # the group has no access yet: no answer
    channel.platform.say("g1", "alice", "hello")
    await wait_for_reply(channel, "g1", "This group has no access yet: `/pair` here")
    channel.platform.say("g1", "alice", "/pair@the_bot")
    await wait_for_reply(channel, "g1", "Everybody in this group may write to me now")

    channel.platform.say("g1", "bo", "not for the bot", is_for_us=False)
    channel.platform.say("g1", "bo", "one", sender_name="Alice")
    channel.platform.say("g1", "alice", "memory", sender_name="Alice")

    reply = await wait_for_reply(channel, "g1", "- one")
    assert "not for the bot" not in reply
    (view,) = await stack.fleet.sessions.list(limit=9)
    assert view.key.conversation == "g1:*:_"
    assert len(channel.texts("g1")) == 4


READ_IN_FULL = {"groups": {"g1": {"require_mention": False}}}


async def entries(stack: Stack, conversation: str) -> list[Entry]:
    """Return the accepted entries of a conversation."""
    sessions = await stack.fleet.sessions.list(limit=9)
    (sid,) = [view.sid for view in sessions if view.key.conversation == conversation] or [""]
    found: Any = await stack.fleet.scripts.client.xrange(keys.inbound(sid))
    return [decode_entry(*entry) for entry in found]


async def test_in_a_group_read_in_full_only_messages_to_the_agent_are_commands(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(**READ_IN_FULL)
    channel.start()
    among_people = ("hello", "stop", "/new@other_bot", "/help")
    for text in among_people:
        channel.platform.say("g1", "bo", text, is_for_us=False)
    channel.platform.say("g1", "bo", files={"a.mp3": "sound"}, text="", is_for_us=False)
    channel.platform.say("g1", "bo", "/new", files={"a.txt": "text"}, is_for_us=False)
    channel.platform.say("g1", "bo", "/whoami")
    await wait_for_reply(channel, "g1", "`bo`")

    found = await entries(stack, "g1:*:_")
    assert [entry.message.text for entry in found] == [*among_people, "/new"]
    assert {command_of(entry) for entry in found} == {None}
    assert len(channel.texts("g1")) == 1


async def test_an_entry_has_its_kind_of_chat_and_whether_it_addresses_the_agent(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(**READ_IN_FULL)
    channel.start()
    channel.platform.say("g1", "bo", "one", is_for_us=False)
    channel.platform.say("g1", "bo", "two")
    channel.platform.say("g1", "bo", "three", thread="t")
    channel.platform.say("alice", "alice", "four")
    channel.platform.say("g2", "alice", "nobody has let the group in", is_for_us=False)
    channel.platform.say("alice", "alice", "/whoami")
    await wait_for_reply(channel, "alice", "an owner")

    def facts(entry: Entry) -> tuple[str, str | None, bool | None]:
        return entry.message.text, entry.message.chat_kind, entry.message.is_addressed

    assert [*map(facts, await entries(stack, "g1:*:_"))] == [
        ("one", "group", False),
        ("two", "group", True),
    ]
    assert [*map(facts, await entries(stack, "g1:*:t"))] == [("three", "thread", True)]
    assert [*map(facts, await entries(stack, "alice:alice:_"))] == [("four", "direct", True)]
    assert not channel.texts("g2")


async def test_messages_of_bots_and_in_unlisted_groups_are_ignored(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(allow=["carol"])
    channel.start()
    channel.platform.say("carol", "carol", "/whoami", is_bot=True)
    channel.platform.say("g1", "carol", "/whoami")
    channel.platform.say("carol", "carol", "/status")

    await wait_for_reply(channel, "carol", "Idle.")

    assert channel.texts("g1") == []
    assert len(channel.texts("carol")) == 1


async def test_a_message_that_cannot_be_read_is_told_where_a_person_waits(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(**READ_IN_FULL)
    channel.start()
    problem = "it is of a kind that can't be read here (hologram)"
    channel.platform.say("alice", "alice", "", problem=problem)
    channel.platform.say("g1", "bo", "", problem=problem)
    channel.platform.say("g1", "bo", "", problem="it is overheard", is_for_us=False)
    channel.platform.say("bo", "bo", "", problem=problem)
    channel.platform.say("g1", "bo", "", left_out="a service message (new_chat_title)")
    channel.platform.say("alice", "alice", "/whoami")

    text = f"Your message was not read: {problem}. Send text, or a file."
    await wait_for_reply(channel, "alice", "an owner")
    await wait_for_reply(channel, "bo", "Your code is")
    await eventually(lambda: channel.texts("g1"))
    assert channel.texts("alice")[0] == text
    assert channel.texts("g1") == [text]
    log = channel.log_file.read_text()
    assert log.count("is skipped: it is overheard") == 1
    assert log.count("a report on test/default is left out: a service message") == 1

    async def is_counted() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).skipped == 4

    await eventually(is_counted)


async def test_a_message_that_gets_no_answer_is_logged_and_an_anonymous_sender_is_told(
    stack: Stack, channel: TestChannel
) -> None:
    """An owner who is an anonymous administrator would else wait for an answer to `/pair`."""
    channel.start()
    channel.platform.say("g1", "carol", "secret words", is_bot=True)
    channel.platform.say("g2", "carol", "secret words")
    channel.platform.say("g2", "carol", "secret words", is_for_us=False)
    for _ in range(2):
        channel.platform.say("g3", "anonymous", "/pair", is_anonymous=True)
    channel.platform.say("alice", "alice", "/whoami")

    await wait_for_reply(channel, "alice", "an owner")
    await wait_for_reply(channel, "g3", "you write anonymously")
    assert len(channel.texts("g3")) == 1
    assert channel.texts("g1") == channel.texts("g2") == []
    log = channel.log_file.read_text()
    assert log.count("a message in chat g1 of test/default is ignored: a bot wrote it") == 1
    assert log.count("a message in group g2 of test/default is ignored: the group has no") == 1
    assert "secret" not in log


async def test_files_are_received_and_one_that_is_too_large_is_refused(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(attachment_mb=1)
    await stack.start_worker()
    channel.start()
    files = {"plan.txt": "the plan", "large.txt": "x" * (1024 * 1024 + 1)}
    channel.platform.say("alice", "alice", "look", files=files)

    await wait_for_reply(
        channel, "alice", "The file large.txt was not taken: a file here may have at most 1 MB."
    )
    assert "plan.txt" in await wait_for_reply(channel, "alice", "demo agent")
    assert [event["name"] for event in channel.platform.did("fetched")] == ["plan.txt"]


async def test_a_quoted_file_is_received_like_the_messages_own(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(attachment_mb=1)
    channel.start()
    files = {"plan.txt": "the plan", "large.txt": "x" * (1024 * 1024 + 1)}
    channel.platform.say(
        "alice", "alice", "and this?", quoted="see", quoted_files=files, files={"own.txt": "own"}
    )

    await wait_for_reply(
        channel, "alice", "The file large.txt was not taken: a file here may have at most 1 MB."
    )
    (entry,) = await entries(stack, "alice:alice:_")
    assert entry.message.quoted == (
        "(It has the file large.txt, which is not at hand: a file here may have at most 1 MB.)\nsee"
    )
    attachments = entry.message.attachments
    assert [(one.name, one.is_quoted) for one in attachments] == [
        ("own.txt", False),
        ("plan.txt", True),
    ]
    prompt = build_turn_prompt(Turn(SessionKey.of(entry.message, agent="main"), (entry,)))
    assert prompt.count('"of":"the quoted message"') == 1


async def test_quoted_files_that_exceed_the_limit_of_a_message_do_not_cost_the_message(
    stack: Stack, channel: TestChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.start()
    files = {f"{number}.txt": "x" * 20_000_000 for number in range(3)}
    channel.platform.say("alice", "alice", "what is it?", quoted_files=files)

    await wait_for_reply(channel, "alice", "The file 2.txt was not taken: with the quoted files")
    (entry,) = await entries(stack, "alice:alice:_")
    assert [one.name for one in entry.message.attachments] == ["0.txt", "1.txt"]
    assert "2.txt" in (entry.message.quoted or "")


async def test_a_quoted_recording_is_transcribed_and_not_taken_for_the_senders_words(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(transcribe=["cat"])
    channel.start()
    channel.platform.say("alice", "alice", "is he right?", quoted_files={"a.mp3": "two is three"})
    channel.platform.say("alice", "alice", "/whoami")

    await wait_for_reply(channel, "alice", "an owner")
    (entry,) = await entries(stack, "alice:alice:_")
    first, quoted = entry.message.text.split("\n\n")
    assert first == "is he right?"
    assert quoted.startswith("(The quoted recording a.mp3:)\ntwo is three\n")
    assert len(channel.texts("alice")) == 1, "no echo"


async def test_a_quoted_message_that_the_platform_does_not_pass_on_comes_from_the_history(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    earlier = channel.platform.say("alice", "alice", "the plan", files={"plan.txt": "the plan"})
    channel.platform.say("alice", "alice", "what of it?", reply_to=earlier)
    channel.platform.say("alice", "alice", "and of that?", reply_to="older")
    channel.platform.say("alice", "alice", "/whoami")

    await wait_for_reply(channel, "alice", "an owner")
    _, known, unknown = await entries(stack, "alice:alice:_")
    assert known.message.quoted == (
        "(It has the file plan.txt, which is not at hand: it is not kept here any more.)\nthe plan"
    )
    assert (unknown.message.quoted or "").startswith("(This message is not known here")


async def test_a_large_file_of_unknown_size_is_refused_after_its_download(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(attachment_mb=1)
    channel.start()
    files = {"large.txt": "x" * (1024 * 1024 + 1)}
    channel.platform.say("alice", "alice", "", files=files, has_sizes=False)

    await wait_for_reply(
        channel, "alice", "The file large.txt was not taken: a file here may have at most 1 MB."
    )


async def test_a_slow_file_delays_only_its_own_conversation(
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
    await wait_for_reply(channel, "carol", "carol")
    channel.platform.say("carol", "carol", "/status")  # it arrives with another poll
    await wait_for_reply(channel, "carol", "Idle.")

    assert channel.texts("alice") == []
    assert await client.hlen(CURSORS)
    await until_stored(stack, 2)  # the file, and what is after it

    channel.platform.tell()
    await wait_for_reply(channel, "alice", "Waiting for a worker.")

    async def is_accepted() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).accepted == 4

    await eventually(is_accepted)
    assert len(channel.platform.did("fetched")) == 1
    assert len(channel.texts("carol")) == 2
    await until_stored(stack, 0)


async def test_a_slow_message_survives_a_crash_behind_the_cursor(
    stack: Stack, channel: TestChannel
) -> None:
    client: Any = stack.fleet.scripts.client
    process = channel.start()
    channel.platform.tell(stops="fetch before")
    channel.platform.say("alice", "alice", "look", files={"plan.txt": "the plan"})
    channel.platform.say("alice", "alice", "and then this")
    await until_stored(stack, 2)
    process.kill()
    process.wait()
    channel.platform.say("alice", "alice", "the third")
    channel.platform.tell()
    channel.start()
    session = SessionKey("main", "test", "default", "alice", "alice")

    async def entries() -> Any:
        found = await client.xrange(keys.inbound(session.sid))
        return found if len(found) >= 3 else None

    texts = [decode_entry(*each).message.text for each in await eventually(entries)]
    assert texts == ["look", "and then this", "the third"]
    await until_stored(stack, 0)


@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_a_file_with_which_three_processes_have_died_is_given_up(
    stack: Stack, channel: TestChannel, end: str
) -> None:
    """A process that was told to end has not died, and words behind the file kill nobody."""
    channel.platform.tell(stops="fetch before")
    channel.platform.say("alice", "alice", "look", files={"plan.txt": "the plan"})
    channel.platform.say("alice", "alice", "and then this")
    for count in (1, 2, 3):
        process = channel.start()
        await eventually(partial(has_held, channel, count))
        await until_stored(stack, 2)
        getattr(process, end)()
        process.wait()
    if end == "terminate":
        channel.platform.tell()
    channel.start()
    await until_stored(stack, 0)
    session = SessionKey("main", "test", "default", "alice", "alice")
    client: Any = stack.fleet.scripts.client
    accepted = await client.xrange(keys.inbound(session.sid))

    texts = [decode_entry(*each).message.text for each in accepted]
    assert texts == (["and then this"] if end == "kill" else ["look", "and then this"])
    assert channel.texts("alice") == ([FAILED_OFTEN] if end == "kill" else [])


@pytest.mark.parametrize("report", [{"replaces": "m1"}, {"deletes": "m1"}, {"moved_to": "g2"}])
async def test_a_report_behind_a_slow_file_holds_up_nobody_else(
    stack: Stack, channel: TestChannel, report: dict[str, str]
) -> None:
    """For example an edit of a message that is not for the agent."""
    channel.configure(allow=["carol"], groups={"team": {}})
    channel.platform.tell(stops="fetch before")
    channel.start()
    channel.platform.say("team", "alice", "look", files={"plan.txt": "the plan"})
    await until_stored(stack, 1)
    channel.platform.say("team", "bo", "see you", is_for_us=False, **report)
    channel.platform.say("carol", "carol", "/whoami")
    await wait_for_reply(channel, "carol", "carol")
    channel.platform.say("carol", "carol", "/status")  # it arrives with another poll
    await wait_for_reply(channel, "carol", "Idle.")


async def test_messages_under_a_groups_new_id_stay_in_order(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(groups={"g1": {}})
    channel.platform.tell(stops="fetch before")
    channel.start()
    channel.platform.say("g1", "alice", "look", files={"plan.txt": "the plan"})
    await until_stored(stack, 1)
    channel.platform.say("g1", "alice", "", is_for_us=False, moved_to="g2")
    channel.platform.say("g2", "alice", "and then this")
    await until_stored(stack, 2)
    channel.platform.tell()
    await until_stored(stack, 0)

    texts = [entry.message.text for entry in await entries(stack, "g1:*:_")]
    assert texts == ["look", "and then this"]


async def test_messages_that_arrive_together_with_a_pairing_have_access(
    stack: Stack, channel: TestChannel
) -> None:
    channel.platform.say("new", "alice", "/pair")
    channel.platform.say("new", "bo", "/whoami")
    channel.platform.say("new", "alice", "/status")
    channel.start()
    await wait_for_reply(channel, "new", "bo")
    await wait_for_reply(channel, "new", "Idle.")


async def test_files_of_one_person_fill_the_inbox_only_up_to_its_limit(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(allow=["carol"])
    channel.platform.tell(stops="fetch before")
    for number in range(MAX_OF_SENDER + 2):
        channel.platform.say("alice", "alice", f"file {number}", files={"a.txt": "a"})
    channel.start()
    await eventually(lambda: channel.texts("alice").count(TOO_SLOW) == 2)
    channel.platform.say("carol", "carol", "/status")
    await wait_for_reply(channel, "carol", "Idle.")


async def test_a_message_under_a_groups_new_id_is_read_after_the_change_of_id(
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

    assert "in the chat `g1`" in await wait_for_reply(channel, "g2", "bo")


async def test_a_sender_over_the_rate_limit_is_told_once_and_read_again_a_minute_later(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    for number in range(MAX_PER_MINUTE + 3):
        channel.platform.say("alice", "alice", f"number {number}", at_ms=60_000 + number)
    channel.platform.say("bo", "alice", "/whoami", at_ms=60_000)  # another chat has its own limit
    channel.platform.say("alice", "alice", "/whoami", at_ms=120_000)
    await wait_for_reply(channel, "alice", "an owner")

    (notice,) = [post for post in channel.platform.chat("alice") if "more than" in post.text]
    assert notice.text.startswith(
        f"You have written more than {MAX_PER_MINUTE} messages in a minute"
    )
    quoted = {post.id: post.text for post in channel.platform.chat("alice")}[str(notice.quotes)]
    assert quoted == f"number {MAX_PER_MINUTE}"
    (session,) = await stack.fleet.sessions.list(limit=9)
    client: Any = stack.fleet.scripts.client
    assert await client.xlen(keys.inbound(session.key.sid)) == MAX_PER_MINUTE


async def test_a_message_that_fails_here_is_reported_to_its_sender_and_blocks_no_other(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    channel.platform.say("alice", "alice", "secret words", files={"odd": ""})
    channel.platform.say("alice", "alice", "/whoami")

    await wait_for_reply(channel, "alice", "Your message was not taken: something failed here")
    await wait_for_reply(channel, "alice", "an owner")

    async def is_counted() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).skipped == 1

    await eventually(is_counted)
    assert "ValueError" in channel.log_file.read_text()
    assert "secret words" not in channel.log_file.read_text()


async def test_a_message_written_while_redis_is_full_is_accepted_once_it_has_room(
    stack: Stack, channel: TestChannel
) -> None:
    client: Any = stack.fleet.scripts.client
    channel.start()
    await eventually(channel.pollers)
    used = (await client.info("memory"))["used_memory"]
    await client.config_set("maxmemory", int(used / 0.9))  # it refuses messages above 0.8
    channel.platform.say("alice", "alice", "/whoami")
    notice = "test/default can't store messages for now"
    await eventually(lambda: notice in channel.log_file.read_text())
    await client.config_set("maxmemory", 0)

    await wait_for_reply(channel, "alice", "an owner")
    assert len(channel.texts("alice")) == 1


async def test_a_step_that_never_ends_holds_up_its_chat_for_a_limited_time(
    stack: Stack,
    channel: TestChannel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log says who waits for what, and the sender is told."""

    async def is_told() -> bool:
        replies = await stack.fleet.scripts.client.xrange(REPLIES)
        return "Your message was not taken" in str(replies)

    monkeypatch.setattr(order, "LONG_S", 0.2)
    monkeypatch.setattr(arrival, "ADMIT_S", 1.0)
    async with Pushing.running(stack) as pushing:
        pushing.push(message("1", files=(FILE,)), message("2", text="hello"))
        (view,) = await eventually(lambda: stack.fleet.sessions.list(limit=2))
        await eventually(is_told)

    assert view.waiting == 1
    assert "TimeoutError" in caplog.text
    assert "the message 2 in chat alice waits for 1, which is at" in caplog.text
    assert caplog.text.count("waits for 1, which is at") == 1
    assert "channels/files.py" in caplog.text


async def test_reports_are_acknowledged_once_they_are_stored(
    stack: Stack, channel: TestChannel
) -> None:
    """While Redis is away, nothing is acknowledged, and a slow file delays no acknowledgement."""
    client: Any = stack.fleet.scripts.client
    async with Pushing.running(stack) as pushing:
        await eventually(lambda: pushing.polled)
        stack.redis.kill()
        reports = message("1", files=(FILE,)), message("2", text="hello")
        pushing.push(*reports)
        await eventually(lambda: pushing.is_taken)
        assert pushing.acknowledged == []
        stack.redis.start()
        pushing.push(*reports)  # the platform repeats them
        await eventually(lambda: pushing.acknowledged)
        assert await client.hlen(keys.inbox("test", "default")) == 2
        pushing.push(message("3", text="hello"))
        await eventually(lambda: len(pushing.acknowledged) == 2)

    assert pushing.acknowledged == [["1", "2"], ["3"]]


async def test_half_of_a_character_that_json_can_have_holds_up_nobody(
    stack: Stack, channel: TestChannel
) -> None:
    """A platform passes on what a client of a stranger has sent."""
    half = "\ud83d"
    async with Pushing.running(stack) as pushing:
        group = {"chat": f"g{half}", "is_group": True}
        pushing.push(message("1", text=f"one {half}", sender_name=half), message(f"2{half}"))
        pushing.push(message("3", text=half, **group), message("4", text="last"))
        await eventually(lambda: are_handled(stack, accepted=4, skipped=0))

    assert len(pushing.acknowledged) == 2
    found = await entries(stack, "alice:alice:_")
    assert [entry.message.text for entry in found] == ["one ?", "last"]


async def test_a_report_with_ids_that_nobody_can_have_holds_up_no_other(
    stack: Stack, channel: TestChannel, caplog: pytest.LogCaptureFixture
) -> None:
    ids = ("", "\0", "x" * 5000, "a\nb")
    async with Pushing.running(stack) as pushing:
        for number, id_ in enumerate(ids):
            pushing.push(message(f"{number}", chat=id_, sender=id_ or "x", text="odd"))
            pushing.push(message(id_, thread=id_, text="odd", within=(id_,), reply_to=id_))
        pushing.push(message("last", text="hello"))
        await eventually(lambda: are_handled(stack, accepted=1, skipped=2 * len(ids)))

    assert [entry.message.text for entry in await entries(stack, "alice:alice:_")] == ["hello"]


async def test_a_report_that_its_adapter_made_wrong_is_skipped_with_its_field(
    stack: Stack, channel: TestChannel, caplog: pytest.LogCaptureFixture
) -> None:
    odd: Any = None
    async with Pushing.running(stack) as pushing:
        pushing.push(message("1", text=odd), message("2", text="two", sender=cast(Any, 7)))
        pushing.push(message("3", text="three"))
        await eventually(lambda: are_handled(stack, accepted=1, skipped=0))

    assert [entry.message.text for entry in await entries(stack, "alice:alice:_")] == ["three"]
    assert caplog.text.count("a report on test/default is skipped: its adapter made it wrong") == 2
    assert "('sender',)" in caplog.text


async def test_an_account_says_that_no_messages_arrive(stack: Stack, channel: TestChannel) -> None:
    channel.platform.tell(breaks=True)
    channel.start()

    async def problem(expected: str) -> bool:
        return (await stack.fleet.accounts.view("test", "default")).problem == expected

    channel.platform.tell()
    await eventually(channel.pollers)
    channel.platform.say("alice", "alice", "/whoami")
    await wait_for_reply(channel, "alice", "an owner")
    channel.platform.tell(breaks=True)
    channel.platform.say("alice", "alice", "hello")
    await eventually(lambda: problem("The platform is away."))
    channel.platform.tell()
    channel.platform.say("alice", "alice", "again")  # ends the poll, which waits for half a minute
    await eventually(lambda: problem(""))


async def test_a_failed_acknowledgement_is_logged_and_costs_nothing(
    stack: Stack, channel: TestChannel, caplog: pytest.LogCaptureFixture
) -> None:
    async with Pushing.running(stack) as pushing:
        pushing.problem = OSError("as no adapter should")
        pushing.push(message("1", text="one"))
        await eventually(lambda: "reports were not acknowledged" in caplog.text)
        pushing.problem = None
        pushing.push(message("2", text="two"))
        await eventually(lambda: are_handled(stack, accepted=2, skipped=0))

    assert [entry.message.text for entry in await entries(stack, "alice:alice:_")] == ["one", "two"]


async def test_a_cursor_that_only_grows_never_goes_back(
    stack: Stack, channel: TestChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources have cursors of their own; one that is gone is forgotten."""
    monkeypatch.setattr(intake, "profile_of", lambda _: ChannelProfile(cursors_grow=True))
    client: Any = stack.fleet.scripts.client

    async def stored(expected: dict[bytes, bytes]) -> None:
        async def are() -> bool:
            return bool(await client.hgetall(CURSORS) == expected)

        await eventually(are)

    async with Pushing.running(stack) as pushing:
        pushing.push(cursors={"one": "99", "two": "5"})
        await stored({b"one": b"99", b"two": b"5"})
        pushing.push(cursors={"one": "100", "two": "4"})
        await stored({b"one": b"100", b"two": b"5"})
        pushing.push(cursors={"one": "9007199254740993", "two": None})
        await stored({b"one": b"9007199254740993"})
        pushing.push(cursors={"one": "9007199254740992"})
        pushing.push(cursors={"three": "1"})
        await stored({b"one": b"9007199254740993", b"three": b"1"})

    assert pushing.polled[-1] == {"one": "9007199254740993", "three": "1"}


async def test_messages_that_are_too_old_are_not_answered_and_their_chat_is_told_once(
    stack: Stack, channel: TestChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is silent, and opens no thread. Messages without access are not counted."""
    monkeypatch.setattr(late, "profile_of", lambda _: ChannelProfile(reads_history=True))
    monkeypatch.setattr(late, "QUIET_S", 0.3)
    channel.configure(groups={"team": {}}, threads="auto", catch_up_h=2)
    hour, now = 3_600_000, now_ms()
    old = {"at_ms": now - 3 * hour}
    async with Pushing.running(stack) as pushing:
        pushing.push(*(message(f"{n}", text=f"old {n}", **old) for n in range(3)))
        pushing.push(message("4", text="/new", **old), message("5", text="now", at_ms=now - hour))
        team = {"chat": "team", "is_group": True}
        pushing.push(*(message(f"6{n}", text="in a group", **team, **old) for n in range(2)))
        pushing.push(message("7", text="a stranger's", sender="bo", chat="bo", **old))
        pushing.push(message("8", text="again", replaces="1", **old))
        await eventually(lambda: are_handled(stack, accepted=1, skipped=8))
        await eventually(lambda: not_told(stack))
    async with channel.platform.served(stack.fleet):
        await wait_for_reply(channel, "alice", "I was away")
        await wait_for_reply(channel, "team", "I was away")

    (line,) = channel.texts("alice")
    assert line.startswith("I was away, so 4 messages from ")
    assert line.endswith(" were not answered: send again what still matters.")
    (of_team,) = channel.platform.chat("team")
    assert of_team.text.startswith("I was away, so 2 messages from ")
    assert of_team.thread is None
    assert channel.texts("bo") == []
    assert [entry.message.text for entry in await entries(stack, "alice:alice:_")] == ["now"]
    known = await stack.fleet.history.read("test", "default", "alice", thread=None, limit=9)
    assert "old 2" in [each["text"] for each in known]


async def test_messages_that_a_lost_fleet_may_have_answered_are_not_answered_after_a_restore(
    stack: Stack, channel: TestChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "profile_of", lambda _: ChannelProfile(reads_history=True))
    await stack.fleet.restores.go()
    async with Pushing.running(stack) as pushing:
        pushing.push(message("1", text="old", at_ms=now_ms() - 60_000))
        pushing.push(message("2", text="new", at_ms=now_ms() + 1000))
        await eventually(lambda: are_handled(stack, accepted=1, skipped=1))

    assert [entry.message.text for entry in await entries(stack, "alice:alice:_")] == ["new"]
    assert not await not_told(stack)


async def are_handled(stack: Stack, *, accepted: int, skipped: int) -> bool:
    """Whether so many reports were handled."""
    view = await stack.fleet.accounts.view("test", "default")
    return (view.accepted, view.skipped) == (accepted, skipped)


async def not_told(stack: Stack) -> bool:
    """Whether no chat has late messages of which it was not told."""
    return not await stack.fleet.scripts.client.exists(keys.late_messages("test", "default"))


class Pushing:
    """An adapter of a platform that pushes reports and waits for their acknowledgement."""

    def __init__(self) -> None:
        self.acknowledged: list[list[str]] = []
        self.polled: list[Mapping[str, str]] = []
        self.problem: Exception | None = None
        """The error of the next acknowledgements."""
        self._pushed: asyncio.Queue[PollResult] = asyncio.Queue()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, stack: Stack) -> AsyncIterator["Pushing"]:
        """Run the intake of an account with such an adapter."""
        reader = stack.fleet.replies.reader("test", "default", token="mine", claim_ms=60_000)
        assert await reader.claim()
        context = InboundContext(
            fleet=stack.fleet,
            home=stack.home,
            config=CurrentConfig(stack.home, load_config(stack.home.config_file)),
            provider="test",
            account="default",
            rate=RateLimiter(),
        )
        pushing = cls()
        intake = Intake(context, reader, cast(PlatformAdapter, pushing))
        task = asyncio.create_task(intake.run())
        try:
            yield pushing
        finally:
            task.cancel()
            await asyncio.wait((task,))
            await stack.fleet.accounts.leave(reader)

    def push(self, *reports: Incoming, cursors: Mapping[str, str | None] | None = None) -> None:
        async def acknowledge() -> None:
            if self.problem:
                raise self.problem
            self.acknowledged.append([report.id for report in reports])

        self._pushed.put_nowait(PollResult(reports, cursors or {}, acknowledge))

    @property
    def is_taken(self) -> bool:
        """Whether all reports were returned by a poll."""
        return self._pushed.empty()

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        self.polled.append(dict(cursors))
        return await self._pushed.get()

    async def fetch(self, file: IncomingFile) -> bytes:
        return await asyncio.Future()


FILE = IncomingFile("1", "plan.txt", "text/plain")


def message(message_id: str, **fields: Any) -> Incoming:
    known = {"chat": "alice", "sender": "alice", "at_ms": now_ms(), **fields}
    return Incoming(id=message_id, **known)
