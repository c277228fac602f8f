"""The sweeper: hints sessions that have work and no worker. Any number may run."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.asks import Asks
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import GRACE_MS
from remoteclaw.fleet.state import STATE_MS
from remoteclaw.fleet.wake import Waker
from remoteclaw.fleet.workers import Workers

#: How often it looks, in seconds.
INTERVAL_S = 1.0
#: How many sessions one look hints at most.
AT_MOST = 500
#: The longest time between two hints for one session, in milliseconds.
LONGEST_WAIT_MS = 60_000

#: After so many looks, a session is hinted although its queue is not empty: its hint may be lost.
PATIENT_LOOKS = 5
#: How long it counts as there after a look, in milliseconds.
THERE_MS = 30_000

log = logging.getLogger(__name__)


class Sweeper:
    """Wakes sessions whose hint was lost, and those whose worker is gone once its lease is over."""

    def __init__(self, scripts: Scripts, waker: Waker, workers: Workers, asks: Asks) -> None:
        self._scripts = scripts
        self._waker = waker
        self._workers = workers
        self._asks = asks

    async def sweep(self) -> int:
        """Look once; return how many sessions were hinted."""
        found = await self._scripts.run(
            "sweep",
            keys={"active": keys.ACTIVE, "sessions": keys.SESSIONS, "sweeper": keys.SWEEPER},
            args={
                "states": keys.STATE_PREFIX,
                "retry_ms": GRACE_MS,
                "most": AT_MOST,
                "longest_ms": LONGEST_WAIT_MS,
                "patient_looks": PATIENT_LOOKS,
                "listed_ms": STATE_MS,
                "there_ms": THERE_MS,
            },
            deadline=boottime() + INTERVAL_S,
        )
        texts = iter(part.decode() for part in found)
        count = 0
        for sid, why, label, queue in zip(texts, texts, texts, texts, strict=True):
            log.info("session %s: hinted again, %s", sid[:8], why)
            await self._waker.hint(sid, label, queue=queue)
            count += 1
        return count

    async def release_dead(
        self,
        host: str,
        is_alive: Callable[[str], bool],
        *,
        end_left: Callable[[], object] = lambda: None,
        is_deliberate: bool = False,
    ) -> int:
        """End the leases of this host's dead workers at once; return how many there were.

        A worker's label begins with `host`, and `is_alive` tells of the rest whether it runs.
        `end_left` ends before what they have left: the session's next owner may be elsewhere.
        An attempt that was cut off deliberately does not count as one that failed.
        """
        client = self._scripts.client
        active = await self._scripts.call(
            client.zrange, keys.ACTIVE, 0, -1, deadline=boottime() + INTERVAL_S
        )
        sids = [name.decode() for name in active]
        dead = [
            (sid, epoch)
            for start in range(0, len(sids), AT_MOST)
            for sid, epoch, label in await self._owners(sids[start : start + AT_MOST])
            if label.startswith(f"{host} ") and not is_alive(label.removeprefix(f"{host} "))
        ]
        if dead:
            await asyncio.to_thread(end_left)
        released = 0
        for sid, epoch in dead:
            released += await self._scripts.run(
                "expire",
                keys={"state": keys.state(sid), "active": keys.ACTIVE},
                args={"epoch": epoch, "sid": sid, "is_deliberate": is_deliberate},
                deadline=boottime() + INTERVAL_S,
            )
        return released

    async def _owners(self, sids: Sequence[str]) -> list[tuple[str, str, str]]:
        found = await self._scripts.together(
            lambda ask: [ask.hmget(keys.state(sid), ["epoch", "worker"]) for sid in sids],
            deadline=boottime() + INTERVAL_S,
        )
        return [
            (sid, epoch.decode(), worker.decode())
            for sid, (epoch, worker) in zip(sids, found, strict=True)
            if epoch and worker
        ]

    async def run(self) -> None:
        """Look every second until cancelled; Redis may be away meanwhile."""
        while True:
            try:
                await self.sweep()
                await self._workers.clear_deserted()
                await self._asks.let_lapse()
            except (RedisUnavailable, RedisRefused) as error:
                log.warning("sweeping: %s", error)
            await asyncio.sleep(INTERVAL_S)
