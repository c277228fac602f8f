"""The history of a chat: the messages that passed through RemoteClaw."""

from typing import Any

from remoteclaw.config.model import RecordConfig
from remoteclaw.fleet import keys
from remoteclaw.fleet.replies.history import MAX_ENTRIES, MAX_TEXT_CHARS
from remoteclaw.messages import ChannelMessage
from tests.support.cli import run
from tests.support.stack import Stack, message

CHAT = keys.history("test", "default", "chat-1")

KEEP_MS = RecordConfig().history_ms


async def read(stack: Stack, thread: str | None = None, *, limit: int = 100) -> list[Any]:
    return await stack.fleet.history.read("test", "default", "chat-1", thread=thread, limit=limit)


async def add(stack: Stack, text: str, *, sid: str | None = None, **fields: Any) -> list[Any]:
    one = message("-", **fields)
    return await stack.fleet.history.add_message(
        one, text, (), once=one.id, sid=sid, keep_ms=KEEP_MS
    )


async def react(
    stack: Stack, reacting: ChannelMessage, emoji: str, *, sid: str = "s", change: Any = None
) -> None:
    await stack.fleet.history.add_reaction(
        reacting, emoji, change=change, once=reacting.id, sid=sid, keep_ms=KEEP_MS
    )


async def test_the_history_of_a_chat_is_bounded_and_expires(stack: Stack) -> None:
    for number in range(MAX_ENTRIES + 5):
        await add(stack, f"{number} " + "x" * 100_000)

    client: Any = stack.fleet.scripts.client
    found = await read(stack, limit=MAX_ENTRIES + 5)
    assert len(found) == await client.xlen(CHAT) == MAX_ENTRIES
    assert {len(one["text"]) for one in found} == {MAX_TEXT_CHARS}
    assert await client.memory_usage(CHAT) < 1.5 * MAX_ENTRIES * MAX_TEXT_CHARS
    assert 6 * 24 * 3600 < await client.ttl(CHAT) <= 7 * 24 * 3600


async def test_a_history_is_read_by_thread_or_as_a_whole(stack: Stack) -> None:
    await add(stack, "one", thread_id="5")
    await add(stack, "two", thread_id="6")
    await add(stack, "three", thread_id="5")

    assert [one["text"] for one in await read(stack, "5")] == ["one", "three"]
    assert [one["text"] for one in await read(stack)] == ["one", "two", "three"]
    assert [one["text"] for one in await read(stack, limit=2)] == ["two", "three"]


async def test_a_repeated_message_is_in_the_history_once(stack: Stack) -> None:
    await add(stack, "one", id="1")
    liked = message("-", id="2", reply_to_id="9")
    await react(stack, liked, "👍")
    first = await add(stack, "two", sid="s", id="3")
    await add(stack, "three", id="4")
    again = await add(stack, "two", sid="s", id="3")

    assert [one["text"] for one in await read(stack)] == ["one", "two", "three"]
    assert [one.emoji for one in first] == [one.emoji for one in again] == ["👍"]


async def test_reactions_are_passed_once_to_the_session_they_are_for(stack: Stack) -> None:
    await add(stack, "one", sid="s")
    for sid, by, emoji in (("s", "a", "👎"), ("s", "a", "👍"), ("s", "b", "🔥"), ("s", "b", "")):
        reacting = message("-", from_=by, reply_to_id="9")
        await react(stack, reacting, emoji, sid=sid)
    await react(stack, message("-", reply_to_id="9"), "🎉", sid="other")
    await add(stack, "another's", sid="other")

    passed = await add(stack, "two", sid="s")
    assert [(one.from_, one.emoji) for one in passed] == [("a", "👍")]
    assert await add(stack, "three", sid="s") == []


async def test_reactions_that_were_added_and_removed_one_by_one_are_added_up(stack: Stack) -> None:
    await add(stack, "one", sid="s", id="9")
    for change, by, emoji in (
        ("added", "a", "👍"),
        ("added", "a", "🔥"),
        ("added", "a", "🔥"),  # a platform that repeats it under another name
        ("added", "b", "🎉"),
        ("removed", "b", "🎉"),
        ("removed", "b", "🎉"),
        ("removed", "c", "😂"),  # added before the history begins
    ):
        await react(stack, message("-", from_=by, reply_to_id="9"), emoji, change=change)

    (shown,) = await read(stack)
    assert [(one["from"], one["emoji"]) for one in shown["reactions"]] == [("a", "👍🔥")]
    passed = await add(stack, "two", sid="s")
    assert [(one.from_, one.emoji) for one in passed] == [("a", "👍🔥")]

    await react(stack, message("-", from_="a", reply_to_id="9"), "👍", change="removed")

    passed = await add(stack, "three", sid="s")
    assert [(one.from_, one.emoji) for one in passed] == [("a", "🔥")]


async def test_a_history_is_forgotten_with_its_session(stack: Stack) -> None:
    accepted = await stack.fleet.inbound.append(message("hello"), agent="main")
    await add(stack, "hello")
    await add(stack, "lone \ud800 surrogate")
    assert len(await read(stack)) == 2

    assert run(stack, "sessions", "forget", accepted.session.sid).stdout == "It is gone.\n"

    assert await read(stack) == []
