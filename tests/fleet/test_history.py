"""What passed through RemoteClaw in a chat, as it is kept."""

from typing import Any

from remoteclaw.config.model import RecordConfig
from remoteclaw.fleet import keys
from remoteclaw.fleet.history import LONGEST, MOST
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


async def test_it_is_bounded_and_ends_by_itself(stack: Stack) -> None:
    for number in range(MOST + 5):
        await add(stack, f"{number} " + "x" * 100_000)

    client: Any = stack.fleet.scripts.client
    found = await read(stack, limit=MOST + 5)
    assert len(found) == await client.xlen(CHAT) == MOST
    assert {len(one["text"]) for one in found} == {LONGEST}
    assert await client.memory_usage(CHAT) < 1.5 * MOST * LONGEST
    assert 6 * 24 * 3600 < await client.ttl(CHAT) <= 7 * 24 * 3600


async def test_each_thread_is_read_by_itself_and_the_chat_as_a_whole(stack: Stack) -> None:
    await add(stack, "one", thread_id="5")
    await add(stack, "two", thread_id="6")
    await add(stack, "three", thread_id="5")

    assert [one["text"] for one in await read(stack, "5")] == ["one", "three"]
    assert [one["text"] for one in await read(stack)] == ["one", "two", "three"]
    assert [one["text"] for one in await read(stack, limit=2)] == ["two", "three"]


async def test_what_is_taken_in_twice_has_passed_once(stack: Stack) -> None:
    await add(stack, "one", id="1")
    liked = message("-", id="2", reply_to_id="9")
    await stack.fleet.history.add_reaction(liked, "👍", once="2", sid="s", keep_ms=KEEP_MS)
    first = await add(stack, "two", sid="s", id="3")
    await add(stack, "three", id="4")
    again = await add(stack, "two", sid="s", id="3")

    assert [one["text"] for one in await read(stack)] == ["one", "two", "three"]
    assert [one.emoji for one in first] == [one.emoji for one in again] == ["👍"]


async def test_reactions_are_told_to_the_session_that_they_are_for_and_once(stack: Stack) -> None:
    history = stack.fleet.history
    await add(stack, "one", sid="s")
    for sid, by, emoji in (("s", "a", "👎"), ("s", "a", "👍"), ("s", "b", "🔥"), ("s", "b", "")):
        by_one = message("-", from_=by, reply_to_id="9")
        await history.add_reaction(by_one, emoji, once=by_one.id, sid=sid, keep_ms=KEEP_MS)
    other = message("-", reply_to_id="9")
    await history.add_reaction(other, "🎉", once=other.id, sid="other", keep_ms=KEEP_MS)
    await add(stack, "another's", sid="other")

    told = await add(stack, "two", sid="s")
    assert [(one.from_, one.emoji) for one in told] == [("a", "👍")]
    assert await add(stack, "three", sid="s") == []


async def test_it_is_forgotten_with_the_session(stack: Stack) -> None:
    accepted = await stack.fleet.inbound.append(message("hello"), agent="main")
    await add(stack, "hello")
    await add(stack, "lone \ud800 surrogate")
    assert len(await read(stack)) == 2

    assert run(stack, "sessions", "forget", accepted.session.sid).stdout == "It is gone.\n"

    assert await read(stack) == []
