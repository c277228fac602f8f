"""Waiting messages that move to a branch of their conversation, which answers the person."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.config.load import load_config
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import keys
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.asides import AsideEnd, Asides
from remoteclaw.fleet.turns.inbound import Accepted, Known
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.gateway.traces import find_message, read_trace
from remoteclaw.messages import Entry, MovedFrom, QuotedMessage, SessionKey, has_read_web
from remoteclaw.session.moved_turn import ENDED_ABOVE
from remoteclaw.session.notices import SECOND_TRY
from remoteclaw.session.waiting import decode_all
from remoteclaw.tasks.branches import move_to_branch
from tests.support.conversations import configure, drain, dying, prompts
from tests.support.leases import started_task
from tests.support.rows import for_each
from tests.support.stack import REPLIES, Stack, message, said

ACK = {"text": "On it, alongside the other work."}


@pytest.fixture
async def working(agent: Stack) -> AsyncIterator[tuple[Stack, Lease, Accepted]]:
    """A conversation whose first message is in a turn and whose second one waits."""
    configure(agent)
    first, second = await agent.append("first"), await agent.append("second", id="m2")
    async with dying(agent, first) as lease:
        yield agent, lease, second


def _client(stack: Stack) -> Any:
    return stack.fleet.scripts.client


async def move(stack: Stack, lease: Lease, accepted: Accepted, **more: Any) -> str:
    """Move a message of the session's inbound stream; return the result of the move."""
    stored = await _client(stack).xrange(keys.inbound(lease.sid), accepted.entry_id, count=1)
    entries = [*decode_all(stored, lease.session)]
    if not entries:
        return "not there"
    running = [*decode_all(await lease.entries(), lease.session)][:1]
    config = load_config(stack.home.config_file, {})
    return await move_to_branch(lease, config, entries[0], running=running, **more)


async def branch_of(stack: Stack, lease: Lease) -> Accepted:
    """Return the moved message on the session's only branch."""
    (view,) = await stack.fleet.sessions.children(lease.sid)
    assert view.last_entry is not None
    return Accepted(view.key, view.last_entry, False)


async def waiting(stack: Stack, session: SessionKey) -> list[str]:
    entries = await _client(stack).xrange(keys.inbound(session.sid))
    return [entry_id.decode() for entry_id, _ in entries]


async def test_a_message_that_was_edited_after_its_aside_does_not_move(
    working: tuple[Stack, Lease, Accepted],
) -> None:
    stack, lease, second = working
    new = message("third", id="m2", from_="alice", channel_id=lease.session.channel_id)
    edited = await stack.fleet.edits.edit(
        new, Known("m2", "new"), name="m2.1", agent="main", is_shared=False, is_command=False
    )
    assert edited == "replaced"

    assert await move(stack, lease, second) == "gone"
    assert second.entry_id in await waiting(stack, lease.session)


async def sent(stack: Stack) -> list[dict[str, Any]]:
    """Return the undelivered replies to the chat."""
    entries = await _client(stack).xrange(REPLIES)
    return [json.loads(fields[b"reply"]) for _, fields in entries]


async def aside_notes(stack: Stack, sid: str) -> list[dict[str, Any]]:
    """Return the notes of asides for the conversation's next prompt."""
    return [json.loads(line) for line in await _client(stack).lrange(keys.aside_notes(sid), 0, -1)]


Working = tuple[Stack, Lease, Accepted]


@for_each(
    ("running", "is_of_others"),
    [
        (QuotedMessage(name="alice", id="alice", text="one"), False),
        (QuotedMessage(name="eve", id="eve", text="remember that"), True),
        (QuotedMessage(name="cron job x", id=None, text="remember that"), True),
        (QuotedMessage(name="alice", id="alice", text="x", has_text_of_others=True), True),
    ],
)
def test_a_branch_is_told_what_others_have_written(
    running: QuotedMessage, is_of_others: bool
) -> None:
    """Such a turn writes nothing to the memory by itself."""
    moved = MovedFrom(of="main/test/default/chat-1:alice:_", entry="1-0", now=(running,))

    assert has_read_web([Entry("1-0", message("two"), moved=moved)]) is is_of_others


