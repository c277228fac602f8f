"""The scheduler: fires cron jobs that are due, and settles runs that have ended.

Any number of schedulers may run. A firing is an entry on the session's inbound stream, like a
message from a chat. One script takes a due time, appends the entry and sets the next due time; so
each due time is fired once, and none is lost with a scheduler that dies.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from remoteclaw.clock import boottime
from remoteclaw.cron.job import Job, NewerJob
from remoteclaw.cron.schedule import Due
from remoteclaw.cron.settle import Settler
from remoteclaw.cron.store import BOUNDS, READ_S, Cron, Run
from remoteclaw.errors import MessageRefused, RedisRefused, RedisUnavailable, ScheduleRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import DEDUPE_MS, FULL, encode_entry, entry_args, entry_keys
from remoteclaw.fleet.lua import Argument
from remoteclaw.fleet.wake import Waker
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import ChannelMessage, SessionKey

__all__ = ["Scheduler"]

#: Interval of the search for due jobs, in seconds: due times are whole seconds.
INTERVAL_S = 1.0
#: The largest number of jobs read at once: each may have a message of 400 KB.
AT_MOST = 100
#: How long a scheduler counts as running after a tick, in milliseconds.
ALIVE_MS = 30_000

#: Why a due time was skipped; the hour is `schedule.GRACE_S`.
_LATER = "No scheduler was there to fire it; a later due time was fired instead."
_TOO_LATE = "No scheduler was there to fire it, and it is more than an hour ago."

log = logging.getLogger(__name__)


class Scheduler:
    """Fires the jobs that are due, and settles their runs."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self._waker = waker
        self._cron = Cron(scripts)
        self._settler = Settler(scripts)

    async def run(self) -> None:
        """Tick every second until cancelled; Redis may be away meanwhile."""
        while True:
            try:
                await self.tick()
            except (RedisUnavailable, RedisRefused) as error:
                log.warning("firing cron jobs: %s", error)
            await asyncio.sleep(INTERVAL_S)

    async def tick(self) -> int:
        """Settle runs that have ended and fire jobs that are due; return the number of jobs fired.

        A job that stays due is passed over: the search goes on behind it, at `offset`.
        """
        await self._settler.look()
        fired = offset = 0
        while True:
            now, *found = await self._scripts.run(
                "due",
                keys={
                    "due": keys.CRON_DUE,
                    "jobs": keys.CRON_JOBS,
                    "scheduler": keys.CRON_SCHEDULER,
                },
                args={"most": AT_MOST, "there_ms": ALIVE_MS, "skipped": offset},
                deadline=boottime() + READ_S,
            )
            parts = iter(found)
            for job_id, due, data in zip(parts, parts, parts, strict=True):
                status = await self._handle(job_id.decode(), int(float(due)), data, int(now))
                offset += status == "left"
                fired += status == "fired"
            if len(found) < 3 * AT_MOST:
                return fired

    async def _handle(
        self, job_id: str, due_ms: int, data: bytes, now_ms: int
    ) -> Literal["fired", "handled", "left"]:
        """Fire or skip a due time of a job.

        "fired": the message was sent; "left": the job stays due; "handled": neither, because the
        due time was skipped, the job can't be fired, or it was changed meanwhile.
        """
        try:
            job = Job.decode(data)
            due = job.schedule.due(due_ms, now_ms, at_any_age=job.policy.misfire == "run_once")
            message = None if due.run_ms is None else job.entry(due.run_ms)
        except NewerJob:
            return "left"
        except (ValueError, ScheduleRefused, MessageRefused) as problem:
            log.error("cron job %s can't be fired: %s", job_id, problem)
            return await self._disarm(job_id, due_ms, data, str(problem))
        except Exception as error:  # noqa: BLE001 - one job must not stop the others
            log.error("cron job %s: %s", job_id, frames_of(error))
            return await self._disarm(job_id, due_ms, data, type(error).__name__)
        # A one-time job fires even while a manual run is open.
        if due.run_ms is not None and not job.is_once and (run := await self._cron.open_run(job)):
            if await self._cron.unfinished(job):
                return await self._skip_while_unfinished(job, due_ms, due)
            # Settling the run may change the due time: the next tick reads it.
            await self._settler.settle(run)
            return "left"
        return await self._fire(job, due_ms, due, message)

    async def _fire(
        self, job: Job, due_ms: int, due: Due, message: ChannelMessage | None
    ) -> Literal["fired", "handled", "left"]:
        missed = None
        if due.has_missed:
            missed = _run(job, due_ms, "skipped", _LATER if due.run_ms is not None else _TOO_LATE)
        if message is None:
            await self._send_fire(job, due_ms, _off_if_over(job, due.next_ms), missed)
            log.info("cron job %s: skipped, it was too late", job.id)
            return "handled"
        assert due.run_ms is not None, "there is a message"
        name = f"{job.id}:{due.run_ms}"
        after = replace(job, next_ms=due.next_ms, last_ms=due.run_ms).begun(name)
        run = _run(job, due.run_ms, "fired")
        status, queue = await self._send_fire(
            job, due_ms, after, missed, run=(name, run), target=(job.session, message)
        )
        if status == "full":
            log.warning("cron job %s waits: %s", job.id, FULL)
            return "left"
        if status == "seen":
            seen = _run(job, due.run_ms, "skipped", "It was fired before: the clock was set back.")
            await self._send_fire(job, due_ms, _off_if_over(job, due.next_ms), seen)
            return "handled"
        if status == "changed":  # the job, by another scheduler or a call
            return "handled"
        await self._waker.try_hint(job.session, queue)
        log.info("cron job %s: fired", job.id)
        return "fired"

    async def _skip_while_unfinished(self, job: Job, due_ms: int, due: Due) -> Literal["handled"]:
        """Skip a due time: runs would pile up behind the unfinished run."""
        is_first = job.state.missed_ms is None
        state = replace(job.state, missed_ms=due_ms) if is_first else job.state
        after = replace(job, next_ms=due.next_ms, state=state)
        why = "The run before it was unfinished; no other one begins until it ends."
        await self._send_fire(
            job, due_ms, after, _run(job, due_ms, "skipped", why) if is_first else None
        )
        return "handled"

    async def _disarm(
        self, job_id: str, due_ms: int, data: bytes, why: str
    ) -> Literal["handled", "left"]:
        """Disarm a job that can't be fired, and keep it."""
        try:
            job = Job.decode(data)
        except (ValueError, NewerJob):
            await self._run_fire_script(job_id, due_ms, data, data, None, None)
        else:
            after = replace(job, next_ms=None)
            await self._send_fire(job, due_ms, after, _run(job, due_ms, "failed", why))
        return "handled"

    async def _send_fire(
        self,
        job: Job,
        due_ms: int,
        after: Job,
        history_run: Run | None,
        *,
        run: tuple[str, Run] | None = None,
        target: tuple[SessionKey, ChannelMessage] | None = None,
    ) -> tuple[str, str]:
        names: dict[str, str] = {}
        more: dict[str, Argument] = {}
        if run and target:
            (run_name, begun), (session, message) = run, target
            names = {
                **entry_keys(session),
                "open": keys.CRON_OPEN,
                "looks": keys.CRON_LOOKS,
                "seen": keys.dedupe(session, message.id),
            }
            entry = encode_entry(message, "channel", "cron", people=job.maker.people)
            more = {
                **entry_args(session, entry),
                "run_name": run_name,
                "run": begun.encode(sid=session.sid),
                "dedupe_ms": DEDUPE_MS,
                "lane": "background",
            }
        after_ms = after.next_ms
        return await self._run_fire_script(
            job.id, due_ms, job.stored, after.encode(), after_ms, history_run, names, more
        )

    async def _run_fire_script(
        self,
        job_id: str,
        due_ms: int,
        before: bytes,
        after: bytes,
        next_ms: int | None,
        history_run: Run | None,
        names: Mapping[str, str] = MappingProxyType({}),
        more: Mapping[str, Argument] = MappingProxyType({}),
    ) -> tuple[str, str]:
        status, _, queue = await self._scripts.run(
            "fire",
            keys={
                "jobs": keys.CRON_JOBS,
                "due": keys.CRON_DUE,
                "runs": keys.cron_runs(job_id),
                "all_runs": keys.CRON_RUNS,
                **names,
            },
            args={
                "job_id": job_id,
                "before": before,
                "due_ms": due_ms,
                "after": after,
                "next_ms": next_ms,
                **BOUNDS,
                "missed": history_run.encode() if history_run else None,
                **more,
            },
            deadline=boottime() + READ_S,
        )
        return status.decode(), queue.decode()


def _run(job: Job, due_ms: int, status: str, detail: str | None = None) -> Run:
    agent = job.session.agent
    return Run(job_id=job.id, agent=agent, due_ms=due_ms, status=status, detail=detail)


def _off_if_over(job: Job, next_ms: int | None) -> Job:
    """Return a job whose due time has no run; a job without a next due time is kept, and off."""
    return replace(job, next_ms=next_ms, enabled=job.enabled and next_ms is not None)
