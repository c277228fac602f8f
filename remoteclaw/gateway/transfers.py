"""Transfers: a bound on the files that a gateway holds in memory at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.principals import Agent, Principal

__all__ = ["Transfers"]

#: How many files are held at once, each of 20 MB at most.
MOST_FILES = 6
#: How long a call waits for its turn, in seconds.
WAIT_S = 10.0
BUSY = "Too many files are being sent at once: send it again in a moment."


class Transfers:
    """Makes calls that send files wait for each other.

    One caller sends one file at a time, so that a slow server can't take the places of all.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MOST_FILES)
        self._callers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def one(self, principal: Principal) -> AsyncIterator[None]:
        """Hold one file; raises `CallRefused` if others are held for too long."""
        who = principal.sid if isinstance(principal, Agent) else principal.credential
        own = self._callers.setdefault(who, asyncio.Lock())
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(WAIT_S):
                    await held.enter_async_context(own)
                    await held.enter_async_context(self._places)
            except TimeoutError:
                raise CallRefused("UNAVAILABLE", BUSY) from None
            yield
