"""The task tree of a session, as one script reads it from Redis."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from remoteclaw.commands.call import CommandCall
from remoteclaw.commands.status import status
from remoteclaw.config.load import load_config
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import announcements
from remoteclaw.messages import SessionKey, TaskStatus
from tests.support.doors import opened, own_token
from tests.support.stack import Stack
from tests.support.tasks import HANDLERS, call, may, refused, take_over, take_up, work
from tests.support.turns import Turn, begin_turn, operator
from tests.support.waiting import HANG_S

DOING = {"tool": "Bash", "argument": "make", "said": "Building."}


async def tree_items(stack: Stack, sid: str, **limits: Any) -> list[TaskStatus]:
    return [*(await stack.fleet.task_trees.read(sid, **limits)).items]


async def spawned(stack: Stack, turn: Turn, prompt: str, **params: Any) -> SessionKey:
    started = await call(stack, turn, "sessions_spawn", prompt=prompt, **params)
    return SessionKey.parse(started.child_session_key)


async def test_a_task_is_in_the_task_tree_from_its_start_to_its_end(
    stack: Stack, parent: Turn
) -> None:
    child = await spawned(stack, parent, "hello", label="greeter")
    sid, items = parent.lease.sid, []
    items += await tree_items(stack, sid)
    turn = await take_up(stack, child)
    items += await tree_items(stack, sid)
    await turn.lease.progress.note(turn.id, DOING, is_first=True)
    items += await tree_items(stack, sid)
    await turn.finish()
    items += await tree_items(stack, sid)

    assert [one.state for one in items] == ["waiting", "running", "running", "done"]
    assert {(one.session, one.parent, one.label, one.kind) for one in items} == {
        (child, sid, "greeter", "task")
    }
    assert {(one.run, one.since_ms) for one in items} == {
        (f"{child.sid}-{turn.id}", int(turn.id.partition("-")[0]))
    }
    assert [(one.tool, one.argument, one.last_text) for one in items] == [
        ("", "", ""),
        ("", "", ""),
        ("Bash", "make", "Building."),
        ("", "", ""),
    ]
    assert await tree_items(stack, sid, recent_ms=0) == []
    state: Any = await stack.fleet.scripts.client.hgetall(keys.state(child.sid))
    assert b"doing" not in state


async def test_a_task_waits_for_the_tasks_that_it_has_started(stack: Stack) -> None:
    may(stack, sessions={"max_depth": 2})
    parent = await begin_turn(stack, HANDLERS)
    child = await take_up(stack, await spawned(stack, parent, "one"))
    grandchild = await spawned(stack, child, "hello")
    await child.finish()
    await child.lease.close()
    before = await tree_items(stack, parent.lease.sid)
    await work(stack, str(grandchild))
    await work(stack, str(child.lease.session))
    after = await tree_items(stack, parent.lease.sid)

    assert [(one.session, one.parent, one.state) for one in before] == [
        (child.lease.session, parent.lease.sid, "waiting"),
        (grandchild, child.lease.sid, "waiting"),
    ]
    assert sorted(one.state for one in after) == ["done", "done"]


async def test_a_cancelled_task_is_left_out_until_it_has_ended(stack: Stack, parent: Turn) -> None:
    child = await take_up(stack, await spawned(stack, parent, "one"))
    await call(stack, parent, "subagents", action="cancel")
    ending = await tree_items(stack, parent.lease.sid)
    await child.lease.turns.finish("stopped", reply=[])

    assert ending == []
    assert [one.state for one in await tree_items(stack, parent.lease.sid)] == ["stopped"]


async def test_unfinished_tasks_come_first_and_omitted_tasks_are_counted(stack: Stack) -> None:
    may(stack, sessions={"max_children": 20})
    parent = await begin_turn(stack, HANDLERS)
    children = [await spawned(stack, parent, f"hello {n}") for n in range(4)]
    await work(stack, str(children[0]))
    full = await stack.fleet.task_trees.read(parent.lease.sid)
    limited = await stack.fleet.task_trees.read(parent.lease.sid, max_tasks=2)

    assert [one.session for one in full.items] == [*children[1:], children[0]]
    assert ([one.session for one in limited.items], limited.left_out) == (children[1:3], 2)
    assert full.left_out == 0
    assert [one.session for one in full.unfinished] == children[1:]


async def test_only_the_current_attempt_of_a_turn_reports_its_activity(
    stack: Stack, parent: Turn
) -> None:
    """The activity of an earlier attempt is not shown for the current one."""
    child = await take_up(stack, await spawned(stack, parent, "one"))
    await child.lease.progress.note(child.id, DOING, is_first=True)
    other = await take_over(stack, child)
    with pytest.raises(LeaseLost):
        await child.lease.progress.note(child.id, {"tool": "late"}, is_first=False)
    await other.lease.progress.note(other.id, {}, is_first=True)
    (now,) = await tree_items(stack, parent.lease.sid)

    assert (now.state, now.tool, now.last_text) == ("running", "", "")


async def test_each_change_is_announced_to_all_ancestor_sessions(stack: Stack) -> None:
    """One announcement names all of them."""
    may(stack, sessions={"max_depth": 2})
    parent = await begin_turn(stack, HANDLERS, channel_id="chat-1")
    child = await take_up(stack, await spawned(stack, parent, "one"))
    updates = announcements(stack.fleet.scripts.client, keys.TASK_UPDATES)
    assert await anext(updates) is None
    grandchild = await take_up(stack, await spawned(stack, child, "two"))
    both = f"{child.lease.sid},{parent.lease.sid}".encode()
    seen = [await _next(updates)]
    await grandchild.lease.progress.note(grandchild.id, DOING, is_first=True)
    seen.append(await _next(updates))
    await grandchild.finish()
    seen.append(await _next(updates))
    await updates.aclose()

    assert seen == [both, both, both]


async def test_a_change_of_the_task_tree_is_announced_to_the_adapter_of_the_chat(
    stack: Stack,
) -> None:
    parent = await begin_turn(stack, HANDLERS, channel_id="chat-1", thread_id="t")
    child = await take_up(stack, await spawned(stack, parent, "one"))
    updates = announcements(stack.fleet.scripts.client, keys.live_of("test", "default"))
    assert await anext(updates) is None
    await child.lease.progress.note(child.id, DOING, is_first=True)
    update: Mapping[str, Any] = orjson.loads(await _next(updates))
    await updates.aclose()

    assert update == {"work": str(parent.lease.session)}


# -- progress -------------------------------------------------------------------------------------


async def test_a_task_reports_its_progress_in_one_short_line_without_secrets(
    stack: Stack, parent: Turn
) -> None:
    """The progress is shown until the turn ends."""
    stack.configure({"runtime": "demo", "env": {"DEPLOY_KEY": "swordfish-1234"}})
    child = await take_up(stack, await spawned(stack, parent, "one"))
    long = f"swordfish-1234\n{'ä' * 300}"
    first = await call(stack, child, "session_progress", progress=long)
    (shown,) = await tree_items(stack, parent.lease.sid)
    await call(stack, child, "session_progress", progress="3 of 7", call_id="c1")
    await call(stack, child, "session_progress", progress="4 of 7")
    await call(stack, child, "session_progress", progress="3 of 7", call_id="c1")
    (newer,) = await tree_items(stack, parent.lease.sid)
    await child.finish()
    (ended,) = await tree_items(stack, parent.lease.sid)
    late = await refused(stack, child, "session_progress", progress="5 of 7")

    assert first.progress == shown.progress
    assert shown.progress.startswith("[secret] ää")
    assert 250 <= len(shown.progress.encode()) <= 256
    assert newer.progress == "4 of 7", "a repeated call does nothing"
    assert ended.progress == ""
    assert late == "No turn is running for this agent: tools work in a turn."


async def test_only_tasks_can_report_progress(stack: Stack, parent: Turn) -> None:
    by_agent = await refused(stack, parent, "session_progress", progress="3 of 7")
    by_operator = await refused(stack, operator(), "session_progress", progress="3 of 7")

    assert by_agent.startswith("This session works for no other one")
    assert by_operator.startswith("Only the agent of a task reports its progress")


# -- for operators --------------------------------------------------------------------------------


async def test_operators_can_read_the_task_tree(stack: Stack, parent: Turn) -> None:
    child = await take_up(stack, await spawned(stack, parent, "one", label="links"))
    await child.lease.progress.note(child.id, DOING, is_first=True)
    await call(stack, child, "session_progress", progress="3 of 7")
    tree = await call(stack, operator("read"), "tasks.tree", sessionKey=parent.lease.sid)
    why = await refused(stack, operator("read"), "tasks.tree", sessionKey="main/x/y/z:z:_")

    assert tree.session_key == str(parent.lease.session)
    (item,) = tree.work
    assert (item.run_id, item.parent) == (f"{child.lease.sid}-{child.id}", tree.session_key)
    assert (item.label, item.kind, item.state) == ("links", "task", "running")
    assert (item.doing, item.said, item.progress) == ("Bash: make", "Building.", "3 of 7")
    assert "is no session: `remoteclaw sessions list` lists them" in why


async def test_subscribers_receive_the_task_tree_at_each_change(
    stack: Stack, parent: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, at each change, and at the end; never without a change."""
    monkeypatch.setattr("remoteclaw.gateway.feeds.WORK_INTERVAL_S", 0)
    sid = parent.lease.sid
    token = own_token(stack)
    async with opened(stack) as door, door.connected(token) as one, door.connected(token) as two:
        await one.call("sessions.subscribe", {"sessionKey": sid})
        child = await take_up(stack, await spawned(stack, parent, "one", label="links"))
        first = await one.event("session.work")
        await two.call("sessions.subscribe", {"sessionKey": sid})
        second = await two.event("session.work")
        await child.lease.progress.note(child.id, DOING, is_first=True)
        while not first["work"][0].get("doing"):
            first = await one.event("session.work")
        for _ in range(5):
            await child.lease.progress.note(child.id, DOING, is_first=False)
            await one.call("health")
        await child.finish()
        last = await one.event("session.work")

    assert first["sessionKey"] == str(parent.lease.session)
    assert first["work"][0]["doing"] == "Bash: make"
    assert [item["label"] for item in second["work"]] == ["links"]
    assert [item["state"] for item in last["work"]] == ["done"]


