"""A drain runs a session's turns in order, each with one outcome, whatever the agent does."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.errors import ErrorCategory
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted, decode_entry
from remoteclaw.protocols import Reply
from remoteclaw.session.notices import CONTEXT_LOST, NOTHING_SAID, SECOND_TRY
from remoteclaw.session.queue import MAX_TURNS
from tests.support.bridges import acp_script, script
from tests.support.conversations import drain, dying
from tests.support.processes import is_alive
from tests.support.stack import REPLIES, Stack, message, said
from tests.support.waiting import eventually


async def published(stack: Stack) -> list[Reply]:
    """Return the replies on the reply stream."""
    client = stack.fleet.scripts.client
    count = await client.xlen(REPLIES)
    stream = stack.fleet.replies.reader("test", "default").replies()
    replies = [await anext(stream) for _ in range(count)]
    await stream.aclose()
    await client.delete(keys.reader("test", "default"))
    return replies


def agent_pid(detail: str) -> int:
    return int(detail.rpartition(" ")[2])


async def test_messages_of_a_session_are_answered_in_order(stack: Stack) -> None:
    accepted = [await stack.append(text) for text in ("one", "two", "three")]

    await drain(stack, accepted[0])

    replies = await published(stack)
    assert [reply.entries for reply in replies] == [(each.entry_id,) for each in accepted]
    assert [
        next(word for word in ("message 1", "message 2", "message 3") if word in reply.text)
        for reply in replies
    ] == ["message 1", "message 2", "message 3"]


async def test_an_idle_session_keeps_its_agent_and_releases_its_lease(stack: Stack) -> None:
    accepted = await stack.append("hello")
    await drain(stack, accepted)

    view = await stack.fleet.sessions.view(accepted.session.sid)

    assert view is not None
    assert (view.status, view.waiting) == ("idle", 0)
    assert is_alive(agent_pid(await stack.reached(accepted, "spawned")))


async def test_a_duplicate_hint_does_nothing(stack: Stack) -> None:
    accepted = await stack.append("hello")

    await asyncio.gather(drain(stack, accepted), drain(stack, accepted))
    await drain(stack, accepted)

    assert len(await published(stack)) == 1


async def test_a_long_answer_is_split_into_messages_and_the_last_one_ends_the_turn(
    stack: Stack,
) -> None:
    accepted = await stack.append("long")

    await drain(stack, accepted)

    replies = await published(stack)
    assert len(replies) > 2
    assert all(len(reply.text) <= 4000 for reply in replies)
    assert [reply.index for reply in replies] == list(range(len(replies)))
    assert [bool(reply.entries) for reply in replies] == [False] * (len(replies) - 1) + [True]
    assert said(await stack.outcome(accepted)) == "\n\n".join(reply.text for reply in replies)


async def test_a_reply_for_the_caller_is_not_sent_to_the_chat(stack: Stack) -> None:
    accepted = await stack.fleet.inbound.append(message("hello"), agent="main", deliver="caller")

    await drain(stack, accepted)

    assert "demo agent" in said(await stack.outcome(accepted))
    assert await published(stack) == []


@pytest.mark.parametrize(
    ("answer", "notices"),
    [("", 0), ("\u200b", 0), ("> **\u2060**", 0), ("[[attach:none.txt]]", 1)],
)
async def test_a_person_gets_a_notice_if_the_agent_replies_nothing(
    stack: Stack, directory: Path, answer: str, notices: int
) -> None:
    """A reply of notices alone, such as one about a missing file, also counts as nothing."""
    body = f"while True:\n    turn(); say(type='text', text={answer!r}); say(type='done')"
    stack.configure({"runtime": "demo", "command": list(script(directory, body))})
    accepted = await stack.append("hello")

    await drain(stack, accepted)

    *before, last = [reply.text for reply in await published(stack)]
    assert (len(before), last) == (notices, NOTHING_SAID)


async def test_a_drain_yields_to_other_sessions_after_max_turns(stack: Stack) -> None:
    accepted = [await stack.append(f"message {n}") for n in range(MAX_TURNS + 2)]
    other = await stack.append("hello", from_="bob")

    await drain(stack, accepted[0])

    view = await stack.fleet.sessions.view(accepted[0].session.sid)
    assert view is not None
    assert (view.status, view.waiting) == ("scheduled", 2)
    assert other.session.sid != accepted[0].session.sid


# -- failures -------------------------------------------------------------------------------------


async def test_a_failed_turn_has_an_outcome_and_the_next_message_runs(stack: Stack) -> None:
    first, second = await stack.append("fail"), await stack.append("hello")

    await drain(stack, first)

    outcome = await stack.outcome(first)
    assert outcome.status == "failed"
    assert outcome.error == {"category": "fatal", "detail": "the demo fails when asked to"}
    assert f"({first.session.sid[:8]}-{first.entry_id})" in said(outcome)
    assert (await stack.outcome(second)).status == "done"


async def test_a_turn_whose_agent_dies_has_an_outcome_and_the_next_message_runs(
    stack: Stack,
) -> None:
    first, second = await stack.append("crash"), await stack.append("memory")

    await drain(stack, first)

    assert "stopped working in the middle of" in said(await stack.outcome(first))
    assert "- crash" in said(await stack.outcome(second))


async def test_a_turn_is_repeated_if_its_agent_dies_before_any_output(
    stack: Stack, directory: Path
) -> None:
    """Without output or actions, a repetition is safe, and no failure is reported."""
    body = """
