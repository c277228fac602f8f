"""Turns that wait for another session's turn, limited so that a worker stays free to run it."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Literal

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.keys import lane_on
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.fleet.workers import Workers

#: Time limit for beginning or ending one while Redis is away, in seconds.
WAIT_S = 2.0
#: For how many workers it counts if none can be counted: then something else runs the turns.
UNCOUNTED = 1000

#: Whether a turn may wait: yes; no, because no worker would be left to answer; or no, because the
#: other one waits for it already, directly or through others.
Verdict = Literal["free", "full", "circle"]


class WaitLimit:
    """Who waits at the moment."""

    def __init__(self, scripts: Scripts, workers: Workers) -> None:
        self._scripts = scripts
        self._workers = workers

    @contextlib.asynccontextmanager
    async def hold(
        self, sid: str, turn: str, target: SessionView, *, timeout_s: float
    ) -> AsyncIterator[Verdict]:
        """Let a session's turn wait for a turn of another one, for so long at most, if it may.

        It holds a worker all the time, and the other turn needs one too: of its host, if it has
        one. A wait is over with its turn, whatever became of who waited, or with its time.
        Raises `RedisUnavailable` or `RedisRefused`.
        """
        views = [view for view in await self._workers.list() if view.is_ours]
        of_host = [view for view in views if lane_on("agents", target.host or "") in view.queues]
        name = f"{sid} {turn} {target.sid} {uuid.uuid4().hex}"
        told = await self._scripts.run(
            "wait",
            keys={"waits": keys.WAITS},
            args={
                "name": name,
                "wait_ms": int(timeout_s * 1000),
                "workers": len(of_host or views) or UNCOUNTED,
                "host": target.host if of_host else None,
            },
            deadline=boottime() + WAIT_S,
        )
        verdict: Verdict = told.decode()
        try:
            yield verdict
        finally:
            if verdict == "free":
                client = self._scripts.client
                with contextlib.suppress(RedisUnavailable, RedisRefused):
                    await self._scripts.call(
                        client.zrem, keys.WAITS, name, deadline=boottime() + WAIT_S
                    )
