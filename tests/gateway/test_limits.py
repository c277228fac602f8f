"""The limits of concurrent calls."""

import asyncio

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.fleet.connection import MAX_CONNECTIONS
from remoteclaw.gateway import limits
from remoteclaw.gateway.auth.principals import Agent, Operator, Principal
from remoteclaw.gateway.limits import Calls
from tests.support.doors import calling, opened, own_token
from tests.support.stack import Stack
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    ("limit", "maximum", "own"),
    [
        ("MAX_CALLS_PER_CALLER", 1, True),
        ("MAX_OPERATOR_CALLS", 1, False),
        ("MAX_AGENT_CALLS", 1, False),
    ],
)
async def test_concurrent_calls_are_limited_per_caller_operators_and_agents(
    monkeypatch: pytest.MonkeyPatch, limit: str, maximum: int, own: bool
) -> None:
    """Each limit refuses only the callers that it applies to."""
    monkeypatch.setattr(limits, "PLACE_S", 0.01)
    monkeypatch.setattr(limits, limit, maximum)
    agents = [Agent("a", "1"), Agent("b", "2")]
    operators = [Operator("ada", "admin", "1"), Operator("bob", "admin", "2")]
    callers: list[Principal] = [*(agents if limit == "MAX_AGENT_CALLS" else operators)]
    others: list[Principal] = [*(operators if limit == "MAX_AGENT_CALLS" else agents)]
    refused = callers[0] if own else callers[1]
    calls = Calls()

    async with calls.limited(callers[0]):
        with pytest.raises(CallRefused) as refusal:
            async with calls.limited(refused):
                pass
        async with calls.limited(callers[1] if own else others[0]):
            pass
    async with calls.limited(refused):
        pass

    assert refusal.value.code == "UNAVAILABLE"


async def test_calls_beyond_the_limit_wait_for_a_place_and_begin_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_CALLS_PER_CALLER", 2)
    calls, ada = Calls(), Operator("ada", "admin", "1")
    running: list[int] = []
    may_end = asyncio.Event()

    async def call(number: int) -> None:
        async with calls.limited(ada):
            running.append(number)
            await may_end.wait()

    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(call(number))
        await eventually(lambda: len(running) == 2)
        async with calls.limited(Operator("bob", "admin", "2")):
            pass
        assert running == [0, 1]
        may_end.set()
    assert running == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("limit", "own"), [("MAX_WAITS_PER_CALLER", True), ("MAX_WAITS", False)])
async def test_a_call_that_waits_takes_no_place_and_waits_have_a_limit_of_their_own(
    monkeypatch: pytest.MonkeyPatch, limit: str, own: bool
) -> None:
    monkeypatch.setattr(limits, "MAX_CALLS_PER_CALLER", 1)
    monkeypatch.setattr(limits, limit, 2)
    monkeypatch.setattr(limits, "PLACE_S", 0.01)
    calls, ada, bob = Calls(), Operator("ada", "admin", "1"), Operator("bob", "admin", "2")
    waits = [asyncio.Event(), asyncio.Event()]
    is_answered = asyncio.Event()

    async def wait(waits_now: asyncio.Event) -> None:
        async with calls.limited(ada) as waiting, waiting():
            waits_now.set()
            await is_answered.wait()

    async with asyncio.TaskGroup() as tasks:
        for each in waits:
            tasks.create_task(wait(each))
            await each.wait()
        async with calls.limited(ada):
            pass
        with pytest.raises(CallRefused) as refusal:
            async with calls.limited(ada if own else bob) as waiting, waiting():
                pass
        async with calls.limited(bob if own else Agent("a", "1")) as waiting, waiting():
            pass
        is_answered.set()
    async with calls.limited(ada) as waiting, waiting():
        pass

    assert refusal.value.code == "UNAVAILABLE"
    reason = "of your calls are waiting: wait until one ends." if own else limits.BUSY
    assert str(refusal.value).endswith(reason)


async def test_calls_that_wait_for_an_outcome_leave_room_for_other_calls_of_their_caller(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call without a place is answered once the calls before it wait."""
    monkeypatch.setattr(limits, "MAX_CALLS_PER_CALLER", 1)
    async with opened(stack) as door, calling(stack) as agent:
        session, entry = agent.accepted.session, agent.accepted.entry_id
        here = {"sessionKey": str(session)}
        async with door.connected(own_token(stack)) as client:
            run = {"runId": f"{session.sid}-{entry}"}
            waiting = [await client.begin("outcomes.wait", run) for _ in range(2)]
            await client.begin("sessions.send", {**here, "message": "hi", "timeout": 50})
            await client.begin("sessions.reset", here)
            assert (await client.call("health"))["status"] == "ok"
            await agent.finish()
            answers = [await client.frame(), await client.frame()]
            assert {answer["id"] for answer in answers} == {*waiting}
            assert {answer["payload"]["status"] for answer in answers} == {"done"}


def test_waiting_and_running_calls_leave_connections_to_redis() -> None:
    running = limits.MAX_AGENT_CALLS + limits.MAX_OPERATOR_CALLS
    assert running + 2 * limits.MAX_WAITS < MAX_CONNECTIONS


async def test_a_call_that_is_still_cleaning_up_does_not_keep_others_running() -> None:
    """The call was cut, but has not ended yet."""
    calls = Calls()
    tidying, tidied = asyncio.Event(), asyncio.Event()

    async def expired() -> None:
        async with calls.limited(Operator("ada", "admin", "first")):
            try:
                await asyncio.Event().wait()
            finally:
                tidying.set()
                await tidied.wait()

    async def running() -> None:
        async with calls.limited(Operator("ada", "admin", "second")):
            await asyncio.Event().wait()

    ending = asyncio.create_task(expired())
    await asyncio.sleep(0)
    calls.cut()
    await tidying.wait()
    others = [asyncio.create_task(running()) for _ in range(8)]
    await asyncio.sleep(0)
    calls.cut()

    for other in others:
        with pytest.raises(CallRefused, match="The gateway ended during the call"):
            await other
    assert not ending.done()
    tidied.set()
    with pytest.raises(CallRefused, match="The gateway ended during the call"):
        await ending
