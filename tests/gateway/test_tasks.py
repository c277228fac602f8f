"""Tasks: sessions that start other sessions, tested by the entries in their streams."""

import asyncio
from pathlib import Path
from typing import Any

from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.gateway.methods import writing
from remoteclaw.messages import SessionKey
from remoteclaw.tools.tasks import SpawnResult
from tests.support.bridges import script
from tests.support.conversations import drain
from tests.support.stack import Stack
from tests.support.tasks import HANDLERS, call, entries, may, refused, take_over, take_up, work
from tests.support.turns import Turn, begin_turn, operator
from tests.support.waiting import eventually

ADMIN = operator()


# -- starting tasks --------------------------------------------------------------------------------


async def test_a_task_has_its_own_session(stack: Stack, parent: Turn) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="count the files", label="files")
    child = SessionKey.parse(started.child_session_key)
    (entry,) = await entries(stack, child)
    view = await stack.fleet.sessions.view(child.sid)

    own = parent.lease.session
    assert child.task
    assert (child.agent, child.provider, child.channel_id) == ("main", "test", own.channel_id)
    assert started.run_id == f"{child.sid}-{entry.id}"
    assert (entry.message.text, entry.deliver, entry.origin) == (
        *("count the files", "parent"),
        "session",
    )
    assert entry.provenance is not None
    assert (entry.provenance.by, entry.provenance.via, entry.provenance.hops) == (
        *(str(own), (own.sid,)),
        1,
    )
    assert view is not None
    assert (view.parent, view.limits.depth, view.label, view.lane) == (
        own,
        1,
        "files",
        "background",
    )
    assert [(note["tool"], note["text"]) for note in await parent.lease.turns.side_effects()] == [
        ("sessions_spawn", "count the files")
    ]


async def test_the_result_of_a_task_returns_as_an_entry(stack: Stack, parent: Turn) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="hello", label="greeter")
    await work(stack, started.child_session_key)
    await work(stack, started.child_session_key)  # there is nothing more to do
    _, result = await entries(stack, parent.lease.session)

    assert "RemoteClaw's demo agent" in result.message.text
    assert "not a complete answer" not in result.message.text
    assert (result.deliver, result.origin) == ("channel", "result")
    assert result.provenance is not None
    provenance = result.provenance
    assert (provenance.by, provenance.run) == (started.child_session_key, started.run_id)
    assert (provenance.status, provenance.label, provenance.via, provenance.hops) == (
        "done",
        "greeter",
        (),
        2,
    )


async def test_a_task_counts_for_whom_its_parent_worked_and_for_the_conversation(
    stack: Stack, parent: Turn
) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="hello")
    await work(stack, started.child_session_key)
    child = SessionKey.parse(started.child_session_key)
    _, result = await entries(stack, parent.lease.session)

    client: Any = stack.fleet.scripts.client
    own = parent.lease.sid
    (day,) = await client.keys(keys.spent("*-*-*"))
    used = (await stack.fleet.usage.session("main", child.sid)).encode()
    assert used.startswith("1 ")
    assert await client.hget(day, "person test:alice") == used.encode()
    assert await client.hget(keys.state(own), f"tree {own}") == used.encode()
    assert not await client.hexists(keys.state(child.sid), f"tree {child.sid}")
    assert result.provenance is not None
    assert result.provenance.payers == ("test:alice",)


async def test_a_message_to_another_session_counts_for_whom_its_sender_worked(
    stack: Stack, parent: Turn
) -> None:
    """It has nobody's rights there; else a person could spend without limit in a second session."""
    may(stack)
    other = await stack.append("hello", channel_id="chat-2", from_="bob")
    named = {"sessionKey": str(other.session), "timeout": 0}
    await call(stack, parent, "sessions_send", **named, message="and?")
    *_, sent = await entries(stack, other.session)

    assert sent.provenance is not None
    assert (sent.provenance.payers, sent.people) == (("test:alice",), ())