async def test_the_branch_answers_the_person(working: Working) -> None:
    """The outcome is the same in both sessions, and the conversation gets a note."""
    stack, lease, second = working
    assert await move(stack, lease, second, acknowledgement=ACK) == "moved"
    moved = await branch_of(stack, lease)
    assert await waiting(stack, lease.session) == [(await lease.entries())[0][0].decode()]
    assert await waiting(stack, moved.session) == [moved.entry_id]
    assert (await stack.outcome_so_far(second)).status == "running"
    await drain(stack, moved)
    here, there = await stack.outcome(second), await stack.outcome(moved)

    assert here.status == there.status == "done"
    assert said(here) == said(there) == "heard second, knew -"
    acknowledged, answer, *_ = await sent(stack)
    assert acknowledged == ACK
    assert (answer["text"], answer["reply_to_id"]) == ("heard second, knew -", "m2")
    *_, last = await sent(stack)
    assert last["entries"] == [second.entry_id, moved.entry_id]
    (note,) = await aside_notes(stack, lease.sid)
    assert (note["from"], note["said"], note["you"]) == ("alice", "second", said(here))
    record = (await stack.fleet.records.of(lease.sid)).decode()
    assert "heard second" in record
    line = prompts(stack).splitlines()[0]
    assert f'"branch_of":"{lease.session}"' in line
    assert '"conversation_now":[{"from":{"id":"alice"},"said":"first"}]' in line
    assert "to the person who waits for it" in line


async def test_a_client_that_follows_a_moved_message_gets_its_outcome(working: Working) -> None:
    """`send --wait` follows the outcome in the session to which it sent the message."""
    stack, lease, second = working
    following = stack.fleet.outcomes.follow(second.session.sid, second.entry_id)
    assert (await anext(following)).status == "accepted"
    await move(stack, lease, second)
    await drain(stack, await branch_of(stack, lease))

    statuses = [outcome.status async for outcome in following]
    assert statuses[-1] == "done"


async def test_moving_a_message_again_changes_nothing(working: Working) -> None:
    """Also when another worker repeats the move after the first one was killed."""
    stack, lease, second = working
    stored = await _client(stack).xrange(keys.inbound(lease.sid), second.entry_id, count=1)
    (entry,) = decode_all(stored, lease.session)
    config = load_config(stack.home.config_file, {})
    for _ in range(2):
        result = await move_to_branch(lease, config, entry, running=(), acknowledgement=ACK)
        assert result == "moved"
    await _client(stack).hset(keys.state(lease.sid), "lease_until_ms", 1)
    other = await stack.fleet.leases.acquire(lease.sid, worker="other", host="here")
    assert other is not None
    result = await move_to_branch(other, config, entry, running=(), acknowledgement=ACK)
    assert result == "moved"
    with pytest.raises(LeaseLost):
        await move_to_branch(lease, config, entry, running=())

    assert len(await waiting(stack, (await branch_of(stack, lease)).session)) == 1
    assert await sent(stack) == [ACK]


async def test_a_message_in_a_turn_or_a_stopped_message_cannot_be_moved(working: Working) -> None:
    stack, lease, second = working
    third = await stack.append("third")
    first = Accepted(lease.session, (await lease.entries())[0][0].decode(), False)
    assert await move(stack, lease, first) == "gone"
    assert await lease.turns.join([second.entry_id])
    assert await move(stack, lease, second) == "gone"
    await stack.fleet.sessions.stop(lease.sid)
    assert await move(stack, lease, third) == "gone"

    assert await waiting(stack, lease.session) == [
        *(first.entry_id, second.entry_id),
        third.entry_id,
    ]
    assert await stack.fleet.sessions.children(lease.sid) == []


async def test_a_message_that_is_tried_alone_after_failures_cannot_be_moved(
    working: Working,
) -> None:
    """Its earlier turn may have begun to answer it."""
    stack, lease, second = working
    await _client(stack).hset(keys.state(lease.sid), "failed_batch_end", second.entry_id)

    assert await move(stack, lease, second) == "gone"


async def test_an_aside_that_moves_a_message_counts_once_with_its_conversation(
    working: Working,
) -> None:
    """Also if the message can't be moved, so that it waits after all."""
    stack, lease, second = working
    configure(stack, sessions={"max_children": 1})
    used = Usage(input_tokens=100, asides=1)
    third = await stack.append("third")
    assert await move(stack, lease, second, usage=used) == "moved"
    for _ in range(2):
        assert await move(stack, lease, third, usage=used) == "full"
    await Asides(lease).end(
        lease.turns._running.turn, third.entry_id, "later", AsideEnd(usage=used)
    )

    assert await stack.fleet.usage.session("main", lease.sid) == used + used
    assert await stack.fleet.usage.agents() == {"main": used + used}


@pytest.mark.parametrize("limit", ["max_children", "max_tree"])
async def test_a_message_is_not_moved_while_a_limit_of_unfinished_tasks_is_reached(
    working: Working, limit: str
) -> None:
    stack, lease, second = working
    configure(stack, sessions={limit: 1})
    third = await stack.append("third")
    assert await move(stack, lease, second) == "moved"
    assert await move(stack, lease, third, acknowledgement=ACK) == "full"
    assert await waiting(stack, lease.session) == [
        (await lease.entries())[0][0].decode(),
        third.entry_id,
    ]
    assert await sent(stack) == []
    await drain(stack, await branch_of(stack, lease))
    assert await move(stack, lease, third) == "moved"


