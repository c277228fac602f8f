"""Tasks that are told something: while they work, before they begin, and after they have ended."""

from pathlib import Path
from typing import Any

import pytest

from remoteclaw import messages
from remoteclaw.fleet.inbound import Accepted
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
    """A turn whose tasks say what they were asked, and what they knew before."""
    monkeypatch.setattr("remoteclaw.tasks.tell.JOIN_S", HANG_S)
    stack.agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    stack.configure(stack.agent)
    return await begin_turn(stack, HANDLERS)


async def tell(stack: Stack, turn: Any, text: str, **params: Any) -> Any:
    """Tell the task that is called `links` something, or the one of a run."""
    named = {"runId": params.pop("run_id")} if "run_id" in params else {"label": "links"}
    return await call(stack, turn, "subagents", action="tell", params=named, message=text, **params)


async def untold(stack: Stack, turn: Any, **params: Any) -> str:
    """Return why a task can't be told something."""
    return await refused(
        stack, turn, "subagents", **{"action": "tell", "message": "images too", **params}
    )


async def spawned(stack: Stack, parent: Turn, prompt: str = "links") -> Any:
    return await call(stack, parent, "sessions_spawn", prompt=prompt, label="links")


def accepted(run: Any) -> Accepted:
    """Return the entry that a run is called by."""
    sid, _, entry = run.run_id.partition("-")
    key = getattr(run, "child_session_key", None) or run.session_key
    assert SessionKey.parse(key).sid == sid
    return Accepted(SessionKey.parse(key), entry, False)


async def results(stack: Stack, parent: Turn) -> list[tuple[str, str]]:
    """Return run and text of each result."""
    found = await entries(stack, parent.lease.session)
    return [(str(each.provenance and each.provenance.run), each.message.text) for each in found[1:]]


# -- where it finds the task -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["collect", "followup", "steer", "interrupt"])
async def test_what_a_running_task_is_told_joins_its_turn(
    stack: Stack, parent: Turn, mode: str
) -> None:
    """In every mode of the queue; one result is about both."""
    stack.configure(stack.agent, queue={"mode": mode, "debounce_ms": 0})
    run = await spawned(stack, parent, "wait")
    working = drain(stack, accepted(run))
    await stack.reached(accepted(run), "output")
    told = await tell(stack, parent, "images too")
    listed = await call(stack, parent, "subagents")
    go(stack)
    await working
    after = await call(stack, parent, "subagents", action="status", params={"label": "links"})

    assert (told.taken, told.runs[0].run_id) == ("joined", run.run_id)
    assert listed.runs[0].state == "running"
    assert await results(stack, parent) == [(run.run_id, "heard wait, knew - & images too")]
    assert (after.runs[0].state, after.runs[0].result) == (
        "done",
        "heard wait, knew - & images too",
    )


async def test_what_a_task_is_told_before_it_begins_is_in_its_first_turn(
    stack: Stack, parent: Turn
) -> None:
    run = await spawned(stack, parent)
    told = await tell(stack, parent, "images too")
    await tell(stack, parent, "and the fonts")
    await work(stack, run.child_session_key)

    assert (told.taken, told.runs[0].run_id) == ("waiting", run.run_id)
    assert await results(stack, parent) == [
        (run.run_id, "heard links + images too + and the fonts, knew -")
    ]


async def test_what_a_turn_does_not_take_up_is_answered_behind_it_in_one_result(
    stack: Stack, parent: Turn
) -> None:
    """Nothing of either answer is lost, and there is one result."""
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