if not os.path.exists('died'):
    open('died', 'w')
    turn()
    sys.exit(1)
while True:
    turn(); say(type='text', text='hello'); say(type='done')
"""
    stack.configure({"runtime": "demo", "command": list(script(directory, body))})
    accepted = await stack.append("hello")

    await drain(stack, accepted)

    outcome = await stack.outcome(accepted)
    assert said(outcome) == f"{SECOND_TRY}\n\nhello"
    assert len([step for step in outcome.steps if step.name == "begun"]) == 1


async def test_a_second_try_has_only_the_remaining_time_of_the_turn(
    stack: Stack, directory: Path
) -> None:
    body = """
turn()
if not os.path.exists('died'):
    open('died', 'w')
    time.sleep(2)
    sys.exit(1)
began = time.monotonic()
turn()
open('waited', 'w').write(str(time.monotonic() - began))
say(type='done', aborted=True)
"""
    agent = {"runtime": "demo", "command": list(script(directory, body)), "turn_s": 4}
    stack.configure(agent)
    accepted = await stack.append("hello")

    await drain(stack, accepted)

    error = (await stack.outcome(accepted)).error
    waited = stack.home.path / "workspaces" / "main" / "waited"
    assert error is not None
    assert error["category"] == ErrorCategory.TIMEOUT
    assert float(waited.read_text()) < 3.9


async def test_a_lost_conversation_restarts_from_notes_with_a_notice(stack: Stack) -> None:
    first = await stack.append("hello")
    await drain(stack, first)
    await forget_everything(stack, first)
    second = await stack.append("memory")

    await drain(stack, second)

    outcome = await stack.outcome(second)
    assert outcome.status == "done"
    assert [part["text"] for part in outcome.reply] == [
        CONTEXT_LOST,
        "You said before:\n\n- hello",  # from the notes in its prompt
    ]


async def forget_everything(stack: Stack, accepted: Accepted) -> None:
    """End the session's warm agent and remove its transcripts."""
    import os
    import signal

    pid = agent_pid(await stack.reached(accepted, "spawned"))
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(pid))
    workspace = stack.home.path / "workspaces" / "main" / ".demo-agent"
    for file in workspace.iterdir():
        file.unlink()


