"""What works for a session, as one script reads it: by what stands in Redis."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from remoteclaw.commands.call import Asked
from remoteclaw.commands.status import status
from remoteclaw.config.load import load_config
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import announcements
from remoteclaw.messages import SessionKey, Work
from tests.support.doors import opened, own_token
from tests.support.stack import Stack
from tests.support.tasks import HANDLERS, call, may, refused, take_over, take_up, work
from tests.support.turns import Turn, begin_turn, operator
from tests.support.waiting import HANG_S

DOING = {"tool": "Bash", "argument": "make", "said": "Building."}


async def below(stack: Stack, sid: str, **limits: Any) -> list[Work]:
    return [*(await stack.fleet.work.below(sid, **limits)).items]


async def spawned(stack: Stack, turn: Turn, prompt: str, **params: Any) -> SessionKey:
    started = await call(stack, turn, "sessions_spawn", prompt=prompt, **params)
    return SessionKey.parse(started.child_session_key)


async def test_what_works_for_a_session_is_told_from_its_start_to_its_end(
    stack: Stack, parent: Turn
) -> None:
    child = await spawned(stack, parent, "hello", label="greeter")
    sid, told = parent.lease.sid, []
    told += await below(stack, sid)
    turn = await take_up(stack, child)
    told += await below(stack, sid)
    await turn.lease.work.note(turn.id, DOING, is_first=True)
    told += await below(stack, sid)
    await turn.finish()
    told += await below(stack, sid)

    assert [one.state for one in told] == ["waiting", "running", "running", "done"]
    assert {(one.session, one.parent, one.label, one.kind) for one in told} == {
        (child, sid, "greeter", "task")
    }
    assert {(one.run, one.since_ms) for one in told} == {
        (f"{child.sid}-{turn.id}", int(turn.id.partition("-")[0]))
    }
    assert [(one.tool, one.argument, one.said) for one in told] == [
        ("", "", ""),
        ("", "", ""),
        ("Bash", "make", "Building."),
        ("", "", ""),
    ]
    assert await below(stack, sid, recent_ms=0) == []
    state: Any = await stack.fleet.scripts.client.hgetall(keys.state(child.sid))
    assert b"doing" not in state


async def test_what_it_has_started_waits_for_what_that_has_started(stack: Stack) -> None:
    may(stack, sessions={"max_depth": 2})
    parent = await begin_turn(stack, HANDLERS)
    child = await take_up(stack, await spawned(stack, parent, "one"))
    grandchild = await spawned(stack, child, "hello")
    await child.finish()
    await child.lease.close()
    while_below = await below(stack, parent.lease.sid)
    await work(stack, str(grandchild))
    await work(stack, str(child.lease.session))
    after = await below(stack, parent.lease.sid)

    assert [(one.session, one.parent, one.state) for one in while_below] == [
        (child.lease.session, parent.lease.sid, "waiting"),
        (grandchild, child.lease.sid, "waiting"),
    ]
    assert sorted(one.state for one in after) == ["done", "done"]


async def test_what_was_cancelled_is_not_told_of_until_it_has_ended(
    stack: Stack, parent: Turn
) -> None:
    child = await take_up(stack, await spawned(stack, parent, "one"))
    await call(stack, parent, "subagents", action="cancel")
    ending = await below(stack, parent.lease.sid)
    await child.lease.turns.finish("stopped", reply=[])

    assert ending == []
    assert [one.state for one in await below(stack, parent.lease.sid)] == ["stopped"]


async def test_the_unfinished_come_first_and_the_rest_is_counted(stack: Stack) -> None:
    may(stack, sessions={"max_children": 20})
    parent = await begin_turn(stack, HANDLERS)
    children = [await spawned(stack, parent, f"hello {n}") for n in range(4)]
    await work(stack, str(children[0]))
    whole = await stack.fleet.work.below(parent.lease.sid)
    some = await stack.fleet.work.below(parent.lease.sid, most=2)

    assert [one.session for one in whole.items] == [*children[1:], children[0]]
    assert ([one.session for one in some.items], some.left_out) == (children[1:3], 2)
    assert whole.left_out == 0
    assert [one.session for one in whole.unfinished] == children[1:]


async def test_only_the_owner_of_a_turn_says_what_it_does(stack: Stack, parent: Turn) -> None:
    """What an earlier attempt did and said is not what the one now does."""
    child = await take_up(stack, await spawned(stack, parent, "one"))
    await child.lease.work.note(child.id, DOING, is_first=True)
    other = await take_over(stack, child)
    with pytest.raises(LeaseLost):
        await child.lease.work.note(child.id, {"tool": "late"}, is_first=False)
    await other.lease.work.note(other.id, {}, is_first=True)
    (now,) = await below(stack, parent.lease.sid)

    assert (now.state, now.tool, now.said) == ("running", "", "")


async def test_those_above_are_told_of_each_change(stack: Stack) -> None:
    """By one announcement for the whole tree, and one for the chat of its top."""
    may(stack, sessions={"max_depth": 2})
    parent = await begin_turn(stack, HANDLERS, channel_id="chat-1")
    child = await take_up(stack, await spawned(stack, parent, "one"))
    heard = announcements(stack.fleet.scripts.client, keys.WORK)
    assert await anext(heard) is None
    grandchild = await take_up(stack, await spawned(stack, child, "two"))
    both = f"{child.lease.sid},{parent.lease.sid}".encode()
    seen = [await _next(heard)]
    await grandchild.lease.work.note(grandchild.id, DOING, is_first=True)
    seen.append(await _next(heard))
    await grandchild.finish()
    seen.append(await _next(heard))
    await heard.aclose()

    assert seen == [both, both, both]


async def test_the_adapter_of_the_chat_is_told_where(stack: Stack) -> None:
    parent = await begin_turn(stack, HANDLERS, channel_id="chat-1", thread_id="t")
    child = await take_up(stack, await spawned(stack, parent, "one"))
    hearing = announcements(stack.fleet.scripts.client, keys.live_of("test", "default"))
    assert await anext(hearing) is None
    await child.lease.work.note(child.id, DOING, is_first=True)
    told: Mapping[str, Any] = orjson.loads(await _next(hearing))
    await hearing.aclose()

    assert told == {"work": str(parent.lease.session)}


# -- what its agent says --------------------------------------------------------------------------


async def test_a_task_says_how_far_it_is(stack: Stack, parent: Turn) -> None:
    """On one line, short, without secrets, and until its turn ends."""
    stack.configure({"runtime": "demo", "env": {"DEPLOY_KEY": "swordfish-1234"}})
    child = await take_up(stack, await spawned(stack, parent, "one"))
    long = f"swordfish-1234\n{'ä' * 300}"
    first = await call(stack, child, "session_progress", progress=long)
    (told,) = await below(stack, parent.lease.sid)
    await call(stack, child, "session_progress", progress="3 of 7", call_id="c1")
    await call(stack, child, "session_progress", progress="4 of 7")
    await call(stack, child, "session_progress", progress="3 of 7", call_id="c1")
    (newer,) = await below(stack, parent.lease.sid)
    await child.finish()
    (ended,) = await below(stack, parent.lease.sid)
    late = await refused(stack, child, "session_progress", progress="5 of 7")

    assert first.progress == told.progress
    assert told.progress.startswith("[secret] ää")
    assert 250 <= len(told.progress.encode()) <= 256
    assert newer.progress == "4 of 7", "a call that is repeated does nothing again"
    assert ended.progress == ""
    assert late == "No turn is running for this agent: tools work in a turn."


async def test_a_conversation_has_no_progress(stack: Stack, parent: Turn) -> None:
    by_agent = await refused(stack, parent, "session_progress", progress="3 of 7")
    by_operator = await refused(stack, operator(), "session_progress", progress="3 of 7")

    assert by_agent.startswith("This session works for no other one")
    assert by_operator.startswith("Only the agent of a task says how far it is")


# -- for operators --------------------------------------------------------------------------------


async def test_operators_see_the_tree(stack: Stack, parent: Turn) -> None:
    child = await take_up(stack, await spawned(stack, parent, "one", label="links"))
    await child.lease.work.note(child.id, DOING, is_first=True)
    await call(stack, child, "session_progress", progress="3 of 7")
    told = await call(stack, operator("read"), "sessions.tree", sessionKey=parent.lease.sid)
    why = await refused(stack, operator("read"), "sessions.tree", sessionKey="main/x/y/z:z:_")

    assert told.session_key == str(parent.lease.session)
    (item,) = told.work
    assert (item.run_id, item.parent) == (f"{child.lease.sid}-{child.id}", told.session_key)
    assert (item.label, item.kind, item.state) == ("links", "task", "running")
    assert (item.doing, item.said, item.progress) == ("Bash: make", "Building.", "3 of 7")
    assert "is no session: `remoteclaw sessions list` shows those there are" in why


async def test_who_follows_a_session_hears_what_works_for_it(
    stack: Stack, parent: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, at each change below it, and that it is over; nothing without a change."""
    monkeypatch.setattr("remoteclaw.gateway.feeds.WORK_S", 0)
    sid = parent.lease.sid
    token = own_token(stack)
    async with opened(stack) as door, door.connected(token) as one, door.connected(token) as two:
        await one.call("sessions.subscribe", {"sessionKey": sid})
        child = await take_up(stack, await spawned(stack, parent, "one", label="links"))
        first = await one.event("session.work")
        await two.call("sessions.subscribe", {"sessionKey": sid})
        second = await two.event("session.work")
        await child.lease.work.note(child.id, DOING, is_first=True)
        while not first["work"][0].get("doing"):
            first = await one.event("session.work")
        for _ in range(5):
            await child.lease.work.note(child.id, DOING, is_first=False)
            await one.call("health")
        await child.finish()
        last = await one.event("session.work")

    assert first["sessionKey"] == str(parent.lease.session)
    assert first["work"][0]["doing"] == "Bash: make"
    assert [item["label"] for item in second["work"]] == ["links"]
    assert [item["state"] for item in last["work"]] == ["done"]


