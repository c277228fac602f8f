"""Turns that wait for another session's turn: never so many that no worker is left to run it."""

import contextlib
from collections.abc import AsyncIterator

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.workers import Workers

__all__ = ["Waits"]

#: How long it is tried to begin or end one while Redis is away, in seconds.
WAIT_S = 2.0


class Waits:
    """Who waits at the moment."""

    def __init__(self, scripts: Scripts, workers: Workers) -> None:
        self._scripts = scripts
        self._workers = workers

    @contextlib.asynccontextmanager
    async def one(self, name: str, *, timeout_s: float) -> AsyncIterator[bool]:
        """Whether a turn may wait for another one, for so long at most.

        It holds a worker all the time, and the other turn needs one too. What a gateway that is
        killed leaves behind ends with its time.
        """
        workers = sum(view.is_ours for view in await self._workers.list())
        if not workers:  # whatever runs the turns can't be counted
            yield True
            return
        may = bool(
            await self._scripts.run(
                "wait",
                [keys.WAITS],
                [name, int(timeout_s * 1000), workers],
                deadline=boottime() + WAIT_S,
            )
        )
        try:
            yield may
        finally:
            if may:
                client = self._scripts.client
                with contextlib.suppress(RedisUnavailable, RedisRefused):
                    await self._scripts.call(
                        lambda: client.zrem(keys.WAITS, name), deadline=boottime() + WAIT_S
                    )
