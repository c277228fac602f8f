"""The limits of calls, by themselves."""

import asyncio

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.limits import Calls
from remoteclaw.gateway.principals import Operator


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
