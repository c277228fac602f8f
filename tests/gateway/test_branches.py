"""Tasks that begin as a copy of the conversation that starts them, by what is kept of them."""

from typing import Any

from remoteclaw.bridge.turn_prompt import BRANCH, build_turn_prompt
from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.messages import SessionKey, Turn
from remoteclaw.session.bridge import _tools
from tests.support import turns
from tests.support.stack import Stack
from tests.support.tasks import HANDLERS, call, entries, may, refused, take_over, take_up, work
from tests.support.turns import begin_turn

#: A conversation of claude's, as the session map keeps it: with the model and the point of its end.
KNOWN = "claude|/work"
KEPT = "an-id\nopus @a-point"


async def talked(stack: Stack) -> turns.Turn:
    """Return the second turn of a conversation that claude has."""
    parent = await begin_turn(stack, HANDLERS)
    client, sid = _client(stack), parent.lease.sid
    await client.hset(keys.session_map(sid), KNOWN, KEPT)
    await client.hset(keys.state(sid), mapping={"finished_turn": "1-0", "host": "here"})
    await client.hset(keys.state(sid), "model", "chosen")
    await client.set(keys.record(sid), b'{"role":"user","from":"alice","text":"before"}\n')
    return parent


def _client(stack: Stack) -> Any:
    scripts: Scripts = stack.fleet.scripts
    return scripts.client


async def branch(stack: Stack, parent: turns.Turn, prompt: str = "x", **more: Any) -> Any:
    return await call(stack, parent, "sessions_spawn", prompt=prompt, knows="conversation", **more)


async def test_it_begins_with_a_copy_at_the_last_finished_turn(stack: Stack) -> None:
    may(stack)
    parent = await talked(stack)
    started = await branch(stack, parent, "look")
    child = SessionKey.parse(started.child_session_key)
    view = await stack.fleet.sessions.view(child.sid)
    (entry,) = await entries(stack, child)

    assert (started.knows, started.note) == ("conversation", None)
    copied = await _client(stack).hget(keys.session_map(child.sid), KNOWN)
    assert copied.decode() == f"fork of {KEPT}"
    assert b"before" in await stack.fleet.records.of(child.sid)
    assert view is not None
    assert (view.branch_of, view.depth, view.host, view.model) == (
        *(parent.lease.session, 1),
        *("here", "chosen"),
    )
    assert (entry.deliver, entry.message.text) == ("parent", "look")
    prompt = build_turn_prompt(Turn(child, (entry,)))
    assert f'"branch_of":"{parent.lease.session}"' in prompt
    assert BRANCH in prompt
    assert '"conversation_now":[{"from":{"id":"alice"},"said":"hello"}]' in prompt


async def test_in_a_first_turn_there_is_nothing_to_copy(stack: Stack, parent: turns.Turn) -> None:
    await _client(stack).hset(keys.session_map(parent.lease.sid), KNOWN, KEPT)
    started = await branch(stack, parent)
    child = SessionKey.parse(started.child_session_key)

    assert started.knows == "nothing"
    assert (
        started.note == "Nothing could be copied: it is told what this turn is about, and the task."
    )
    assert await _client(stack).exists(keys.session_map(child.sid)) == 0


async def test_another_agent_has_notes(stack: Stack) -> None:
    may(stack)
    with stack.home.config_file.open("a") as config:
        config.write('\n[agents.other]\nruntime = "demo"\n')
    text = stack.home.config_file.read_text()
    stack.home.config_file.write_text(
        text.replace("warm_s = 0", 'warm_s = 0\nspawns = ["other"]', 1)
    )
    parent = await talked(stack)
    started = await branch(stack, parent, agentId="other")
    child = SessionKey.parse(started.child_session_key)
    view = await stack.fleet.sessions.view(child.sid)

    assert started.knows == "notes"
    assert started.note is not None
    assert started.note.startswith("It begins with notes of what was said here")
    assert view is not None
    assert (view.is_branch, view.model) == (False, None)
    assert await _client(stack).exists(keys.session_map(child.sid)) == 0


async def test_a_plain_task_knows_nothing(stack: Stack) -> None:
    may(stack)
    parent = await talked(stack)
    started = await call(stack, parent, "sessions_spawn", prompt="x")
    child = SessionKey.parse(started.child_session_key)

    assert (started.knows, started.note) == ("nothing", None)
    names = (keys.session_map(child.sid), keys.record(child.sid))
    assert await _client(stack).exists(*names) == 0


async def test_an_attempt_that_begins_anew_gets_the_branch_of_the_one_before(stack: Stack) -> None:
    """What it was told is what it was given, although the conversation has gone on since."""
    may(stack)
    parent = await talked(stack)
    first = await branch(stack, parent, call_id="a")
    lease = await take_over(stack, parent)
    plain = await call(stack, lease, "sessions_spawn", prompt="x", call_id="b")
    again = await branch(stack, lease, call_id="c")

    assert (again.run_id, again.knows) == (first.run_id, "conversation")
    assert plain.run_id != first.run_id


async def test_its_tools_are_its_parents_and_those_that_change_something_are_refused(
    stack: Stack,
) -> None:
    may(stack)
    parent = await talked(stack)
    started = await branch(stack, parent)
    child = await take_up(stack, started.child_session_key)
    config = load_config(stack.home.config_file, {})
    why = await refused(stack, child, "sessions_spawn", prompt="y")

    assert _tools(child.lease, config) == _tools(parent.lease, config)
    assert why == (
        "A branch only looks: sessions_spawn changes something. Say in your answer what is to be "
        "done (branches in the agent's table allows more)."
    )
    assert await call(stack, child, "sessions_list")


async def test_a_branch_may_do_more_where_that_is_configured(stack: Stack) -> None:
    may(stack, sessions={"max_depth": 2})
    text = stack.home.config_file.read_text()
    stack.home.config_file.write_text(
        text.replace("warm_s = 0", 'warm_s = 0\nbranches = "auto"', 1)
    )
    parent = await talked(stack)
    child = await take_up(stack, (await branch(stack, parent)).child_session_key)
    started = await branch(stack, child, "y")
    below = await stack.fleet.sessions.view(SessionKey.parse(started.child_session_key).sid)

    assert below is not None
    assert (below.parent, below.branch_of) == (child.lease.session, parent.lease.session)
    assert below.depth == 2


async def test_how_many_may_be_unfinished_below_one_conversation(stack: Stack) -> None:
    """Those count that wait for what they have started, too."""
    may(stack, sessions={"max_depth": 2, "max_tree": 3})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one")
    child = await take_up(stack, first.child_session_key)
    second = await call(stack, child, "sessions_spawn", prompt="two")
    third = await call(stack, child, "sessions_spawn", prompt="three")
    below = await refused(stack, child, "sessions_spawn", prompt="four")
    await child.lease.turns.finish("done", reply=[])
    await child.lease.close()
    why = await refused(stack, parent, "sessions_spawn", prompt="four")
    for one in (second, third):
        await work(stack, one.child_session_key)

    assert why.startswith("3 sessions below this conversation have not ended yet")
    assert below == why
    assert await call(stack, parent, "sessions_spawn", prompt="four")