async def test_a_failed_task_returns_a_failed_result(stack: Stack, parent: Turn) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="fail")
    await work(stack, started.child_session_key)
    _, result = await entries(stack, parent.lease.session)

    assert result.provenance is not None
    assert result.provenance.status == "failed"
    assert result.message.text


async def test_a_repeated_spawn_call_starts_no_second_task(stack: Stack, parent: Turn) -> None:
    first = await call(stack, parent, "sessions_spawn", prompt="once", call_id="c1")
    again = await call(stack, parent, "sessions_spawn", prompt="once", call_id="c1")

    assert again == first
    assert len(await entries(stack, first.child_session_key)) == 1


async def test_a_new_attempt_reuses_the_tasks_of_the_previous_attempt(
    stack: Stack, parent: Turn
) -> None:
    async def spawn(turn: Turn, call_id: str, prompt: str = "dice") -> SpawnResult:
        result: SpawnResult = await call(
            stack, turn, "sessions_spawn", prompt=prompt, call_id=call_id
        )
        return result

    first = [await spawn(parent, name) for name in ("a", "b")]
    # Its worker is killed: another one begins the same turn again, with a new agent.
    lease = await take_over(stack, parent)
    again = [await spawn(lease, name) for name in ("c", "d", "e")]
    other = await spawn(lease, "f", "other dice")

    assert [one.run_id for one in again[:2]] == [one.run_id for one in first]
    assert len({one.run_id for one in (*again, other)}) == 4
    notes = await lease.lease.turns.side_effects()
    assert [note["text"] for note in notes] == ["dice", "dice", "dice", "other dice"]


async def test_unfinished_tasks_of_one_session_are_limited(stack: Stack) -> None:
    may(stack, sessions={"max_children": 2})
    parent = await begin_turn(stack, HANDLERS)
    for number in range(2):
        await call(stack, parent, "sessions_spawn", prompt=f"task {number}")
    why = await refused(stack, parent, "sessions_spawn", prompt="one more")
    children = await stack.fleet.sessions.children(parent.lease.sid)
    await work(stack, str(children[0].key))

    assert why.startswith("2 of the sessions that this one has started have not ended yet")
    assert await call(stack, parent, "sessions_spawn", prompt="one more")


async def test_the_depth_of_tasks_is_limited(stack: Stack) -> None:
    may(stack, sessions={"max_depth": 2})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one")
    child = await take_up(stack, first.child_session_key)
    second = await call(stack, child, "sessions_spawn", prompt="two")
    grandchild = await take_up(stack, second.child_session_key)
    why = await refused(stack, grandchild, "sessions_spawn", prompt="three")

    assert "can't start another one" in why


async def test_a_grandchilds_result_goes_only_to_its_own_parent(stack: Stack) -> None:
    may(stack, sessions={"max_depth": 2})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one")
    child = await take_up(stack, first.child_session_key)
    second = await call(stack, child, "sessions_spawn", prompt="hello")
    await work(stack, second.child_session_key)
    _, result = await entries(stack, first.child_session_key)

    assert (result.deliver, result.origin) == ("parent", "result")
    assert result.provenance is not None
    assert result.provenance.via == (parent.lease.sid,)
    assert len(await entries(stack, parent.lease.session)) == 1


async def test_a_task_has_only_the_tools_of_its_depth(stack: Stack, parent: Turn) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="x")
    child = await take_up(stack, started.child_session_key)

    for tool in ("sessions_spawn", "sessions_send", "sessions_list", "subagents"):
        params = {"prompt": "x"} if tool == "sessions_spawn" else {}
        why = await refused(stack, child, tool, **params)
        assert why == f"The policy doesn't allow {tool} here."


