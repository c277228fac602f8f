"""The limits of concurrent calls, without a gateway."""

import asyncio

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.gateway import limits
from remoteclaw.gateway.limits import Calls
from remoteclaw.gateway.principals import Agent, Operator, Principal


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
