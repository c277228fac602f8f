"""Sessions that work together, when something fails."""

import asyncio
from typing import Any

import orjson
import pytest

from remoteclaw.errors import CallRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.messages import Entry, SessionKey
from tests.support.doors import calling, opened
from tests.support.stack import Stack
from tests.support.tasks import HANDLERS, call, entries, may, refused, take_over, take_up, work
from tests.support.turns import Turn, begin_turn, gateway
from tests.support.waiting import HANG_S, eventually


async def results(stack: Stack, session: SessionKey) -> list[Entry]:
    return [entry for entry in await entries(stack, session) if entry.origin == "result"]


async def make_dead_letter(child: Turn) -> None:
    """Make the entry of a task a dead letter."""
    await child.lease.turns.finish("dead", reply=[], error={"category": "died"})
    assert await child.lease.close()


async def retry(stack: Stack) -> None:
    (letter,) = await stack.fleet.dead_letters.list()
    await stack.fleet.dead_letters.retry(letter.id)


# -- dead letters ----------------------------------------------------------------------------------


async def test_a_task_retried_after_its_state_expired_still_returns_its_result(
    stack: Stack, parent: Turn
) -> None:
    """Its result goes to the parent, and it has no more tools than before."""
    started = await call(stack, parent, "sessions_spawn", prompt="hello")
    child = await take_up(stack, started.child_session_key)
    await make_dead_letter(child)
    await stack.fleet.scripts.client.delete(keys.state(child.lease.sid))  # as after eight days
    await retry(stack)
    again = await take_up(stack, started.child_session_key)
    for tool, params in (("sessions_spawn", {"prompt": "x"}), ("sessions_list", {})):
        assert "The policy doesn't allow" in await refused(stack, again, tool, **params)
    await stack.fleet.scripts.client.hset(keys.state(child.lease.sid), "lease_until_ms", 0)
    await work(stack, started.child_session_key)

    (result,) = await results(stack, parent.lease.session)
    assert result.provenance is not None
    assert result.provenance.status == "done"


async def test_a_retried_task_is_the_same_run(stack: Stack, parent: Turn) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="hello")
    await make_dead_letter(await take_up(stack, started.child_session_key))
    dead = await call(stack, parent, "subagents")
    await retry(stack)
    await work(stack, started.child_session_key)
    done = await call(stack, parent, "subagents")

    assert [run.state for run in (*dead.runs, *done.runs)] == ["dead", "done"]
    runs = [result.provenance for result in await results(stack, parent.lease.session)]
    assert [run.run for run in runs if run] == [started.run_id]


async def test_a_retried_result_does_not_count_as_a_persons_message(
    stack: Stack, parent: Turn
) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="hello")
    await work(stack, started.child_session_key)
    await parent.finish()
    (result,) = await entries(stack, parent.lease.session)
    assert await parent.lease.turns.begin([result.id])
    await parent.lease.turns.finish("dead", reply=[], error={"category": "died"})
    state, client = keys.state(parent.lease.sid), stack.fleet.scripts.client
    before = await client.hget(state, "last_said_entry")
    await retry(stack)

    assert await client.hget(state, "last_said_entry") == before


# -- retries ---------------------------------------------------------------------------------------


async def test_a_retry_starts_a_new_task_for_one_that_was_cancelled(
    stack: Stack, parent: Turn
) -> None:
    first = await call(stack, parent, "sessions_spawn", prompt="dice", call_id="a")
    target = {"runId": first.run_id}
    await call(stack, parent, "subagents", action="cancel", params=target)
    turn = await take_over(stack, parent)
    again = await call(stack, turn, "sessions_spawn", prompt="dice", call_id="b")
    await work(stack, first.child_session_key)
    await work(stack, again.child_session_key)

    runs = [result.provenance for result in await results(stack, parent.lease.session)]
    assert [run.run for run in runs if run] == [again.run_id]


async def test_another_agent_process_in_the_same_attempt_gets_the_same_task(
    stack: Stack, parent: Turn
) -> None:
    """The first process died without output, so the next one runs in the same attempt."""
    first = await call(stack, parent, "sessions_spawn", prompt="dice", call_id="a")
    await parent.lease.grant("6" * 64, {"sessions_spawn"})
    other = Turn(parent.id, parent.lease, parent.agent.__class__(parent.lease.sid, "6" * 64),
                 gateway(stack.fleet, stack.home, HANDLERS))  # fmt: skip
    again = await call(stack, other, "sessions_spawn", prompt="dice", call_id="b")

    assert again == first


