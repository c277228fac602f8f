"""The limit on turns that wait for another session's turn, so that a worker stays free for that."""

import contextlib
import logging
import uuid
from collections.abc import AsyncIterator
from typing import Literal

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.pools import Pools
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.fleet.workers import Workers
from remoteclaw.messages import reference
from remoteclaw.telemetry import noting_wait

#: The time limit for recording the begin or end of a wait, in seconds.
WAIT_S = 2.0
#: The assumed number of workers if none is registered: then another program runs the turns.
UNKNOWN_WORKERS = 1000

#: Whether a turn may wait. "free": it may. "full": it may not, since no worker would be left for
#: the other turn. "circle": it may not, since the other session already waits for this one,
#: directly or through others.
Verdict = Literal["free", "full", "circle"]

log = logging.getLogger(__name__)


class WaitLimit:
    """Records the turns that wait for another session's turn, and limits their number."""

    def __init__(self, scripts: Scripts, workers: Workers, pools: Pools) -> None:
        self._scripts = scripts
        self._workers = workers
        self._pools = pools

    @contextlib.asynccontextmanager
    async def hold(
        self, sid: str, turn: str, target: SessionView, *, timeout_s: float
    ) -> AsyncIterator[Verdict]:
        """Record that a session's turn waits for a turn of `target`; yield whether it may.

        A waiting turn occupies a worker, and the other turn needs another one, with the label of
        the target's agent and of its host if it has one. The record is removed when the context
        ends. It also ends with the waiting turn and after `timeout_s`, in case this process dies.
        Raises `RedisUnavailable` or `RedisRefused`.
        """
        label = await self._pools.label(target.key.agent)
        listed = await self._workers.list()
        views = [view for view in listed if view.is_ours and view.label == label]
        of_host = [view for view in views if target.host and view.host_id == target.host]
        name = f"{sid} {turn} {target.sid} {uuid.uuid4().hex}"
        verdict: Verdict = await self._scripts.run(
            "wait",
            name=name,
            wait_ms=int(timeout_s * 1000),
            workers=len(of_host or views) or UNKNOWN_WORKERS,
            host=target.host if of_host else None,
            deadline=boottime() + WAIT_S,
        )
        try:
            with noting_wait(
                log,
                reference=reference(sid, turn),
                session=sid,
                what=f"the session {target.sid[:8]}",
            ):
                yield verdict
        finally:
            if verdict == "free":
                client = self._scripts.client
                with contextlib.suppress(RedisUnavailable, RedisRefused):
                    await self._scripts.call(
                        client.zrem, keys.WAITS, name, deadline=boottime() + WAIT_S
                    )
