"""A dispatcher that counts calls and bounds them, whichever door they come through."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from remoteclaw.contract import Result
from remoteclaw.errors import CallRefused
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.gateway.meters import Meters
from remoteclaw.gateway.principals import Principal

__all__ = ["LimitedDispatcher"]

#: How many calls are answered at once: each may hold a connection to Redis.
MOST_CALLS = 512
#: How long one call may take, in seconds: methods that wait end a little earlier by themselves.
CALL_S = 120.0
#: How long a call may take to let go once it is cut off, in seconds.
CUT_S = 0.2
ENDS = "This gateway ends: ask again in a moment."
CUT = "This gateway ended during it. Whether it was done is unknown: look before you repeat it."


class LimitedDispatcher(Dispatcher):
    """Answers calls as long as there aren't too many, and none once it is closed."""

    def __init__(self, *args: Any, meters: Meters, **more: Any) -> None:
        super().__init__(*args, **more)
        self.is_closed = False
        self._meters = meters
        self._limits: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def call(
        self, principal: Principal, name: str, params: Mapping[str, Any], **more: Any
    ) -> tuple[Result, list[dict[str, Any]]]:
        """Answer one call, as `Dispatcher.call()` does."""
        outcome = "CANCELLED"
        try:
            answer = await self._bounded(principal, name, params, **more)
            outcome = "ok"
        except CallRefused as refusal:
            outcome = refusal.code
            raise
        finally:
            self._meters.called(name, outcome)
        return answer

    async def _bounded(self, *args: Any, **more: Any) -> tuple[Result, list[dict[str, Any]]]:
        if self.is_closed:
            raise CallRefused("UNAVAILABLE", ENDS)
        if len(self._limits) >= MOST_CALLS:
            raise CallRefused("UNAVAILABLE", "This gateway has too much to do: ask again later.")
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