async def test_an_agent_starts_tasks_of_other_agents_only_if_configured(stack: Stack) -> None:
    stack.configure({"runtime": "demo"})
    text = stack.home.config_file.read_text()
    stack.home.config_file.write_text(text + '\n[agents.other]\nruntime = "demo"\n')
    parent = await begin_turn(stack, HANDLERS)
    why = await refused(stack, parent, "sessions_spawn", prompt="x", agentId="other")
    unknown = await refused(stack, parent, "sessions_spawn", prompt="x", agentId="nobody")
    stack.home.config_file.write_text(
        text.replace('runtime = "demo"', 'runtime = "demo"\nspawns = ["other"]')
        + '\n[agents.other]\nruntime = "demo"\n'
    )
    started = await call(stack, parent, "sessions_spawn", prompt="x", agentId="other")

    assert "may start only sessions of its own" in why
    assert "There is no agent 'nobody'" in unknown
    assert SessionKey.parse(started.child_session_key).agent == "other"


async def test_only_an_owners_turn_starts_a_task_for_another_chat(stack: Stack) -> None:
    channels = {"test": {"owners": ["olga"]}}
    stack.configure({"runtime": "demo"}, channels=channels)
    alice = await begin_turn(stack, HANDLERS)
    olga = await begin_turn(stack, HANDLERS, from_="olga")
    why = await refused(stack, alice, "sessions_spawn", prompt="x", channel="test:chat-9")
    own = await call(stack, alice, "sessions_spawn", prompt="x", channel="test:chat-1")
    started = await call(stack, olga, "sessions_spawn", prompt="x", channel="test:chat-9")

    assert why == "Only an owner's turn can start a session for another chat."
    assert SessionKey.parse(own.child_session_key).channel_id == "chat-1"
    assert SessionKey.parse(started.child_session_key).channel_id == "chat-9"


async def test_an_operator_starts_a_task_for_a_session(stack: Stack) -> None:
    alice = await stack.append("hello")
    key = str(alice.session)
    why = await refused(stack, ADMIN, "sessions_spawn", prompt="x")
    started = await call(stack, ADMIN, "sessions_spawn", prompt="hello", session_key=key)
    await work(stack, started.child_session_key)

    assert "name the session by sessionKey" in why
    assert [entry.origin for entry in await entries(stack, key)] == ["chat", "result"]


# -- labels ----------------------------------------------------------------------------------------


async def test_a_label_is_unique_within_an_agent_and_finds_its_session(stack: Stack) -> None:
    may(stack)
    parent = await begin_turn(stack, HANDLERS)
    started = await call(stack, parent, "sessions_spawn", prompt="x", label="plan")
    why = await refused(stack, parent, "sessions_spawn", prompt="y", label="plan")
    sent = await call(stack, parent, "sessions_send", label="plan", message="and?", timeout=0)
    unknown = await refused(stack, parent, "sessions_send", label="plans", message="and?")
    neither = await refused(stack, parent, "sessions_send", message="and?")
    listed = await call(stack, parent, "sessions_list", filter="PLAN")

    assert why == "The label 'plan' is taken: choose another one."
    assert sent.session_key == started.child_session_key
    assert "no session called 'plans'" in unknown
    assert "name the session by sessionKey or label" in neither
    assert [one.label for one in listed.sessions] == ["plan"]


async def test_the_label_of_a_forgotten_session_can_be_reused(stack: Stack, parent: Turn) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="x", label="plan")
    sid = SessionKey.parse(started.child_session_key).sid
    await stack.fleet.scripts.client.delete(keys.state(sid))

    again = await call(stack, parent, "sessions_spawn", prompt="y", label="plan")
    assert again.child_session_key != started.child_session_key


# -- who may write to whom -------------------------------------------------------------------------


