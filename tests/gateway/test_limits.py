"""The limits of calls, by themselves."""

import asyncio

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.gateway import limits
from remoteclaw.gateway.limits import Calls
from remoteclaw.gateway.principals import Agent, Operator, Principal


@pytest.mark.parametrize(
    ("limit", "most", "own"),
    [("MAX_OF_ONE", 1, True), ("MAX_OF_OPERATORS", 1, False), ("MAX_OF_AGENTS", 1, False)],
)
async def test_so_many_calls_run_and_no_more(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, own: bool
) -> None:
    """Of one caller, of operators and of agents: none takes the places of the others."""
    monkeypatch.setattr(limits, limit, most)
    agents = [Agent("a", "1"), Agent("b", "2")]
    operators = [Operator("ada", "admin", "1"), Operator("bob", "admin", "2")]
    callers: list[Principal] = [*(agents if limit == "MAX_OF_AGENTS" else operators)]
    others: list[Principal] = [*(operators if limit == "MAX_OF_AGENTS" else agents)]
    refused = callers[0] if own else callers[1]
    calls = Calls()

    async with calls.one(callers[0]):
        with pytest.raises(CallRefused) as refusal:
            async with calls.one(refused):
                pass
        async with calls.one(callers[1] if own else others[0]):
            pass
    async with calls.one(refused):
        pass

    assert refusal.value.code == "UNAVAILABLE"


async def test_a_call_that_is_ending_keeps_no_other_from_being_cut() -> None:
    """Its time is over, and it is still tidying up."""
    calls = Calls()
    tidying, tidied = asyncio.Event(), asyncio.Event()

    async def expired() -> None:
        async with calls.one(Operator("ada", "admin", "first")):
            try:
                await asyncio.Event().wait()
            finally:
                tidying.set()
                await tidied.wait()

    async def running() -> None:
        async with calls.one(Operator("ada", "admin", "second")):
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