async def test_what_works_is_told_only_so_often(
    stack: Stack, parent: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.gateway.feeds.WORK_S", HANG_S)
    child = await take_up(stack, await spawned(stack, parent, "one"))
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("sessions.subscribe", {"sessionKey": parent.lease.sid})
        assert await client.event("session.work")
        for number in range(5):
            await child.lease.work.note(child.id, {"tool": f"T{number}"}, is_first=False)
        assert await client.event("session.work")
        assert await client.call("health")

        assert [one for one in client.events if one["event"] == "session.work"] == []


async def test_status_says_what_works(stack: Stack, parent: Turn) -> None:
    """In a chat of several people without the arguments of tools."""
    child = await take_up(stack, await spawned(stack, parent, "one", label="links"))
    await child.lease.work.note(child.id, DOING, is_first=True)
    config = load_config(stack.home.config_file, {})
    asked = Asked(
        id="1",
        rest="",
        session=parent.lease.session,
        sender="alice",
        is_owner=False,
        fleet=stack.fleet,
        config=config,
        home=stack.home,
    )
    in_a_group = (await status(asked)).text
    shown = {"channels": {"test": ChannelConfig(activity="arguments")}}
    direct = (await status(replace(asked, config=config.model_copy(update=shown)))).text

    assert "- works for it: links: `Bash` (" in in_a_group
    assert "- works for it: links: `Bash: make` (" in direct


async def _next(heard: Any) -> bytes:
    """Return the next announcement; None between them only says that it was listened."""
    while (told := await anext(heard)) is None:
        pass
    return bytes(told)
