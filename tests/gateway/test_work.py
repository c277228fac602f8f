"""What works for a session, as one script reads it: by what stands in Redis."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import announcements
from remoteclaw.messages import SessionKey, Work
from tests.support.stack import Stack
from tests.support.tasks import HANDLERS, call, may, take_over, take_up, work
from tests.support.turns import Turn, begin_turn

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

    assert told == {"work": parent.lease.sid, "channel_id": "chat-1", "thread_id": "t"}


async def _next(heard: Any) -> bytes:
    """Return the next announcement; None between them only says that it was listened."""
    while (told := await anext(heard)) is None:
        pass
    return bytes(told)
