"""Redis' memory under a flood of messages, files and calls: what is refused, and in which order."""

from dataclasses import replace
from typing import Any

import pytest

from remoteclaw.errors import CallRefused, MessageRefused, RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.turn import RecordAppend
from remoteclaw.gateway.methods import HANDLERS as ALL
from remoteclaw.messages import MAX_TEXT_BYTES, SessionKey
from remoteclaw.protocols import Conversation
from tests.support.leases import idle
from tests.support.stack import REPLIES, Stack, message, said
from tests.support.turns import Turn, ask, begin_turn, gateway, operator

HANDLERS = dict(ALL)
JOB = {"name": "morning", "schedule": {"every": 3600}, "message": "Say good morning."}


async def fill(stack: Stack, part: float) -> None:
    """Set the server's limit so that the fraction `part` of it is in use."""
    client = stack.fleet.scripts.client
    used = (await client.info("memory"))["used_memory"]
    await client.config_set("maxmemory", int(used / part))


async def without_limit(stack: Stack) -> None:
    """Remove the server's memory limit, and keep its data off the disk."""
    client = stack.fleet.scripts.client
    await client.config_set("appendonly", "no")
    await client.config_set("maxmemory", 0)


async def refused(turn: Turn, tool: str, **params: Any) -> str:
    with pytest.raises(CallRefused) as refusal:
        await turn.call(tool, **params)
    assert refusal.value.code == "UNAVAILABLE"
    return str(refusal.value)


# -- the order in which things are refused --------------------------------------------------------