async def test_the_files_of_a_message_move_with_it(working: Working) -> None:
    stack, lease, _ = working
    file = await stack.fleet.blobs.put(lease.sid, "note.txt", b"what is in it")
    third = await stack.append("look", attachments=[file])
    assert await move(stack, lease, third) == "moved"
    moved = await branch_of(stack, lease)
    client = _client(stack)
    assert await client.exists(keys.blob(lease.sid, file.blob)) == 0
    assert await client.get(keys.blob(moved.session.sid, file.blob)) == b"what is in it"
    await drain(stack, moved)

    assert '"attachments":[{"name":"note.txt"' in prompts(stack)
    assert await client.exists(keys.blob(moved.session.sid, file.blob)) == 0


async def test_a_stop_in_the_chat_stops_a_moved_message(working: Working) -> None:
    stack, lease, second = working
    await move(stack, lease, second)
    await stack.append("/stop")
    moved = await branch_of(stack, lease)
    await drain(stack, moved)

    assert (await stack.outcome(second)).status == "stopped"
    assert await aside_notes(stack, lease.sid) == []
    assert "second" not in said(await stack.outcome(moved))


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_moved_message_is_answered_although_its_conversation_has_ended(
    working: Working, is_begun: bool
) -> None:
    """The answer has a notice about the end, and the next conversation gets no note of it."""
    stack, lease, _ = working
    accepted = await stack.append("wait")
    assert await move(stack, lease, accepted) == "moved"
    moved = await branch_of(stack, lease)
    task, _ = await started_task(stack.fleet, lease.session, message("a task"), call="a call")
    running = drain(stack, moved) if is_begun else None
    if running:
        await stack.reached(moved, "output")
    await lease.reset("1-1", "new", keep_ms=60_000, keep=1, stops_tasks=True)
    (stack.home.path / "workspaces" / "main").mkdir(parents=True, exist_ok=True)
    (stack.home.path / "workspaces" / "main" / "go").touch()
    await (running or drain(stack, moved))

    assert await _client(stack).hexists(keys.state(task.sid), "stop_entry")
    outcome = await stack.outcome(accepted)
    assert outcome.status == "done"
    assert said(outcome).startswith(ENDED_ABOVE)
    assert "heard wait" in said(outcome)
    # The notice precedes the answer only if the conversation ended before the turn began.
    assert (outcome.reply[0]["text"] == ENDED_ABOVE) == (not is_begun)
    assert await aside_notes(stack, lease.sid) == []
    assert await stack.fleet.records.of(lease.sid) == b""


async def test_a_moved_message_is_answered_once_after_two_killed_workers(working: Working) -> None:
    stack, lease, second = working
    await move(stack, lease, second)
    moved = await branch_of(stack, lease)
    for _ in range(2):
        async with dying(stack, moved, phase="spawned"):
            pass
    await drain(stack, moved)
    here, there = await stack.outcome(second), await stack.outcome(moved)

    assert here.status == there.status == "done"
    assert said(here) == said(there)
    assert said(here).startswith(SECOND_TRY)


async def test_a_moved_message_that_becomes_a_dead_letter_is_dead_in_its_first_session(
    working: Working,
) -> None:
    """After a retry of the dead letter, it is done there, too."""
    stack, lease, second = working
    await move(stack, lease, second)
    moved = await branch_of(stack, lease)
    for _ in range(3):
        async with dying(stack, moved, phase="spawned"):
            pass
    await drain(stack, moved)
    assert (await stack.outcome(second)).status == "dead"
    assert await aside_notes(stack, lease.sid) == []
    (letter,) = await stack.fleet.dead_letters.list(limit=10)
    retried = await stack.fleet.dead_letters.retry(letter.id)
    await drain(stack, moved)

    assert retried
    assert (await stack.outcome(second)).status == "done"


async def test_the_trace_of_a_moved_message_includes_its_branch(working: Working) -> None:
    stack, lease, second = working
    await move(stack, lease, second)
    moved = await branch_of(stack, lease)
    await drain(stack, moved)
    reference = f"{lease.sid[:8]}-{second.entry_id}"
    (outcome,) = await read_trace(stack.fleet, *await find_message(stack.fleet, reference))
    steps = {step.name: step.detail for step in outcome.steps}

    assert steps["moved"] == f"{moved.session.sid}-{moved.entry_id}"
    assert "spawned" in steps
    assert "output" in steps