async def test_a_session_cannot_write_to_a_session_that_waits_for_it(stack: Stack) -> None:
    """A asks B, whose agent asks A. A session that B has started asks B."""
    may(stack, sessions={"max_depth": 2})
    a = await begin_turn(stack, HANDLERS)
    b = await stack.append("hello", from_="bob")
    await work(stack, str(b.session))
    await call(stack, a, "sessions_send", sessionKey=str(b.session), message="ask A", timeout=0)
    in_b = await take_up(stack, b.session)
    a_key = str(a.lease.session)
    why = await refused(stack, in_b, "sessions_send", sessionKey=a_key, message="well?")
    own = await refused(stack, in_b, "sessions_send", sessionKey=str(b.session), message="well?")
    started = await call(stack, in_b, "sessions_spawn", prompt="ask A")
    in_c = await take_up(stack, started.child_session_key)
    parent = await refused(stack, in_c, "sessions_send", sessionKey=str(b.session), message="?")

    assert why == (
        f"The session {a_key} waits for the result of this turn: your answer is sent there "
        "automatically."
    )
    assert "waits for the result of this turn" in parent
    assert "would wait for its own turn" in own


async def test_no_turn_waits_when_no_worker_would_be_left(stack: Stack) -> None:
    """With two workers, one turn may wait, because its answer needs the other worker."""
    may(stack)
    for _ in range(2):
        await stack.start_worker()
    others = [await stack.append("hello", from_=name) for name in ("bob", "carol")]
    for other in others:
        await stack.outcome(other)
    # The sessions of the workers are idle. Two turns without a worker wait for their answers.
    alice = await begin_turn(stack, HANDLERS)
    dora = await begin_turn(stack, HANDLERS, from_="dora")
    waiting = asyncio.create_task(
        call(stack, alice, "sessions_send", sessionKey=str(others[0].session), message="slow")
    )
    client: Any = stack.fleet.scripts.client
    await eventually(lambda: client.zcard(keys.WAITS))
    sent = await call(
        stack, dora, "sessions_send", sessionKey=str(others[1].session), message="hello"
    )
    await stack.fleet.sessions.stop(others[0].session.sid)

    assert (sent.status, sent.reply) == ("accepted", None)
    assert sent.note == writing.NO_ANSWER_YET
    assert (await waiting).status == "failed"
    assert not await client.zcard(keys.WAITS)


async def test_a_wait_left_by_a_killed_gateway_expires(stack: Stack) -> None:
    client: Any = stack.fleet.scripts.client
    may(stack)
    for _ in range(2):
        await stack.start_worker()
    bob = await stack.append("hello", from_="bob")
    await stack.outcome(bob)
    await client.zadd(keys.WAITS, {"of a gateway that was killed": 1})
    alice = await begin_turn(stack, HANDLERS)
    sent = await call(stack, alice, "sessions_send", sessionKey=str(bob.session), message="hello")

    assert sent.status == "answered"


async def test_sessions_cannot_trigger_each_other_forever(stack: Stack) -> None:
    may(stack, sessions={"max_hops": 2})
    turn = await begin_turn(stack, HANDLERS)
    bob = await stack.append("hello", from_="bob")
    await work(stack, str(bob.session))
    await call(stack, turn, "sessions_send", sessionKey=str(bob.session), message="1", timeout=0)
    in_bob = await take_up(stack, bob.session)
    started = await call(stack, in_bob, "sessions_spawn", prompt="hello")
    await work(stack, started.child_session_key)
    await in_bob.finish()
    (result,) = await entries(stack, bob.session)
    assert await in_bob.lease.turns.begin([result.id])
    with_result = in_bob
    why = await refused(stack, with_result, "sessions_spawn", prompt="more")

    assert why.startswith("Sessions have set each other going 3 times in a row")