async def test_a_turn_that_takes_nothing_in_leaves_it_waiting(
    stack: Stack, parent: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.tasks.tell.JOIN_S", 0.0)
    run = await spawned(stack, parent)
    child = await take_up(stack, run.child_session_key)
    told = await tell(stack, parent, "images too")
    listed = await call(stack, parent, "subagents")

    assert told.taken == "waiting"
    assert (listed.runs[0].run_id, listed.runs[0].state) == (run.run_id, "accepted")
    await child.finish()


async def test_a_task_that_has_ended_goes_on_under_another_name(stack: Stack, parent: Turn) -> None:
    """It remembers what it was asked, and each run has one result."""
    first = await spawned(stack, parent, "deaf")
    working = drain(stack, accepted(first))
    await stack.reached(accepted(first), "output")
    await tell(stack, parent, "fonts too")
    go(stack)
    await working
    told = await tell(stack, parent, "images too")
    (second,) = told.runs
    waiting = await call(stack, parent, "subagents")
    await work(stack, first.child_session_key)
    after = await call(stack, parent, "subagents", action="status", params={"label": "links"})

    assert told.taken == "continued"
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


async def test_what_a_task_is_told_is_not_overtaken(
    stack: Stack, parent: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits behind a turn that began before it could be a part of that."""
    monkeypatch.setattr("remoteclaw.tasks.tell.JOIN_S", 0.0)
    run = await spawned(stack, parent, "wait")
    async with dying(stack, accepted(run)):
        await tell(stack, parent, "first")
    working = drain(stack, accepted(run))
    await stack.reached(accepted(run), "output")
    told = await tell(stack, parent, "second")
    go(stack)
    await working

    assert told.taken == "waiting"
    ((_, text),) = await results(stack, parent)
    assert [part for part in text.split("\n\n") if "heard" in part] == [
        "heard wait, knew -",
        "heard first + second, knew wait",
    ]


async def test_a_task_that_is_retried_is_told_in_the_same_run(stack: Stack, parent: Turn) -> None:
    run = await spawned(stack, parent)
    child = await take_up(stack, run.child_session_key)
    (entry,) = await entries(stack, run.child_session_key)
    turn = messages.Turn(child.lease.session, (entry,))
    due = await result_of(child.lease, turn, "dead", [ReplyPayload("Given up.")], ())
    await child.lease.turns.finish("dead", reply=[], task_result=due)
    assert await child.lease.close()
    (letter,) = await stack.fleet.dead_letters.list()
    await stack.fleet.dead_letters.retry(letter.id)

    told = await tell(stack, parent, "images too")

    assert (told.taken, told.runs[0].run_id) == ("waiting", run.run_id)


async def test_a_run_that_goes_on_is_cancelled_by_its_own_name(stack: Stack, parent: Turn) -> None:
    first = await spawned(stack, parent)
    await work(stack, first.child_session_key)
    (second,) = (await tell(stack, parent, "images too", run_id=first.run_id)).runs
    why = await refused(stack, parent, "subagents", action="cancel", params={"runId": first.run_id})
    cancelled = await call(
        stack, parent, "subagents", action="cancel", params={"runId": second.run_id}
    )
    await work(stack, first.child_session_key)

    assert why == f"That run has ended. What its session does now is {second.run_id}."
    assert cancelled.cancelled == 1
    assert [run for run, _ in await results(stack, parent)] == [first.run_id]


async def test_a_task_goes_on_under_another_name_with_the_same_worker(
    stack: Stack, parent: Turn
) -> None:
    """Its lease was taken when it had the first one."""
    first = await spawned(stack, parent)
    child = await take_up(stack, first.child_session_key)

    async def answer(text: str) -> None:
        (entry,) = await entries(stack, first.child_session_key)
        turn = messages.Turn(child.lease.session, (entry,))
        due = await result_of(child.lease, turn, "done", [ReplyPayload(text)], ())
        await child.lease.turns.finish("done", reply=[], task_result=due)

    await answer("No dead links.")
    told = await tell(stack, parent, "images too")
    assert await child.lease.turns.begin([accepted(told.runs[0]).entry_id])
    await answer("Two dead images.")

    assert told.taken == "continued"
    assert await results(stack, parent) == [
        (first.run_id, "No dead links."),
        (told.runs[0].run_id, "Two dead images."),
    ]


# -- once, and by whom -----------------------------------------------------------------------------


async def test_the_same_call_again_tells_nothing(stack: Stack, parent: Turn) -> None:
    run = await spawned(stack, parent)
    first = await tell(stack, parent, "images too", call_id="c1")
    again = await tell(stack, parent, "images too", call_id="c1")
    at_child = await entries(stack, run.child_session_key)
    notes = [note for note in await parent.lease.turns.side_effects() if note["text"] != "links"]

    assert again == first
    assert [entry.message.text for entry in at_child] == ["links", "images too"]
    assert [(note["tool"], note["to"]) for note in notes] == [("subagents", "links")]


async def test_a_turn_that_was_taken_over_tells_nothing(stack: Stack, parent: Turn) -> None:
    """Its worker was killed: what its agent still asks for is refused."""
    run = await spawned(stack, parent)
    told = await tell(stack, parent, "images too", call_id="c1")
    lease = await take_over(stack, parent)
    why = await untold(stack, parent, params={"label": "links"})
    notes = await lease.lease.turns.side_effects()

    assert told.taken == "waiting"
    assert "not valid any more" in why
    assert len(await entries(stack, run.child_session_key)) == 2
    assert [note["text"] for note in notes] == ["links", "images too"]


async def test_it_is_said_on_behalf_of_the_people_of_the_turn(stack: Stack, parent: Turn) -> None:
    run = await spawned(stack, parent)
    await tell(stack, parent, "images too")
    entry: Entry = (await entries(stack, run.child_session_key))[1]

    assert (entry.deliver, entry.origin, entry.people) == ("parent", "session", ("test:alice",))
    assert entry.provenance is not None
    own = parent.lease.session
    assert (entry.provenance.by, entry.provenance.parent) == (str(own), str(own))
    assert (entry.provenance.via, entry.provenance.hops) == ((own.sid,), 1)


async def test_an_operator_tells_a_task_of_a_session(stack: Stack, parent: Turn) -> None:
    run = await spawned(stack, parent)
    key = str(parent.lease.session)
    told = await tell(stack, operator(), "images too", session_key=key)

    assert told.taken == "waiting"
    assert len(await entries(stack, run.child_session_key)) == 2


# -- refusals --------------------------------------------------------------------------------------


async def test_what_can_not_be_told(stack: Stack, parent: Turn) -> None:
    run = await spawned(stack, parent)
    other = await begin_turn(stack, HANDLERS, from_="bob")
    named = {"params": {"runId": run.run_id}}

    assert "needs runId or label" in await untold(stack, parent)
    assert "tell needs message" in await untold(stack, parent, message=None, **named)
    assert "has no such task" in await untold(stack, other, **named)
    assert "has no such task" in await untold(stack, parent, params={"runId": f"{'0' * 32}-1-0"})
    await call(stack, parent, "subagents", action="cancel", **named)
    cancelled = await untold(stack, parent, **named)
    await work(stack, run.child_session_key)

    assert cancelled == "That task was cancelled: start another one with sessions_spawn."
    assert await untold(stack, parent, **named) == cancelled


async def test_a_task_that_was_given_up_is_told_nothing(stack: Stack, parent: Turn) -> None:
    run = await spawned(stack, parent)
    child = await take_up(stack, run.child_session_key)
    await child.lease.turns.finish("dead", reply=[])

    why = await untold(stack, parent, params={"runId": run.run_id})

    assert why.startswith("That task was given up after three tries")


async def test_a_session_tells_its_own_tasks_and_not_theirs(stack: Stack) -> None:
    may(stack, sessions={"max_depth": 2})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one")
    child = await take_up(stack, first.child_session_key)
    second = await call(stack, child, "sessions_spawn", prompt="two")

    why = await untold(stack, parent, params={"runId": second.run_id})

    assert why == (
        f"Only the session that has started it can tell it that: {first.child_session_key}."
    )


async def test_the_limits_of_tasks_hold_for_one_that_goes_on(stack: Stack) -> None:
    may(stack, sessions={"max_children": 1, "max_hops": 1})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one", label="links")
    await work(stack, first.child_session_key)
    second = await call(stack, parent, "sessions_spawn", prompt="two", label="two")
    full = await untold(stack, parent, params={"label": "links"})
    may(stack, sessions={"max_tree": 1, "max_hops": 1})
    tree = await untold(stack, parent, params={"label": "links"})
    joins = await call(
        stack, parent, "subagents", action="tell", params={"label": "two"}, message="more"
    )
    await parent.finish()
    result = (await entries(stack, parent.lease.session))[0]
    assert await parent.lease.turns.begin([result.id])
    hops = await untold(stack, parent, params={"runId": second.run_id})

    assert tree.startswith("It has ended, and 1 sessions below this conversation have not")
    assert full.startswith("It has ended, and 1 of the sessions that this one has started have not")
    assert joins.taken == "waiting"
    assert hops.startswith("Sessions have set each other going 2 times in a row")