async def test_a_message_for_an_agent_that_is_not_configured_fails_with_the_reason(
    stack: Stack,
) -> None:
    accepted = await stack.fleet.inbound.append(message("hello"), agent="gone")

    await drain(stack, accepted)

    outcome = await stack.outcome(accepted)
    assert outcome.status == "failed"
    assert "gone can't be started" in said(outcome)
    assert "There is no agent 'gone'" in (outcome.error or {})["detail"]


async def put(stack: Stack, accepted: Accepted, entry: bytes) -> str:
    """Replace the accepted messages by another entry, and return its id."""
    client, stream = stack.fleet.scripts.client, keys.inbound(accepted.session.sid)
    await client.xtrim(stream, maxlen=0)
    entry_id: Any = await client.xadd(stream, {"entry": entry})
    return str(entry_id.decode())


async def test_an_unreadable_entry_does_not_block_the_session(stack: Stack) -> None:
    accepted = await stack.append("hello")
    damaged = await put(stack, accepted, b'{"v":1,"deliver":"channel"}')
    after = await stack.append("hello")

    await drain(stack, accepted)

    outcome = await stack.fleet.outcomes.read(accepted.session.sid, damaged)
    assert outcome is not None
    assert outcome.status == "dead"
    assert outcome.error == {"category": "unreadable", "detail": "it is damaged (KeyError)"}
    notice = (await published(stack))[0]
    assert "can't be read" in notice.text
    assert notice.entries == (damaged,)
    assert (await stack.outcome(after)).status == "done"


def test_an_entry_of_an_older_version_is_read() -> None:
    fields = {**message("hi").model_dump(by_alias=True, exclude_none=True)}
    old = {"v": 5, "deliver": "channel", "origin": "chat", "message": fields}

    read = decode_entry(b"1-0", {b"entry": orjson.dumps(old)}).message

    assert (read.text, read.chat_kind, read.is_addressed) == ("hi", None, None)


async def test_a_message_from_a_newer_version_waits_for_a_newer_worker(stack: Stack) -> None:
    """In a rolling upgrade, an old worker must not discard it."""
    accepted = await stack.append("hello")
    newer = await put(stack, accepted, b'{"v":99}')
    await stack.append("after it")

    await drain(stack, accepted)

    client = stack.fleet.scripts.client
    view = await stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    assert (view.status, view.waiting) == ("scheduled", 2)
    entries: Any = await client.xrange(keys.inbound(accepted.session.sid))
    assert entries[0][0].decode() == newer
    assert await published(stack) == []
    assert await stack.fleet.sweeper.sweep() == 0  # no hint at once, which this worker would take


# -- stopping -------------------------------------------------------------------------------------


async def test_a_stop_ends_the_running_turn_and_the_messages_that_wait(stack: Stack) -> None:
    running, waiting = await stack.append("slow"), await stack.append("hello")
    task = drain(stack, running)
    await stack.reached(running, "output")

    assert await stack.fleet.sessions.stop(running.session.sid) == 2
    later = await stack.append("hello")
    await task

    first = await stack.outcome(running)
    assert first.status == "stopped"
    assert said(first).startswith("1")
    assert said(first).endswith("Stopped.")
    second = await stack.outcome(waiting)
    assert (second.status, said(second)) == ("stopped", "")  # the chat was told once
    assert (await stack.outcome(later)).status == "done"