async def test_messages_that_are_retried_one_by_one_start_no_task_twice(stack: Stack) -> None:
    one, two = await stack.append("one"), await stack.append("two")
    sid, ids = one.session.sid, [one.entry_id, two.entry_id]

    async def attempt(number: int) -> Turn:
        await stack.fleet.scripts.client.hset(keys.state(sid), "lease_until_ms", 0)
        lease = await stack.fleet.leases.acquire(sid, worker="w", host=stack.home.host_id)
        assert lease is not None
        batch = await lease.turns.begin(ids)
        assert batch is not None
        digest = str(number) * 64
        await lease.grant(digest, {"sessions_spawn"})
        agent = turn.agent.__class__(sid, digest)
        return Turn(batch.turn, lease, agent, gateway(stack.fleet, stack.home, HANDLERS))

    turn = await begin_turn(stack, HANDLERS, from_="somebody else")
    first = await call(stack, await attempt(1), "sessions_spawn", prompt="two's", call_id="a")
    again = await call(stack, await attempt(2), "sessions_spawn", prompt="two's", call_id="b")
    alone = await attempt(3)
    await alone.finish()
    batch = await alone.lease.turns.begin([two.entry_id])
    assert batch is not None
    assert batch.attempt == 3
    await alone.lease.grant("4" * 64, {"sessions_spawn"})
    last = Turn(batch.turn, alone.lease, turn.agent.__class__(sid, "4" * 64), turn.gateway)
    third = await call(stack, last, "sessions_spawn", prompt="two's", call_id="c")

    assert again.run_id == third.run_id == first.run_id


# -- tasks that have tasks -------------------------------------------------------------------------


async def test_a_task_that_starts_tasks_has_one_result(stack: Stack) -> None:
    """It is the result of the turn after which no task is left."""
    may(stack, sessions={"max_depth": 2, "max_children": 1})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one")
    child = await take_up(stack, first.child_session_key)
    second = await call(stack, child, "sessions_spawn", prompt="hello")
    await stack.fleet.scripts.client.hset(keys.state(child.lease.sid), "lease_until_ms", 0)
    await work(stack, first.child_session_key)
    before = await results(stack, parent.lease.session)
    full = await refused(stack, parent, "sessions_spawn", prompt="another")
    await work(stack, second.child_session_key)
    await work(stack, first.child_session_key)
    after = await results(stack, parent.lease.session)

    assert before == []
    assert full.startswith("1 of the sessions that this one has started")
    assert [one.provenance.run for one in after if one.provenance] == [first.run_id]


async def test_a_task_whose_tasks_are_cancelled_has_a_result(stack: Stack) -> None:
    may(stack, sessions={"max_depth": 2})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one")
    child = await take_up(stack, first.child_session_key)
    await call(stack, child, "sessions_spawn", prompt="two")
    await call(stack, child, "subagents", action="cancel")
    await stack.fleet.scripts.client.hset(keys.state(child.lease.sid), "lease_until_ms", 0)
    await work(stack, first.child_session_key)

    assert len(await results(stack, parent.lease.session)) == 1


async def test_a_message_to_the_session_of_a_task_does_not_replace_its_result(stack: Stack) -> None:
    may(stack)
    parent = await begin_turn(stack, HANDLERS)
    started = await call(stack, parent, "sessions_spawn", prompt="hello")
    named = {"sessionKey": started.child_session_key}
    await call(stack, parent, "sessions_send", **named, message="and?", timeout=0)
    await work(stack, started.child_session_key)

    assert len(await results(stack, parent.lease.session)) == 1


# -- waiting ---------------------------------------------------------------------------------------


async def test_a_session_that_no_longer_waits_is_not_refused_for_waiting(stack: Stack) -> None:
    """A asks B. B starts a task for it, and writes to A when the task is done."""
    may(stack)
    a = await begin_turn(stack, HANDLERS)
    b = await stack.append("hello", from_="bob")
    await work(stack, str(b.session))
    named = {"sessionKey": str(b.session)}
    await call(stack, a, "sessions_send", **named, message="tell me when done", timeout=0)
    in_b = await take_up(stack, b.session)
    started = await call(stack, in_b, "sessions_spawn", prompt="hello")
    await in_b.finish()
    await work(stack, started.child_session_key)
    (result,) = await entries(stack, b.session)
    assert await in_b.lease.turns.begin([result.id])
    why = await refused(
        stack, in_b, "sessions_send", sessionKey=str(a.lease.session), message="done", timeout=0
    )

    # No session waits. The refusal has another reason: the turn has no person's rights.
    assert "that this agent may see" in why