async def test_the_task_tree_is_sent_at_most_once_per_interval(
    stack: Stack, parent: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.gateway.feeds.WORK_INTERVAL_S", HANG_S)
    child = await take_up(stack, await spawned(stack, parent, "one"))
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("sessions.subscribe", {"sessionKey": parent.lease.sid})
        assert await client.event("session.work")
        for number in range(5):
            await child.lease.progress.note(child.id, {"tool": f"T{number}"}, is_first=False)
        assert await client.event("session.work")
        assert await client.call("health")

        assert [one for one in client.events if one["event"] == "session.work"] == []


async def test_the_status_command_lists_running_tasks(stack: Stack, parent: Turn) -> None:
    """Without the arguments of tools, unless the channel shows them."""
    child = await take_up(stack, await spawned(stack, parent, "one", label="links"))
    await child.lease.progress.note(child.id, DOING, is_first=True)
    config = load_config(stack.home.config_file, {})
    command = CommandCall(
        id="1",
        arguments="",
        session=parent.lease.session,
        sender="alice",
        is_owner=False,
        fleet=stack.fleet,
        config=config,
        home=stack.home,
    )
    by_default = (await status(command)).text
    shown = {"channels": {"test": ChannelConfig(activity="arguments")}}
    with_arguments = (await status(replace(command, config=config.model_copy(update=shown)))).text

    assert "- at work: links: `Bash` (" in by_default
    assert "- at work: links: `Bash: make` (" in with_arguments


async def _next(updates: Any) -> bytes:
    """Return the next announcement. None only means that the subscription is active."""
    while (update := await anext(updates)) is None:
        pass
    return bytes(update)