async def test_turns_about_results_cannot_start_new_tasks_forever(stack: Stack) -> None:
    """After a person has written, the session can start tasks again."""
    may(stack, sessions={"max_relays": 2})
    turn = await begin_turn(stack, HANDLERS)
    for number in range(2):
        started = await call(stack, turn, "sessions_spawn", prompt=f"look {number}")
        await work(stack, started.child_session_key)
        await turn.finish()
        result = (await entries(stack, turn.lease.session))[-1]
        assert result.provenance is not None
        assert result.provenance.relays == number + 1
        assert await turn.lease.turns.begin([result.id])
    why = await refused(stack, turn, "sessions_spawn", prompt="more")
    await turn.finish()
    written = await stack.append("go on")
    assert await turn.lease.turns.begin([written.entry_id])

    assert why.startswith("This is turn 2 in a row about results: nothing new is started")
    assert (await call(stack, turn, "sessions_spawn", prompt="more")).status == "accepted"


# -- managing tasks --------------------------------------------------------------------------------


async def test_a_session_sees_only_itself_and_its_own_tasks(stack: Stack) -> None:
    stack.configure(channels={})  # nobody is an owner
    parent = await begin_turn(stack, HANDLERS)
    started = await call(stack, parent, "sessions_spawn", prompt="hello")
    other = await begin_turn(stack, HANDLERS, from_="bob")
    foreign = await call(stack, other, "sessions_spawn", prompt="hello")
    listed = await call(stack, parent, "sessions_list")
    await call(stack, parent, "sessions_history", sessionKey=started.child_session_key)
    why = await refused(stack, parent, "sessions_history", sessionKey=foreign.child_session_key)

    assert {one.key for one in listed.sessions} == {
        str(parent.lease.session),
        started.child_session_key,
    }
    assert "There is no session" in why


async def test_the_states_of_tasks_are_listed_for_their_session_only(
    stack: Stack, parent: Turn
) -> None:
    done = await call(stack, parent, "sessions_spawn", prompt="hello", label="one")
    waiting = await call(stack, parent, "sessions_spawn", prompt="hello", label="two")
    await work(stack, done.child_session_key)
    listed = await call(stack, parent, "subagents")
    status = await call(stack, parent, "subagents", action="status", params={"runId": done.run_id})
    by_label = await call(stack, parent, "subagents", action="status", params={"label": "two"})
    unclear = await refused(stack, parent, "subagents", action="status")
    foreign = await refused(
        stack,
        await begin_turn(stack, HANDLERS, from_="bob"),
        "subagents",
        action="cancel",
        params={"runId": done.run_id},
    )

    assert [(run.label, run.state, run.result) for run in listed.runs] == [
        ("one", "done", None),
        ("two", "accepted", None),
    ]
    assert "demo agent" in status.runs[0].result
    assert by_label.runs[0].run_id == waiting.run_id
    assert "needs runId or label" in unclear
    assert "has no such task" in foreign


async def test_a_cancelled_task_and_its_descendants_end_without_a_result(stack: Stack) -> None:
    may(stack, sessions={"max_depth": 3})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one")
    unaffected = await call(stack, parent, "sessions_spawn", prompt="hello")
    third = await call(stack, parent, "sessions_spawn", prompt="hello", label="third")
    child = await take_up(stack, first.child_session_key)
    second = await call(stack, child, "sessions_spawn", prompt="two")
    cancelled = await call(
        stack, parent, "subagents", action="cancel", params={"runId": first.run_id}
    )
    again = await call(stack, parent, "subagents", action="cancel", params={"runId": first.run_id})
    await call(stack, parent, "subagents", action="cancel", params={"label": "third"})
    for run in (second, third, unaffected):
        await work(stack, run.child_session_key)
    outcome = await stack.fleet.outcomes.read(*second.run_id.split("-", 1))
    at_child = await entries(stack, first.child_session_key)
    results = [entry for entry in await entries(stack, parent.lease.session) if entry.provenance]

    assert [entry.origin for entry in at_child] == ["session"]
    assert (cancelled.cancelled, again.cancelled) == (2, 2)
    assert outcome is not None
    assert outcome.status == "stopped"
    assert [entry.provenance.run for entry in results if entry.provenance] == [unaffected.run_id]


