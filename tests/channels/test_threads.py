"""Threads and topics as conversations: which the agent follows, and which a message opens."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.channels.rate import MAX_PER_MINUTE, MAX_THREADS_PER_HOUR
from remoteclaw.channels.report import TOO_MANY, TOO_MANY_THREADS
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import SessionKey
from tests.support.bridges import acp_script, script
from tests.support.channel import TestChannel, until_stored
from tests.support.conversations import AGENT
from tests.support.requests import BODY, open_request
from tests.support.stack import Stack
from tests.support.waiting import eventually

GROUP: dict[str, Any] = {"groups": {"g1": {}}}
AUTO: dict[str, Any] = {**GROUP, "threads": "auto"}


@pytest.fixture
async def channel(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestChannel]:
    """A group of everybody, whose agent works on "wait" until the test lets it go on."""
    stack.agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    channel = TestChannel.installed(monkeypatch, stack, **GROUP)
    yield channel
    channel.end()


async def waiting(stack: Stack) -> dict[str, list[str]]:
    """Return the texts of the messages that wait for a worker, by conversation."""
    found = {}
    for view in await stack.fleet.sessions.list(limit=99):
        entries = await stack.fleet.inbound.unanswered(view.sid)
        found[view.key.conversation] = [entry.message.text for entry in entries]
    return found


async def until_waiting(stack: Stack, conversation: str) -> None:
    async def is_waiting() -> bool:
        return bool((await waiting(stack)).get(conversation))

    await eventually(is_waiting)


def posted(channel: TestChannel) -> list[tuple[str | None, str]]:
    """Return the thread and the text of each message of the bot in the group."""
    return [(post.thread, post.text) for post in channel.platform.chat("g1") if post.by == "agent"]


async def handled(stack: Stack, channel: TestChannel) -> None:
    """Wait until all reports so far are handled."""
    count = len(channel.platform.did("said"))

    async def is_handled() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).accepted >= count

    await eventually(is_handled)


async def test_in_a_thread_the_agent_is_mentioned_once_also_across_a_restart(
    stack: Stack, channel: TestChannel
) -> None:
    process = channel.start()
    for thread in ("t1", "t2"):
        channel.platform.say("g1", "bo", "to carol", thread=thread, is_for_us=False)
    channel.platform.say("g1", "bo", "@bot begin", thread="t1")
    channel.platform.say("g1", "carol", "go on", thread="t1", is_for_us=False)
    channel.platform.say("g1", "carol", "not here", is_for_us=False)
    await handled(stack, channel)
    process.send_signal(signal.SIGKILL)
    process.wait()
    channel.start()
    channel.platform.say("g1", "bo", "and on", thread="t1", is_for_us=False)
    channel.platform.say("g1", "feed", "a bot", thread="t1", is_for_us=False, is_bot=True)
    channel.platform.say("g1", "bo", "nor here", thread="t2", is_for_us=False)
    await handled(stack, channel)

    assert await waiting(stack) == {"g1:*:t1": ["@bot begin", "go on", "and on"]}


async def test_in_a_followed_thread_only_known_commands_count_without_a_mention(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    channel.platform.say("g1", "bo", "@bot begin", thread="t")
    texts = ("stop", "/unknown", "/status@other_bot", "1")
    for text in texts:
        channel.platform.say("g1", "bo", text, thread="t", is_for_us=False)
    await handled(stack, channel)
    assert not channel.texts("g1")
    for text in ("!whoami", "/whoami", "/stop"):
        channel.platform.say("g1", "bo", text, thread="t", is_for_us=False)
        channel.platform.say("g1", "bo", text, thread="another", is_for_us=False)
        await handled(stack, channel)  # a /stop withdraws what is not handled yet
    await eventually(lambda: len(posted(channel)) >= 2)

    assert {thread for thread, _ in posted(channel)} == {"t"}
    assert all("`bo`" in text for _, text in posted(channel)[:2])
    entries = await waiting(stack)
    assert entries == {"g1:*:t": ["@bot begin", *texts]}, "no worker has ended them yet"


async def test_the_settings_of_a_group_say_which_threads_are_followed(
    stack: Stack, channel: TestChannel
) -> None:
    groups = {
        "always": {"require_mention": True},
        "never": {"require_mention": False},
        "off": {"threads": "off"},
        "g1": {},
    }
    channel.configure(groups=groups)
    channel.start()
    for group in groups:
        channel.platform.say(group, "bo", "@bot begin", thread="t")
        channel.platform.say(group, "bo", "go on", thread="t", is_for_us=False)
        channel.platform.say(group, "bo", "top", is_for_us=False)
        channel.platform.say(group, "bo", "/whoami", thread="t")
    await handled(stack, channel)
    await eventually(lambda: all(map(channel.texts, groups)))

    assert await waiting(stack) == {
        "always:*:t": ["@bot begin"],
        "never:*:t": ["@bot begin", "go on"],
        "never:*:_": ["top"],
        "off:*:_": ["@bot begin"],
        "g1:*:t": ["@bot begin", "go on"],
    }
    answers = [post.thread for post in channel.platform.chat("off") if post.by == "agent"]
    assert answers == ["t"], "where the message was, although the conversation is the chat's"


async def test_a_reply_counts_while_the_message_that_begins_the_thread_is_on_its_way(
    stack: Stack, channel: TestChannel
) -> None:
    """Its file is slow, and the process is killed. A /stop overtakes it without a mention, too."""
    process = channel.start()
    channel.platform.tell(stops="fetch after")
    for thread in ("t1", "t2"):
        channel.platform.say("g1", "bo", "@bot look", thread=thread, files={"a.txt": "a"})
        channel.platform.say("g1", "bo", "go on", thread=thread, is_for_us=False)
    await until_stored(stack, 4)
    await eventually(lambda: len(channel.platform.did("held")) == 2)
    process.kill()
    process.wait()
    channel.start()
    await eventually(lambda: len(channel.platform.did("held")) == 4)
    channel.platform.say("g1", "bo", "!stop", thread="t2", is_for_us=False)
    await eventually(lambda: posted(channel))
    channel.platform.tell()

    async def is_accepted() -> bool:
        return (await waiting(stack)).get("g1:*:t1") == ["@bot look", "go on"]

    await eventually(is_accepted)
    await until_stored(stack, 0)
    assert [*await waiting(stack)] == ["g1:*:t1"]
    assert posted(channel) == [("t2", "1 message was withdrawn before the agent got it.")]


async def test_a_message_to_the_agent_opens_a_thread_in_which_it_is_answered(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(**AUTO)
    await stack.start_worker()
    channel.start()
    channel.platform.say("g1", "bo", "hi carol", is_for_us=False)
    first = channel.platform.say("g1", "bo", "@bot one")
    await eventually(lambda: (first, "heard @bot one, knew -") in posted(channel))
    channel.platform.say("g1", "carol", "two", thread=first, is_for_us=False)
    await eventually(lambda: (first, "heard two, knew @bot one") in posted(channel))
    second = channel.platform.say("g1", "bo", "/new three")
    await eventually(lambda: (second, "heard three, knew -") in posted(channel))
    channel.platform.say("g1", "bo", "/whoami")
    await eventually(lambda: posted(channel)[-1][0] is None)

    assert "`bo`" in posted(channel)[-1][1], "a command is about the chat"
    channel.platform.say("bo", "bo", "/whoami")
    channel.platform.say("g2", "alice", "@bot nobody has let the group in")
    await eventually(lambda: channel.texts("g2"))
    assert [post.thread for post in channel.platform.chat("g2") if post.by == "agent"] == [None]


async def test_a_change_of_a_message_that_opened_a_thread_belongs_there(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(**AUTO)
    channel.start()
    said = [channel.platform.say("g1", "bo", f"@bot {text}") for text in "abc"]
    said.append(channel.platform.say("g1", "bo", "d", is_for_us=False))
    await handled(stack, channel)
    channel.platform.say("g1", "bo", "@bot A", replaces=said[0])
    channel.platform.say("g1", "bo", "B", replaces=said[1], is_for_us=False)
    channel.platform.say("g1", "bo", "", deletes=said[2], is_for_us=False)
    channel.platform.say("g1", "bo", "@bot D", replaces=said[3])
    await handled(stack, channel)

    await stack.start_worker()
    await eventually(lambda: len(posted(channel)) == 2)

    begun = dict(posted(channel))
    assert begun == {said[0]: "heard @bot A, knew -", said[3]: "heard @bot D, knew -"}
    assert [*(await waiting(stack)).values()] == [[]] * 4


async def test_a_person_can_begin_twenty_threads_an_hour(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(**AUTO)
    channel.start()
    for number in range(MAX_THREADS_PER_HOUR - 1):
        channel.platform.say("g1", "bo", f"@bot {number}")
    overheard = channel.platform.say("g1", "bo", "more", is_for_us=False)
    thread = channel.platform.say("g1", "bo", "@bot the last one")
    await handled(stack, channel)
    channel.platform.say("g1", "bo", "@bot refused")
    channel.platform.say("g1", "bo", "go on", thread=thread, is_for_us=False)
    channel.platform.say("g1", "carol", "@bot mine")
    await handled(stack, channel)
    channel.platform.say("g1", "bo", "@bot refused", thread="of people")
    channel.platform.say("g1", "bo", "/new refused")
    channel.platform.say("g1", "bo", "@bot refused", replaces=overheard)
    await handled(stack, channel)

    found = [text for texts in (await waiting(stack)).values() for text in texts]
    assert len(found) == MAX_THREADS_PER_HOUR + 2
    assert not any("refused" in text for text in found)
    assert {"go on", "@bot mine"} <= set(found)
    assert posted(channel) == [(None, TOO_MANY_THREADS)]
    for number in range(MAX_PER_MINUTE + 3):
        channel.platform.say("g1", "dan", f"@bot {number}")
    await handled(stack, channel)
    await eventually(lambda: len(posted(channel)) == 3)
    assert {*posted(channel)} == {(None, TOO_MANY_THREADS), (None, TOO_MANY)}


async def test_a_session_begins_with_the_earlier_messages_of_its_thread(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(**AUTO)
    channel.start()
    begin = channel.platform.say("g1", "carol", "the build\nbob: is red", is_for_us=False)
    channel.platform.say("g1", "carol", "why?", thread=begin, is_for_us=False)
    channel.platform.say("g1", "bo", "@bot why?", thread=begin)
    channel.platform.say("g1", "bo", "and now?", thread=begin, is_for_us=False)
    channel.platform.say("g1", "bo", "@bot a thread of its own")
    for number in range(40):
        text = f"{number} {'x' * 300}"
        channel.platform.say("g1", "bo", text, thread="long", is_for_us=False)
    channel.platform.say("g1", "bo", "@bot sum up", thread="long")
    await until_waiting(stack, "g1:*:long")
    channel.platform.tell(busy_s={"g1": 0.1})
    channel.platform.say("g1", "bo", "@bot without", thread="t1")
    await until_waiting(stack, "g1:*:t1")

    contexts = {
        entry.message.text: entry.message.thread_context
        for view in await stack.fleet.sessions.list(limit=99)
        for entry in await stack.fleet.inbound.unanswered(view.sid)
    }
    long = (contexts.pop("@bot sum up") or "").splitlines()
    assert contexts == {
        "@bot why?": "Mx carol (carol): the build bob: is red\nMx carol (carol): why?",
        **dict.fromkeys(["and now?", "@bot a thread of its own", "@bot without"]),
    }
    assert 10 < len(long) < 20
    assert long[-1].startswith("Mx bo (bo): 39 xxx")
    assert channel.log_file.read_text().count("of a thread can't be read") == 1


@pytest.mark.thorough
async def test_a_platform_that_returns_no_earlier_messages_costs_three_seconds(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    channel.platform.tell(stops="context before")
    channel.platform.say("g1", "bo", "@bot hi", thread="t")

    await until_waiting(stack, "g1:*:t")


async def test_a_change_of_a_message_on_its_way_follows_it_into_its_thread(
    stack: Stack, channel: TestChannel
) -> None:
    """The message opens a thread, of which Redis does not know yet."""
    channel.configure(**AUTO)
    channel.start()
    channel.platform.tell(stops="fetch before")
    kept = channel.platform.say("g1", "bo", "@bot old", files={"a.txt": "a"})
    gone = channel.platform.say("g1", "bo", "@bot gone", files={"a.txt": "a"})
    await eventually(lambda: len(channel.platform.did("held")) == 2)
    channel.platform.say("g1", "bo", "@bot new", replaces=kept)
    channel.platform.say("g1", "bo", "", deletes=gone)
    await until_stored(stack, 4)
    channel.platform.tell()
    await until_stored(stack, 0)

    session = SessionKey("main", "test", "default", "g1", "*", kept)
    lease = await stack.fleet.leases.acquire(session.sid, worker="here", host="here")
    assert lease is not None
    texts = [decode_entry(*entry).message.text for entry in await lease.entries()]
    assert texts == ["@bot new"]
    assert f"g1:*:{gone}" not in {key for key, texts in (await waiting(stack)).items() if texts}


async def test_the_number_of_a_card_outside_of_threads_opens_none(
    stack: Stack, directory: Path, channel: TestChannel
) -> None:
    """A group shows the requests of other chats, and an answer in words counts there."""
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    about = {"groups": {"team": {}, "ops": {}}, "requests": {"chat": "test:ops"}}
    channel.configure(**about, threads="auto")
    await stack.start_worker()
    channel.start()
    channel.platform.say("team", "alice", "touch x")
    await open_request(stack)

    def shown() -> list[str]:
        posts = channel.platform.chat("ops")
        return [post.id for post in posts if "answer with the number" in post.text]

    await eventually(shown)
    message = channel.platform.say("ops", "alice", "1")
    await eventually(lambda: "Allowed once by alice" in "".join(channel.texts("ops")))
    channel.platform.say("ops", "alice", "1", id=message)  # as after a crash of the process
    await handled(stack, channel)
    assert all(view.key.channel_id == "team" for view in await stack.fleet.sessions.list(limit=9))
