"""The sweeper: sends new hints for sessions with work and no worker. Any number may run."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.requests.requests import Requests
from remoteclaw.fleet.sessions.state import STATE_MS
from remoteclaw.fleet.turns.inbound import GRACE_MS
from remoteclaw.fleet.wake import Waker
from remoteclaw.fleet.workers import BEAT_S, GONE_S, Workers
from remoteclaw.telemetry import HINTED, SESSION_WAITS

#: The interval between two sweeps, in seconds.
INTERVAL_S = 1.0
#: The maximum number of sessions that one sweep checks.
MAX_BATCH = 500
#: The maximum time between two checks of one session, in milliseconds.
MAX_WAIT_MS = 60_000

#: At the check with this number, a session gets a hint even if its queue is not empty, since its
#: earlier hint may be lost.
PATIENT_CHECKS = 5
#: At the check with this number, a session has waited for half a minute, which is logged.
LONG_CHECKS = 4
#: A sweeper counts as running for this long after a sweep, in milliseconds.
ALIVE_MS = 30_000
#: A host whose workers have missed two beats is probably gone. Its sessions are checked again when
#: that is known, so that they don't wait for the pauses between their checks, in milliseconds.
LATE_MS = int(1000 * (GONE_S - 2 * BEAT_S))

log = logging.getLogger(__name__)


class Sweeper:
    """Sends hints for sessions whose hint was lost, or whose worker's lease has expired."""

    def __init__(
        self, scripts: Scripts, waker: Waker, workers: Workers, requests: Requests
    ) -> None:
        self._scripts = scripts
        self._waker = waker
        self._workers = workers
        self._requests = requests
        self.has_cron_work = asyncio.Event()
        """Set by a sweep that finds a cron job that is due, or a run that is not settled."""

    async def sweep(self) -> int:
        """Sweep once; return the number of sessions for which a hint was sent."""
        swept = await self._scripts.run(
            "sweep",
            retry_ms=GRACE_MS,
            max_count=MAX_BATCH,
            longest_ms=MAX_WAIT_MS,
            patient_checks=PATIENT_CHECKS,
            long_checks=LONG_CHECKS,
            listed_ms=STATE_MS,
            alive_ms=ALIVE_MS,
            late_ms=LATE_MS,
            rq_queues=keys.RQ_QUEUES,
            deadline=boottime() + INTERVAL_S,
        )
        if swept.has_cron_work:
            self.has_cron_work.set()
        for row in swept.hints:
            if row.waited_ms:
                seconds = round(int(row.waited_ms) / 1000)
                SESSION_WAITS.log(log, session=row.sid, queue=row.queue, seconds=seconds)
            if row.why:
                HINTED.log(log, session=row.sid, reason=row.why)
                await self._waker.hint(row.sid, row.session_key, queue=row.queue)
        if swept.has_deserted:
            await self._workers.clear_deserted()
        if swept.has_overdue:
            await self._requests.expire_due()
        return sum(bool(row.why) for row in swept.hints)

    async def release_dead(
        self,
        host: str,
        is_alive: Callable[[str], bool],
        *,
        end_left: Callable[[], object] = lambda: None,
        is_deliberate: bool = False,
    ) -> int:
        """End the leases of this host's dead workers at once; return the number of leases.

        `is_alive` gets a worker's label without `host`. Before the leases end, `end_left` ends the
        agents that the workers left running, since the next owner may be on another host. With
        `is_deliberate`, the interrupted attempts do not count as failed.
        """
        dead = [row for row in await self._owners(host) if not is_alive(row.worker)]
        if dead:
            await asyncio.to_thread(end_left)
        released = 0
        for row in dead:
            released += await self._scripts.run(
                "expire",
                sid=row.sid,
                epoch=row.epoch,
                is_deliberate=is_deliberate,
                deadline=boottime() + INTERVAL_S,
            )
        return released

    async def _owners(self, host: str) -> Sequence[Any]:
        """Return the id, the epoch and the worker of each session with a worker of this host.

        Many sessions are read in several steps, so that other commands get their turn. One that is
        missed because the order changes meanwhile is found by the next call.
        """
        found: list[Any] = []
        start, is_last = 0, False
        while not is_last:
            read = await self._scripts.run(
                "owners",
                start=start,
                max_count=MAX_BATCH,
                host=host,
                deadline=boottime() + INTERVAL_S,
            )
            found += read.owners
            start, is_last = start + MAX_BATCH, read.count < MAX_BATCH
        return found

    async def run(self) -> None:
        """Sweep every second until cancelled, also while Redis is unavailable."""
        while True:
            try:
                await self.sweep()
            except (RedisUnavailable, RedisRefused) as error:
                log.warning("sweeping: %s", error)
            await asyncio.sleep(INTERVAL_S)