async def test_calls_of_agents_are_refused_before_messages_are(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    job = (await turn.call("cron_add", job=JOB))["job"]
    await fill(stack, 0.75)

    why = await refused(turn, "message_send", target="chat-2", message="x")
    await refused(turn, "message_broadcast", targets=["chat-2", "chat-3"], message="x")
    await refused(turn, "sessions_spawn", prompt="x")
    await refused(turn, "cron_add", job={**JOB, "name": "evening"})
    await refused(turn, "cron_run", jobId=job["id"])

    assert "has almost no memory left. That is not your fault." in why
    await turn.call("cron_remove", jobId=job["id"])  # makes room
    await fill(stack, 0.75)  # again: each script that was sent takes some
    await stack.append("words")
    await fill(stack, 0.85)
    await stack.append("/stop")  # makes room, too
    await fill(stack, 0.75)
    await ask(turn.gateway, operator(), "message.send", target="test:chat-1", message="x")


async def test_accepted_turns_are_finished_while_new_messages_are_refused(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    await fill(stack, 0.85)
    door = gateway(stack.fleet, stack.home, HANDLERS)

    with pytest.raises(RedisRefused, match="four fifths of its memory"):
        await stack.append("words")
    with pytest.raises(CallRefused, match="four fifths of its memory"):
        await ask(door, operator(), "message.send", target="test:chat-1", message="x")
    await turn.lease.turns.publish(0, {"text": "hi"})
    await turn.finish()

    assert await stack.fleet.scripts.client.xlen(REPLIES) == 1


async def test_a_dead_letter_is_retried_only_when_redis_has_room(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    await turn.lease.turns.finish("dead", reply=[])
    (letter,) = await stack.fleet.dead_letters.list()
    await fill(stack, 0.85)

    with pytest.raises(RedisRefused, match="four fifths of its memory"):
        await stack.fleet.dead_letters.retry(letter.id)
    await fill(stack, 0.5)
    assert (await stack.fleet.dead_letters.retry(letter.id)).entry_id


async def test_live_text_records_and_long_outcomes_go_first_when_memory_fills(stack: Stack) -> None:
    client = stack.fleet.scripts.client
    kept = {}
    for part in (0.5, 0.65, 0.85):
        turn = await begin_turn(stack, HANDLERS, from_=f"user-{part}")
        await fill(stack, part)
        await turn.lease.turns.publish_live_text({"text": "he"})
        shown = await client.exists(keys.live(turn.lease.sid))
        record = RecordAppend(b"{}\n", 1024, 1000_000)
        await turn.lease.turns.finish("done", reply=[{"text": "hi"}], record=record)
        await fill(stack, 0.5)
        outcome_s = await client.ttl(keys.outcome(turn.lease.sid, turn.id))
        kept[part] = (shown, await client.exists(keys.record(turn.lease.sid)), outcome_s > 3600)

    assert kept == {0.5: (1, 1, True), 0.65: (1, 1, False), 0.85: (0, 0, False)}


# -- limits of a turn's tools ---------------------------------------------------------------------


async def test_a_message_that_was_not_sent_counts_towards_no_limit(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    effects, session = stack.fleet.calls, turn.lease.session
    caller = await effects.caller(session.sid)
    assert caller is not None
    payload = ("test", "default", {"x": 1})
    for number in range(2):
        with pytest.raises(CallRefused, match="not stored any more"):
            await effects.send_messages(
                caller, f"c{number}", [payload], effect=None, blobs=["gone"]
            )

    await turn.call("message_send", target="chat-2", message="x")

    assert await stack.fleet.scripts.client.hget(keys.sent(session), "sent_messages") == b"1"


async def test_the_turns_of_a_chat_send_at_most_four_megabytes_an_hour(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    stack.configure(channels={"test": {"owners": ["alice"], "chunk_limit": 100_000}})
    text = "x" * 100_000  # which is noted with the turn as well
    for _ in range(20):
        await turn.call("message_send", target="chat-2", message=text)

    why = await refused(turn, "message_send", target="chat-2", message=text)
    await turn.call("message_send", target="chat-2", message="x")

    assert "4,194,304 are the most" in why
    assert "Don't repeat it: put what matters into your answer." in why


async def test_the_turns_of_a_chat_send_at_most_300_messages_an_hour(stack: Stack) -> None:
    chats = [f"chat-{number}" for number in range(20)]
    for thread in ("one", "two", "three"):
        turn = await begin_turn(stack, HANDLERS, thread_id=thread)
        for _ in range(5):
            await turn.call("message_broadcast", targets=chats, message="x")
    task = await begin_turn(stack, HANDLERS, thread_id="four")
    others = await begin_turn(stack, HANDLERS, channel_id="chat-9")

    why = await refused(task, "sessions_spawn", prompt="x")
    await others.call("message_send", target="chat-2", message="x")
    await stack.fleet.scripts.client.delete(keys.sent(task.lease.session))  # the hour is over
    await task.call("sessions_spawn", prompt="x")

    assert "the turns of this chat would have sent 301 messages" in why
    assert 0 < await stack.fleet.scripts.client.ttl(keys.sent(others.lease.session)) <= 3600


# -- limits of one chat ---------------------------------------------------------------------------


async def test_a_full_server_refuses_to_fork_a_session(stack: Stack) -> None:
    lease, accepted = await idle(stack.fleet)
    await lease.remember("main|claude|/web", Conversation("of-the-cli"))
    view = await stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    copy = replace(accepted.session, thread="t")
    await fill(stack, 1.1)

    with pytest.raises(RedisRefused, match="no memory left"):
        await stack.fleet.sessions.fork(view, copy, ["main|claude|/web"], view.limits.of_fork)
    assert await stack.fleet.sessions.view(copy.sid) is None


async def test_one_conversation_keeps_a_bounded_number_of_bytes_waiting(stack: Stack) -> None:
    text = "x" * (MAX_TEXT_BYTES - 100)
    for _ in range(8):
        await stack.append(text)

    with pytest.raises(MessageRefused, match="too many messages of this conversation wait"):
        await stack.append(text)
    await stack.append(text, channel_id="chat-2")
    await stack.append("/stop")


async def test_one_conversation_keeps_a_bounded_number_of_messages_waiting(stack: Stack) -> None:
    stream = keys.inbound(SessionKey.of(message("x"), agent="main").sid)
    client: Any = stack.fleet.scripts.client
    async with client.pipeline() as pipeline:
        for _ in range(1000):
            pipeline.xadd(stream, {"entry": "x"})
        await pipeline.execute()

    with pytest.raises(MessageRefused, match="too many messages of this conversation wait"):
        await stack.append("one more")


async def test_one_conversation_stores_a_bounded_number_of_bytes_in_files(stack: Stack) -> None:
    content, sid = bytes(20 * 1024 * 1024), "a" * 32
    await without_limit(stack)
    for _ in range(7):
        await stack.fleet.blobs.put(sid, "big", content)

    with pytest.raises(RedisRefused, match="more than 150 MB of files within an hour"):
        await stack.fleet.blobs.put(sid, "big", content)
    await stack.fleet.blobs.put("b" * 32, "big", content)
    assert len(await stack.fleet.scripts.client.keys(keys.blob("*", "*"))) == 8

    chat = SessionKey.of(message("x"), agent="main")
    for number in range(7):
        task = replace(chat, task=f"{number}")
        await stack.fleet.blobs.put(task.sid, "big", content, chat=task)
    with pytest.raises(RedisRefused, match="more than 150 MB of files within an hour"):
        await stack.fleet.blobs.put(chat.sid, "big", content, chat=chat)


async def test_a_repeated_piece_of_a_file_is_counted_once(stack: Stack) -> None:
    """A piece is sent again after a lost reply, when it may be stored already."""
    sid, scripts = "a" * 32, stack.fleet.scripts
    for _ in range(2):
        status = await scripts.run(
            "store",
            sid=sid,
            chat_sid=sid,
            blob=keys.blob(sid, "b" * 32),
            piece=b"content",
            offset=0,
            size=7,
            keep_ms=60_000,
            max_bytes=10,
        )
        assert status == 1

    assert await scripts.client.get(keys.stored(sid)) == b"7"


async def test_operators_store_files_without_a_limit(stack: Stack) -> None:
    await without_limit(stack)
    content = bytes(20 * 1024 * 1024)
    for _ in range(8):
        await stack.fleet.blobs.put(keys.OPERATOR, "big", content)

    assert len(await stack.fleet.scripts.client.keys(keys.blob("*", "*"))) == 8


async def test_a_file_that_does_not_fit_leaves_no_piece_of_it(stack: Stack) -> None:
    client = stack.fleet.scripts.client
    await client.config_set("maxmemory", "16mb")

    with pytest.raises(RedisRefused, match="only messages without files are accepted"):
        await stack.fleet.blobs.put("a" * 32, "big", bytes(20 * 1024 * 1024))

    assert await client.keys(keys.blob("*", "*")) == []
    assert (await client.info("memory"))["used_memory"] < 10 * 1024 * 1024


# -- outcomes -------------------------------------------------------------------------------------


async def test_a_long_reply_is_stored_in_one_outcome_of_a_batch(stack: Stack) -> None:
    first, second = await stack.append("one"), await stack.append("two")
    lease = await stack.fleet.leases.acquire(first.session.sid, worker="t", host="here")
    assert lease is not None
    assert await lease.turns.begin([first.entry_id, second.entry_id])

    await lease.turns.finish("done", reply=[{"text": "x" * 100_000, "is_error": False}])

    assert said(await stack.outcome(first)) == "x" * 100_000
    other_outcome = await stack.outcome(second)
    assert (other_outcome.status, other_outcome.turn, said(other_outcome)) == (
        "done",
        first.entry_id,
        "",
    )