async def test_stopping_a_session_stops_its_tasks(stack: Stack, parent: Turn) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="hello")
    await parent.finish()
    stopped = await stack.fleet.sessions.stop(parent.lease.sid)
    await work(stack, started.child_session_key)
    outcome = await stack.fleet.outcomes.read(*started.run_id.split("-", 1))

    assert stopped == 1
    assert outcome is not None
    assert outcome.status == "stopped"
    assert await entries(stack, parent.lease.session) == []


async def test_a_new_conversation_stops_the_tasks_of_the_previous_one(stack: Stack) -> None:
    """Both when a person begins it and when an operator does."""
    for begin in ("/new", "operator"):
        parent = await begin_turn(stack, HANDLERS, from_=begin.strip("/"))
        own = parent.lease.session
        started = await call(stack, parent, "sessions_spawn", prompt="hello")
        await parent.finish()
        assert await parent.lease.close()
        if begin == "/new":
            await stack.append("/new", from_=own.user)
        else:
            await stack.fleet.inbound.end_conversation(own, "reset", call="c1")
        await work(stack, str(own))
        await work(stack, started.child_session_key)
        outcome = await stack.fleet.outcomes.read(*started.run_id.split("-", 1))

        assert outcome is not None
        assert outcome.status == "stopped"
        assert await entries(stack, own) == []


async def test_stopping_a_task_sends_a_stopped_result_to_its_parent(
    stack: Stack, parent: Turn
) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="hello")
    await stack.fleet.sessions.stop(SessionKey.parse(started.child_session_key).sid)
    await work(stack, started.child_session_key)
    _, result = await entries(stack, parent.lease.session)

    assert result.provenance is not None
    assert result.provenance.status == "stopped"


#: An agent that writes text, uses tools, and hangs in the last one.
LOOKING = """
def turn():
    return json.loads(sys.stdin.readline() or sys.exit())
turn()
say(type='text', text='Two dead links so far.')
for number in range(11):
    use = {'path': f'{number}.md', 'token': 'hunter2hunter2hunter2'}
    say(type='tool_use', id=str(number), name='Read', input=use)
    say(type='tool_result', id=str(number), output='text')
say(type='tool_use', id='last', name='Bash', input={'command': 'grep -r http .' + ' ' * 400 + 'x'})
say(type='text', text='I look on.')
while turn()['type'] != 'interrupt':
    pass
say(type='done', aborted=True)
"""


async def test_a_stopped_task_returns_its_partial_text_and_its_last_tools(
    stack: Stack, directory: Path
) -> None:
    """The parent can use the partial result, which is marked as incomplete."""
    command = list(script(directory, LOOKING))
    env = {"LINKS_TOKEN": "hunter2hunter2hunter2"}
    stack.configure({"runtime": "demo", "command": command, "env": env})
    parent = await begin_turn(stack, HANDLERS)
    run = await call(stack, parent, "sessions_spawn", prompt="links")
    child, entry = SessionKey.parse(run.child_session_key), run.run_id.partition("-")[2]
    working = drain(stack, Accepted(child, entry, False))
    await stack.reached(Accepted(child, entry, False), "output")
    await stack.fleet.sessions.stop(child.sid)
    await working
    _, result = await entries(stack, parent.lease.session)
    text, _, tools = result.message.text.partition("\n\n(This is not a complete answer")

    assert result.provenance is not None
    assert result.provenance.status == "stopped"
    assert text == "Two dead links so far.I look on.\n\nStopped."
    head, *lines = tools.splitlines()
    assert head == ": its status is stopped. Its last tools:)"
    assert len(lines) == 10
    assert lines[0].startswith('- Read: {"path":"2.md","token":"[secret]"')
    assert lines[-2].startswith('- Read: {"path":"10.md"')
    assert lines[-1].startswith('- Bash (not ended): {"command":"grep -r http .')
    assert max(map(len, lines)) < 350