async def test_a_stop_whose_announcement_is_lost_takes_effect_at_the_next_renewal(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.connection.LISTEN_S", 0.05)
    running = await stack.append("slow")
    task = drain(stack, running)
    await stack.reached(running, "output")

    # As `stop` does, without the announcement.
    state = keys.state(running.session.sid)
    await stack.fleet.scripts.client.hset(state, "stop_entry", running.entry_id)
    await task

    assert (await stack.outcome(running)).status == "stopped"


# -- recovery -------------------------------------------------------------------------------------


async def interrupted(stack: Stack, text: str, phase: str) -> Accepted:
    """Accept a message, and leave it in the state of a worker that died in `phase`."""
    accepted = await stack.append(text)
    async with dying(stack, accepted) as lease:
        if phase != "accepted":
            await lease.turns.note_phase(phase)
    return accepted


@pytest.mark.parametrize("phase", ["accepted", "spawned", "output", "tool"])
async def test_a_turn_is_repeated_with_a_note_if_it_had_reached_the_agent(
    stack: Stack, directory: Path, phase: str
) -> None:
    echo = script(
        directory,
        "while True:\n    say(type='text', text=turn()['prompt'])\n    say(type='done')",
    )
    stack.configure({"runtime": "demo", "command": list(echo)})
    accepted = await interrupted(stack, "hello", phase)

    await drain(stack, accepted)

    outcome = await stack.outcome(accepted)
    *notices, answer = [part["text"] for part in outcome.reply]
    assert notices == ([] if phase == "accepted" else [SECOND_TRY])
    assert ("Your earlier attempt at this message was cut off" in answer) is bool(notices)
    assert [step.attempt for step in outcome.steps if step.name == "begun"] == [1, 2]


async def test_the_furthest_phase_of_earlier_attempts_is_not_forgotten(stack: Stack) -> None:
    accepted = await interrupted(stack, "hello", "tool")
    async with dying(stack, accepted):
        pass

    await drain(stack, accepted)

    assert said(await stack.outcome(accepted)).startswith(SECOND_TRY)


async def test_a_drain_that_lost_its_lease_writes_nothing_and_ends_its_agent(stack: Stack) -> None:
    accepted = await stack.append("slow")
    task = drain(stack, accepted)
    pid = agent_pid(await stack.reached(accepted, "spawned"))
    await stack.reached(accepted, "output")

    # Another worker takes the session over while this drain is late.
    state = keys.state(accepted.session.sid)
    await stack.fleet.scripts.client.hset(state, "lease_until_ms", 1)
    assert await stack.fleet.leases.acquire(accepted.session.sid, worker="other", host="here")
    await task

    await eventually(lambda: not is_alive(pid))
    assert await published(stack) == []
    outcome = await stack.fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
    assert outcome is not None
    assert outcome.status == "running"


async def test_a_warm_agent_with_a_different_last_turn_is_not_used(stack: Stack) -> None:
    """After a host has slept, its agent must not answer from an outdated context."""
    first = await stack.append("hello")
    await drain(stack, first)
    pid = agent_pid(await stack.reached(first, "spawned"))
    state = keys.state(first.session.sid)
    await stack.fleet.scripts.client.hset(state, "finished_turn", "1-0")
    second = await stack.append("memory")

    await drain(stack, second)

    assert not is_alive(pid)
    assert (await stack.reached(second, "spawned")).startswith("new demo")
    assert "- hello" in said(await stack.outcome(second))


async def test_an_agent_can_choose_not_to_reply(stack: Stack, directory: Path) -> None:
    body = "while True:\n turn()\n say(type='text', text='NO_REPLY')\n say(type='done')\n"
    stack.configure({"runtime": "demo", "command": list(script(directory, body))})
    accepted = await stack.append("fyi")

    await drain(stack, accepted)

    outcome = await stack.outcome(accepted)
    assert (outcome.status, outcome.reply) == ("done", ())
    (reply,) = await published(stack)
    assert (reply.text, reply.entries) == ("", (accepted.entry_id,))


async def test_an_agent_that_exits_while_it_starts_is_started_once_more(
    stack: Stack, directory: Path
) -> None:
    """If opencode starts for the first time twice at once, one start finds its database locked."""
    body = (
        "if not os.path.exists('tried'):\n"
        "    open('tried', 'w').close(); sys.exit('database is locked')\n"
        "prompt = begin(); text('here'); answer(prompt, stopReason='end_turn'); asked('nothing')\n"
    )
    stack.configure({"runtime": "acp", "command": list(acp_script(directory, body))})
    accepted = await stack.append("hello")

    await drain(stack, accepted)

    assert said(await stack.outcome(accepted)) == "here"
