"""Messages to tasks: during a turn, before the first turn, and after the end."""

from pathlib import Path
from typing import Any

import pytest

from remoteclaw import messages
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.messages import Entry, ReplyPayload, SessionKey
from remoteclaw.tasks.entries import result_of
from tests.support.bridges import script
from tests.support.conversations import AGENT, drain, dying, go
from tests.support.stack import Stack
from tests.support.tasks import HANDLERS, call, entries, may, refused, take_over, take_up, work
from tests.support.turns import Turn, begin_turn, operator
from tests.support.waiting import HANG_S


@pytest.fixture
async def parent(stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Turn:
    """A turn whose tasks report the messages that they received and those they remember."""
    monkeypatch.setattr("remoteclaw.tasks.tell.JOIN_S", HANG_S)
    stack.agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    stack.configure(stack.agent)
    return await begin_turn(stack, HANDLERS)


async def tell(stack: Stack, turn: Any, text: str, **params: Any) -> Any:
    """Message the task with the label `links`, or the task of the run `run_id`."""
    target = {"runId": params.pop("run_id")} if "run_id" in params else {"label": "links"}
    return await call(
        stack, turn, "subagents", action="tell", params=target, message=text, **params
    )


async def refused_tell(stack: Stack, turn: Any, **params: Any) -> str:
    """Return why a message to a task is refused."""
    return await refused(
        stack, turn, "subagents", **{"action": "tell", "message": "images too", **params}
    )


async def spawned(stack: Stack, parent: Turn, prompt: str = "links") -> Any:
    return await call(stack, parent, "sessions_spawn", prompt=prompt, label="links")


def accepted(run: Any) -> Accepted:
    """Return the entry that the id of a run names."""
    sid, _, entry = run.run_id.partition("-")
    key = getattr(run, "child_session_key", None) or run.session_key
    assert SessionKey.parse(key).sid == sid
    return Accepted(SessionKey.parse(key), entry, False)


async def results(stack: Stack, parent: Turn) -> list[tuple[str, str]]:
    """Return the run id and the text of each result."""
    found = await entries(stack, parent.lease.session)
    return [(str(each.provenance and each.provenance.run), each.message.text) for each in found[1:]]


# -- states of the task ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["collect", "followup", "steer", "interrupt"])
async def test_a_message_to_a_running_task_joins_its_turn(
    stack: Stack, parent: Turn, mode: str
) -> None:
    """In every queue mode; one result covers both messages."""
    stack.configure(stack.agent, queue={"mode": mode, "debounce_ms": 0})
    run = await spawned(stack, parent, "wait")
    working = drain(stack, accepted(run))
    await stack.reached(accepted(run), "output")
    sent = await tell(stack, parent, "images too")
    listed = await call(stack, parent, "subagents")
    go(stack)
    await working
    after = await call(stack, parent, "subagents", action="status", params={"label": "links"})

    assert (sent.taken, sent.runs[0].run_id) == ("joined", run.run_id)
    assert listed.runs[0].state == "running"
    assert await results(stack, parent) == [(run.run_id, "heard wait, knew - & images too")]
    assert (after.runs[0].state, after.runs[0].result) == (
        "done",
        "heard wait, knew - & images too",
    )


async def test_messages_to_a_task_before_it_begins_are_in_its_first_turn(
    stack: Stack, parent: Turn
) -> None:
    run = await spawned(stack, parent)
    sent = await tell(stack, parent, "images too")
    await tell(stack, parent, "and the fonts")
    await work(stack, run.child_session_key)

    assert (sent.taken, sent.runs[0].run_id) == ("waiting", run.run_id)
    assert await results(stack, parent) == [
        (run.run_id, "heard links + images too + and the fonts, knew -")
    ]


async def test_a_message_that_missed_the_turn_is_answered_in_the_same_result(
    stack: Stack, parent: Turn
) -> None:
    """The result contains both answers."""
    run = await spawned(stack, parent, "deaf")
    working = drain(stack, accepted(run))
    await stack.reached(accepted(run), "output")
    await tell(stack, parent, "images too")
    go(stack)
    await working
    listed = await call(stack, parent, "subagents")

    assert await results(stack, parent) == [
        (run.run_id, "heard deaf, knew -\n\nheard images too, knew deaf")
    ]
    assert [(one.run_id, one.state) for one in listed.runs] == [(run.run_id, "done")]


async def test_a_message_that_does_not_join_the_turn_waits(
    stack: Stack, parent: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.tasks.tell.JOIN_S", 0.0)
    run = await spawned(stack, parent)
    child = await take_up(stack, run.child_session_key)
    sent = await tell(stack, parent, "images too")
    listed = await call(stack, parent, "subagents")

    assert sent.taken == "waiting"
    assert (listed.runs[0].run_id, listed.runs[0].state) == (run.run_id, "accepted")
    await child.finish()


async def test_a_message_to_an_ended_task_starts_another_run(stack: Stack, parent: Turn) -> None:
    """The task remembers its earlier messages, and each run has one result."""
    first = await spawned(stack, parent, "deaf")
    working = drain(stack, accepted(first))
    await stack.reached(accepted(first), "output")
    await tell(stack, parent, "fonts too")
    go(stack)
    await working
    sent = await tell(stack, parent, "images too")
    (second,) = sent.runs
    waiting = await call(stack, parent, "subagents")
    await work(stack, first.child_session_key)
    after = await call(stack, parent, "subagents", action="status", params={"label": "links"})

    assert sent.taken == "continued"
    assert second.run_id != first.run_id
    assert (second.state, second.session_key) == ("accepted", first.child_session_key)
    assert [(one.run_id, one.state) for one in waiting.runs] == [(second.run_id, "accepted")]
    assert await results(stack, parent) == [
        (first.run_id, "heard deaf, knew -\n\nheard fonts too, knew deaf"),
        (second.run_id, "heard images too, knew deaf + fonts too"),
    ]
    assert (after.runs[0].run_id, after.runs[0].result) == (
        *(second.run_id, "heard images too, knew deaf + fonts too"),
    )


async def test_messages_to_a_task_keep_their_order(
    stack: Stack, parent: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retried turn keeps its batch, so both messages are answered after it."""
    monkeypatch.setattr("remoteclaw.tasks.tell.JOIN_S", 0.0)
    run = await spawned(stack, parent, "wait")
    async with dying(stack, accepted(run)):
        await tell(stack, parent, "first")
    working = drain(stack, accepted(run))
    await stack.reached(accepted(run), "output")
    sent = await tell(stack, parent, "second")
    go(stack)
    await working

    assert sent.taken == "waiting"
    ((_, text),) = await results(stack, parent)
    assert [part for part in text.split("\n\n") if "heard" in part] == [
        "heard wait, knew -",
        "heard first + second, knew wait",
    ]


async def test_the_turns_of_a_task_know_what_its_earlier_ones_have_read(
    stack: Stack, parent: Turn
) -> None:
    """The result may have the replies of several turns, so the parent's turn has read it, too."""
    run = await spawned(stack, parent)
    sid = accepted(run).session.sid
    await stack.fleet.scripts.client.hset(keys.state(sid), "web_turn", "1-0")
    child = await take_up(stack, run.child_session_key)
    caller = await stack.fleet.calls.caller(sid)
    turn = messages.Turn(child.lease.session, tuple(await entries(stack, run.child_session_key)))
    due = await result_of(child.lease, turn, "done", [ReplyPayload("Done.")], ())
    await child.lease.turns.finish("done", reply=[], task_result=due)

    _, result = await entries(stack, parent.lease.session)
    assert caller
    assert caller.turn
    assert caller.turn.has_read_web
    assert messages.has_read_web([result])


async def test_a_task_remembers_that_its_parent_had_read_the_web(
    stack: Stack, parent: Turn
) -> None:
    await parent.lease.turns.note_web()
    run = await spawned(stack, parent)
    await drain(stack, accepted(run))

    sid, _, entry = run.run_id.partition("-")
    assert await stack.fleet.scripts.client.hget(keys.state(sid), "web_turn") == entry.encode()


async def test_a_result_tells_that_a_turn_which_had_read_the_web_has_steered_the_task(
    stack: Stack, parent: Turn
) -> None:
    run = await spawned(stack, parent, "wait")
    working = drain(stack, accepted(run))
    await stack.reached(accepted(run), "output")
    await parent.lease.turns.note_web()
    sent = await tell(stack, parent, "second")
    go(stack)
    await working

    _, result = await entries(stack, parent.lease.session)
    assert sent.taken == "joined"
    assert messages.has_read_web([result])


async def test_a_message_to_a_retried_task_belongs_to_the_same_run(
    stack: Stack, parent: Turn
) -> None:
    run = await spawned(stack, parent)
    child = await take_up(stack, run.child_session_key)
    (entry,) = await entries(stack, run.child_session_key)
    turn = messages.Turn(child.lease.session, (entry,))
    due = await result_of(child.lease, turn, "dead", [ReplyPayload("Given up.")], ())
    await child.lease.turns.finish("dead", reply=[], task_result=due)
    assert await child.lease.close()
    (letter,) = await stack.fleet.dead_letters.list()
    await stack.fleet.dead_letters.retry(letter.id)

    sent = await tell(stack, parent, "images too")

    assert (sent.taken, sent.runs[0].run_id) == ("waiting", run.run_id)


async def test_another_run_of_a_task_is_cancelled_by_its_own_run_id(
    stack: Stack, parent: Turn
) -> None:
    first = await spawned(stack, parent)
    await work(stack, first.child_session_key)
    (second,) = (await tell(stack, parent, "images too", run_id=first.run_id)).runs
    why = await refused(stack, parent, "subagents", action="cancel", params={"runId": first.run_id})
    cancelled = await call(
        stack, parent, "subagents", action="cancel", params={"runId": second.run_id}
    )
    await work(stack, first.child_session_key)

    assert why == f"That run has ended. The current run of its session is {second.run_id}."
    assert cancelled.cancelled == 1
    assert [run for run, _ in await results(stack, parent)] == [first.run_id]


async def test_another_run_of_a_task_can_use_the_lease_of_the_first(
    stack: Stack, parent: Turn
) -> None:
    """The worker acquired the lease for the first run."""
    first = await spawned(stack, parent)
    child = await take_up(stack, first.child_session_key)

    async def answer(text: str) -> None:
        (entry,) = await entries(stack, first.child_session_key)
        turn = messages.Turn(child.lease.session, (entry,))
        due = await result_of(child.lease, turn, "done", [ReplyPayload(text)], ())
        await child.lease.turns.finish("done", reply=[], task_result=due)

    await answer("No dead links.")
    sent = await tell(stack, parent, "images too")
    assert await child.lease.turns.begin([accepted(sent.runs[0]).entry_id])
    await answer("Two dead images.")

    assert sent.taken == "continued"
    assert await results(stack, parent) == [
        (first.run_id, "No dead links."),
        (sent.runs[0].run_id, "Two dead images."),
    ]


# -- repeated calls and senders --------------------------------------------------------------------


async def test_a_repeated_tell_call_sends_nothing(stack: Stack, parent: Turn) -> None:
    run = await spawned(stack, parent)
    first = await tell(stack, parent, "images too", call_id="c1")
    again = await tell(stack, parent, "images too", call_id="c1")
    at_child = await entries(stack, run.child_session_key)
    notes = [note for note in await parent.lease.turns.side_effects() if note["text"] != "links"]

    assert again == first
    assert [entry.message.text for entry in at_child] == ["links", "images too"]
    assert [(note["tool"], note["to"]) for note in notes] == [("subagents", "links")]


async def test_a_turn_that_was_taken_over_cannot_message_its_tasks(
    stack: Stack, parent: Turn
) -> None:
    """Its worker was killed, so further calls of its agent are refused."""
    run = await spawned(stack, parent)
    sent = await tell(stack, parent, "images too", call_id="c1")
    lease = await take_over(stack, parent)
    why = await refused_tell(stack, parent, params={"label": "links"})
    notes = await lease.lease.turns.side_effects()

    assert sent.taken == "waiting"
    assert "not valid any more" in why
    assert len(await entries(stack, run.child_session_key)) == 2
    assert [note["text"] for note in notes] == ["links", "images too"]


async def test_a_message_to_a_task_carries_the_people_of_the_turn(
    stack: Stack, parent: Turn
) -> None:
    run = await spawned(stack, parent)
    await tell(stack, parent, "images too")
    entry: Entry = (await entries(stack, run.child_session_key))[1]

    assert (entry.deliver, entry.origin, entry.people) == ("parent", "session", ("test:alice",))
    assert entry.provenance is not None
    own = parent.lease.session
    assert (entry.provenance.by, entry.provenance.parent) == (str(own), str(own))
    assert (entry.provenance.via, entry.provenance.hops) == ((own.sid,), 1)


async def test_an_operator_can_message_a_task_of_a_session(stack: Stack, parent: Turn) -> None:
    run = await spawned(stack, parent)
    key = str(parent.lease.session)
    sent = await tell(stack, operator(), "images too", session_key=key)

    assert sent.taken == "waiting"
    assert len(await entries(stack, run.child_session_key)) == 2


# -- refusals --------------------------------------------------------------------------------------


async def test_invalid_messages_to_tasks_are_refused(stack: Stack, parent: Turn) -> None:
    run = await spawned(stack, parent)
    other = await begin_turn(stack, HANDLERS, from_="bob")
    target = {"params": {"runId": run.run_id}}

    assert "needs runId or label" in await refused_tell(stack, parent)
    assert "tell needs message" in await refused_tell(stack, parent, message=None, **target)
    assert "has no such task" in await refused_tell(stack, other, **target)
    assert "has no such task" in await refused_tell(
        stack, parent, params={"runId": f"{'0' * 32}-1-0"}
    )
    await call(stack, parent, "subagents", action="cancel", **target)
    cancelled = await refused_tell(stack, parent, **target)
    await work(stack, run.child_session_key)

    assert cancelled == "That task was cancelled: start another one with sessions_spawn."
    assert await refused_tell(stack, parent, **target) == cancelled


async def test_a_message_to_a_task_that_failed_three_times_is_refused(
    stack: Stack, parent: Turn
) -> None:
    run = await spawned(stack, parent)
    child = await take_up(stack, run.child_session_key)
    await child.lease.turns.finish("dead", reply=[])

    why = await refused_tell(stack, parent, params={"runId": run.run_id})

    assert why.startswith("That task failed three times")


async def test_a_session_can_message_its_own_tasks_but_not_their_tasks(stack: Stack) -> None:
    may(stack, sessions={"max_depth": 2})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one")
    child = await take_up(stack, first.child_session_key)
    second = await call(stack, child, "sessions_spawn", prompt="two")

    why = await refused_tell(stack, parent, params={"runId": second.run_id})

    assert why == (
        f"Only the session that started this task can message it: {first.child_session_key}."
    )


async def test_the_limits_of_tasks_also_apply_to_another_run(stack: Stack) -> None:
    may(stack, sessions={"max_children": 1, "max_hops": 1})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one", label="links")
    await work(stack, first.child_session_key)
    second = await call(stack, parent, "sessions_spawn", prompt="two", label="two")
    full = await refused_tell(stack, parent, params={"label": "links"})
    may(stack, sessions={"max_tree": 1, "max_hops": 1})
    tree = await refused_tell(stack, parent, params={"label": "links"})
    joins = await call(
        stack, parent, "subagents", action="tell", params={"label": "two"}, message="more"
    )
    await parent.finish()
    result = (await entries(stack, parent.lease.session))[0]
    assert await parent.lease.turns.begin([result.id])
    hops = await refused_tell(stack, parent, params={"runId": second.run_id})

    assert tree.endswith(
        "this conversation's tree of unfinished tasks is at the limit of 1 (max_tree in "
        "[sessions]). Wait for their results, or cancel one with subagents."
    )
    assert "this session's unfinished tasks are at the limit of 1 (max_children in" in full
    assert joins.taken == "waiting"
    assert hops.startswith("Sessions have set each other going 2 times in a row")
