"""Branches: tasks that begin as a copy of the conversation that starts them."""

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

#: A claude conversation in the session map: its key, and its id, model and end point.
KNOWN = "main|claude|/work"
KEPT = "an-id\nopus @a-point"


async def second_turn(stack: Stack) -> turns.Turn:
    """Return the second turn of a conversation that claude has stored."""
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


async def test_a_branch_begins_with_a_copy_up_to_the_last_finished_turn(stack: Stack) -> None:
    may(stack)
    parent = await second_turn(stack)
    started = await branch(stack, parent, "look")
    child = SessionKey.parse(started.child_session_key)
    view = await stack.fleet.sessions.view(child.sid)
    (entry,) = await entries(stack, child)

    assert (started.knows, started.note) == ("conversation", None)
    copied = await _client(stack).hget(keys.session_map(child.sid), KNOWN)
    assert copied.decode() == f"fork of {KEPT}"
    assert b"before" in await stack.fleet.records.of(child.sid)
    assert view is not None
    assert (view.branch_of, view.limits.depth, view.host, view.model) == (
        *(parent.lease.session, 1),
        *("here", "chosen"),
    )
    assert (entry.deliver, entry.message.text) == ("parent", "look")
    prompt = build_turn_prompt(Turn(child, (entry,)))
    assert f'"branch_of":"{parent.lease.session}"' in prompt
    assert BRANCH in prompt
    assert '"conversation_now":[{"from":{"id":"alice"},"said":"hello"}]' in prompt


async def test_a_branch_from_a_first_turn_has_nothing_to_copy(
    stack: Stack, parent: turns.Turn
) -> None:
    await _client(stack).hset(keys.session_map(parent.lease.sid), KNOWN, KEPT)
    started = await branch(stack, parent)
    child = SessionKey.parse(started.child_session_key)

    assert started.knows == "nothing"
    assert (
        started.note
        == "Nothing could be copied. The branch gets the task and the messages of this turn."
    )
    assert await _client(stack).exists(keys.session_map(child.sid)) == 0


async def test_a_branch_to_another_agent_begins_with_notes(stack: Stack) -> None:
    may(stack)
    with stack.home.config_file.open("a") as config:
        config.write('\n[agents.other]\nruntime = "demo"\n')
    text = stack.home.config_file.read_text()
    stack.home.config_file.write_text(
        text.replace("warm_s = 0", 'warm_s = 0\nspawns = ["other"]', 1)
    )
    parent = await second_turn(stack)
    started = await branch(stack, parent, agentId="other")
    child = SessionKey.parse(started.child_session_key)
    view = await stack.fleet.sessions.view(child.sid)

    assert started.knows == "notes"
    assert started.note is not None
    assert started.note.startswith("It begins with notes of what was said here")
    assert view is not None
    assert (view.is_branch, view.model) == (False, None)
    assert await _client(stack).exists(keys.session_map(child.sid)) == 0


async def test_a_plain_task_does_not_know_the_conversation(stack: Stack) -> None:
    may(stack)
    parent = await second_turn(stack)
    started = await call(stack, parent, "sessions_spawn", prompt="x")
    child = SessionKey.parse(started.child_session_key)

    assert (started.knows, started.note) == ("nothing", None)
    names = (keys.session_map(child.sid), keys.record(child.sid))
    assert await _client(stack).exists(*names) == 0


async def test_a_new_attempt_reuses_the_branch_of_the_previous_attempt(stack: Stack) -> None:
    """The branch keeps its copy, although the conversation has continued since."""
    may(stack)
    parent = await second_turn(stack)
    first = await branch(stack, parent, call_id="a")
    lease = await take_over(stack, parent)
    plain = await call(stack, lease, "sessions_spawn", prompt="x", call_id="b")
    again = await branch(stack, lease, call_id="c")

    assert (again.run_id, again.knows) == (first.run_id, "conversation")
    assert plain.run_id != first.run_id


async def test_a_branch_lists_its_parents_tools_but_may_only_read(
    stack: Stack,
) -> None:
    may(stack)
    parent = await second_turn(stack)
    started = await branch(stack, parent)
    child = await take_up(stack, started.child_session_key)
    config = load_config(stack.home.config_file, {})
    why = await refused(stack, child, "sessions_spawn", prompt="y")

    assert _tools(child.lease, config) == _tools(parent.lease, config)
    assert why == (
        "A branch may only read: sessions_spawn changes something. Say in your answer what is to "
        "be done (branches in the agent's table allows more)."
    )
    assert await call(stack, child, "sessions_list")


async def test_a_branch_may_change_things_if_configured(stack: Stack) -> None:
    may(stack, sessions={"max_depth": 2})
    text = stack.home.config_file.read_text()
    stack.home.config_file.write_text(
        text.replace("warm_s = 0", 'warm_s = 0\nbranches = "auto"', 1)
    )
    parent = await second_turn(stack)
    child = await take_up(stack, (await branch(stack, parent)).child_session_key)
    started = await branch(stack, child, "y")
    grandchild = await stack.fleet.sessions.view(SessionKey.parse(started.child_session_key).sid)

    assert grandchild is not None
    assert (grandchild.parent, grandchild.branch_of) == (child.lease.session, parent.lease.session)
    assert grandchild.limits.depth == 2


async def test_unfinished_tasks_of_one_conversation_are_limited(stack: Stack) -> None:
    """Tasks that wait for their own tasks count as well."""
    may(stack, sessions={"max_depth": 2, "max_tree": 3})
    parent = await begin_turn(stack, HANDLERS)
    first = await call(stack, parent, "sessions_spawn", prompt="one")
    child = await take_up(stack, first.child_session_key)
    second = await call(stack, child, "sessions_spawn", prompt="two")
    third = await call(stack, child, "sessions_spawn", prompt="three")
    why_in_child = await refused(stack, child, "sessions_spawn", prompt="four")
    await child.lease.turns.finish("done", reply=[])
    await child.lease.close()
    why = await refused(stack, parent, "sessions_spawn", prompt="four")
    for one in (second, third):
        await work(stack, one.child_session_key)

    assert why.startswith("3 sessions below this conversation have not ended yet")
    assert why_in_child == why
    assert await call(stack, parent, "sessions_spawn", prompt="four")