async def test_two_running_turns_cannot_wait_for_each_other(stack: Stack) -> None:
    may(stack)
    a = await begin_turn(stack, HANDLERS)
    b = await begin_turn(stack, HANDLERS, from_="bob")
    to_a, to_b = ({"sessionKey": str(turn.lease.session)} for turn in (a, b))
    waiting = asyncio.create_task(call(stack, a, "sessions_send", **to_b, message="?", timeout=60))
    client: Any = stack.fleet.scripts.client
    await eventually(lambda: client.zcard(keys.WAITS))
    why = await refused(stack, b, "sessions_send", **to_a, message="?", timeout=60)
    sent = await call(stack, b, "sessions_send", **to_a, message="later", timeout=0)
    waiting.cancel()

    assert "waits for this one at the moment" in why
    assert sent.status == "accepted"
    assert [entry.message.text for entry in await entries(stack, a.lease.session)][1:] == ["later"]


@pytest.mark.parametrize("door", ["mcp", "invoke"])
async def test_a_wait_ends_with_its_turn(stack: Stack, door: str) -> None:
    """The agent is gone without having ended its call."""
    stack.configure({"runtime": "demo", "sees_sessions": "all"})
    for _ in range(2):
        await stack.start_worker()
    bob = await stack.append("hello", from_="bob")
    await stack.outcome(bob)
    await stack.append("slow", from_="bob")
    args = {"sessionKey": str(bob.session), "message": "hello", "timeout": 100}
    client: Any = stack.fleet.scripts.client
    async with opened(stack) as at, calling(stack) as agent:
        if door == "invoke":
            request = at.invoke(agent.token, "sessions_send", args)
        else:
            params = {"name": "sessions_send", "arguments": args}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            headers = {
                "Accept": "application/json, text/event-stream",
                "Content-Type": "application/json",
                "MCP-Protocol-Version": "2025-06-18",
            }
            request = at.post("/mcp", agent.token, orjson.dumps(body), **headers)
        call_task = asyncio.create_task(request)
        await eventually(lambda: client.zcard(keys.WAITS))
        call_task.cancel()
        await agent.finish()
        other = await begin_turn(stack, HANDLERS, from_="dora")
        view = await stack.fleet.sessions.view(bob.session.sid)
        assert view is not None
        waiting = stack.fleet.wait_limit.hold(other.lease.sid, other.id, view, timeout_s=HANG_S)
        async with waiting as verdict:
            pass
        await stack.fleet.sessions.stop(bob.session.sid)

    assert verdict == "free"


async def test_a_wait_is_refused_if_the_other_sessions_host_has_no_free_worker(
    stack: Stack,
) -> None:
    """There is another worker, but not on the host of the other session's agent."""
    may(stack)
    bob = await stack.append("hello", from_="bob")
    await stack.start_worker()
    await stack.outcome(bob)
    view = await stack.fleet.sessions.view(bob.session.sid)
    alice = await begin_turn(stack, HANDLERS)
    assert view is not None
    async with stack.fleet.wait_limit.hold(
        alice.lease.sid, alice.id, view, timeout_s=HANG_S
    ) as verdict:
        assert verdict == "full"


async def test_two_waits_of_one_call_are_counted_separately(stack: Stack) -> None:
    """A connector repeats a call with the same id; one of the two waits ends first."""
    may(stack)
    alice = await begin_turn(stack, HANDLERS)
    bob = await stack.append("hello", from_="bob")
    view = await stack.fleet.sessions.view(bob.session.sid)
    assert view is not None
    client: Any = stack.fleet.scripts.client
    hold = stack.fleet.wait_limit.hold
    async with hold(alice.lease.sid, alice.id, view, timeout_s=HANG_S):
        async with hold(alice.lease.sid, alice.id, view, timeout_s=HANG_S):
            pass
        assert await client.zcard(keys.WAITS) == 1
    assert await client.zcard(keys.WAITS) == 0


async def test_a_message_is_not_sent_if_its_wait_cannot_be_registered(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    may(stack)
    bob = await stack.append("hello", from_="bob")
    alice = await begin_turn(stack, HANDLERS)

    async def away(*_: Any) -> Any:
        raise RedisUnavailable("Redis can't be reached.")

    monkeypatch.setattr("remoteclaw.fleet.workers.Workers.list", away)
    with pytest.raises(CallRefused, match="Redis can't be reached"):
        await call(stack, alice, "sessions_send", sessionKey=str(bob.session), message="pay")

    assert len(await entries(stack, bob.session)) == 1


# -- labels ----------------------------------------------------------------------------------------


async def test_a_taken_label_does_not_reveal_its_session(stack: Stack) -> None:
    bob = await stack.append("hello", from_="bob", channel_id="hidden")
    view = await stack.fleet.sessions.view(bob.session.sid)
    assert view is not None
    await stack.fleet.sessions.label(view, "salary")
    alice = await begin_turn(stack, HANDLERS)

    why = await refused(stack, alice, "sessions_spawn", prompt="x", label="salary")
    assert why == "The label 'salary' is taken: choose another one."
