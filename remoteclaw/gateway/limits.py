"""Limits on calls, whichever door they come through."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.gateway.meters import Meters
from remoteclaw.gateway.principals import Agent, Principal
from remoteclaw.tools.catalog import Result

__all__ = ["LimitedDispatcher"]

#: How many calls are answered at once: each may hold a connection to Redis.
MOST_CALLS = 512
#: How many of those agents don't get: whoever looks why a gateway is full has to get in.
FOR_OPERATORS = 64
#: How many of one agent's or one token's calls are answered at once: the others want some too.
MOST_OF_ONE = 32
#: How long one call may take, in seconds: methods that wait end a little earlier by themselves.
CALL_S = 120.0
#: How long a call may take to let go once it is cut off, in seconds.
CUT_S = 0.2
BUSY = "This gateway has too much to do: ask again later."
#: How all agents' calls are counted together.
AGENTS = "agents"
ENDS = "This gateway ends: ask again in a moment."
CUT = "This gateway ended during it. Whether it was done is unknown: look before you repeat it."


class LimitedDispatcher(Dispatcher):
    """Answers calls as long as there aren't too many, and none once it is closed."""

    def __init__(self, *args: Any, meters: Meters, **more: Any) -> None:
        super().__init__(*args, **more)
        self.is_closed = False
        self._meters = meters
        self._limits: set[asyncio.Timeout] = set()
        self._running: Counter[str] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()

    async def call(
        self, principal: Principal, name: str, params: Mapping[str, Any], **more: Any
    ) -> tuple[Result, list[dict[str, Any]]]:
        """Answer one call, as `Dispatcher.call()` does."""
        outcome = "CANCELLED"
        try:
            with self._counted(principal):
                answer = await self._bounded(principal, name, params, **more)
            outcome = "ok"
        except CallRefused as refusal:
            outcome = refusal.code
            raise
        finally:
            self._meters.called(name, outcome)
        return answer

    @contextlib.contextmanager
    def _counted(self, principal: Principal) -> Iterator[None]:
        """Count a call as its principal's; raises `CallRefused` if there are too many."""
        is_agent = isinstance(principal, Agent)
        one = principal.sid if isinstance(principal, Agent) else principal.credential
        if self._running[one] >= MOST_OF_ONE:
            raise CallRefused("UNAVAILABLE", f"{MOST_OF_ONE} calls of yours run: wait for one.")
        if is_agent and self._running[AGENTS] >= MOST_CALLS - FOR_OPERATORS:
            raise CallRefused("UNAVAILABLE", BUSY)
        counted = (one, AGENTS) if is_agent else (one,)
        self._running.update(counted)
        try:
            yield
        finally:
            self._running.subtract(counted)
            if not self._running[one]:
                del self._running[one]

    async def _bounded(self, *args: Any, **more: Any) -> tuple[Result, list[dict[str, Any]]]:
        if self.is_closed:
            raise CallRefused("UNAVAILABLE", ENDS)
        if len(self._limits) >= MOST_CALLS:
            raise CallRefused("UNAVAILABLE", BUSY)
        limit = asyncio.timeout(CALL_S)
        self._limits.add(limit)
        self._idle.clear()
        try:
            async with limit:
                return await super().call(*args, **more)
        except TimeoutError:
            if self.is_closed:
                raise CallRefused("UNAVAILABLE", CUT) from None
            raise CallRefused(
                "TIMEOUT",
                f"It took longer than {CALL_S:.0f} s. Whether it was done is unknown: look before "
                "you repeat it.",
            ) from None
        finally:
            self._limits.discard(limit)
            if not self._limits:
                self._idle.set()

    async def idle(self, *, within_s: float) -> None:
        """Wait until no call runs, as long as that may take."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._idle.wait()

    async def close(self, *, within_s: float) -> None:
        """Take no more calls, and let those that run finish; after that they are cut off.

        What such a call has begun may be done nevertheless: it can be asked for again by its name.
        """
        self.is_closed = True
        try:
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        except TimeoutError:
            for limit in self._limits:
                limit.reschedule(asyncio.get_running_loop().time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CUT_S):
                    await self._idle.wait()
