"""The scheduler: fires cron jobs that are due, and settles runs that have ended.

Any number of schedulers may run. A firing is an entry on the session's inbound stream, like a
message from a chat. One script takes a due time, appends the entry and sets the next due time; so
each due time is fired once, and none is lost with a scheduler that dies.
"""

import asyncio
import logging
from dataclasses import replace
from typing import Literal

from remoteclaw.cron.job import Job
from remoteclaw.cron.schedule import Due
from remoteclaw.cron.settle import Settler
from remoteclaw.cron.store import BOUNDS, Cron, Run
from remoteclaw.errors import MessageRefused, RedisRefused, RedisUnavailable, ScheduleRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import FULL, encode_entry, entry_args, entry_keys
from remoteclaw.fleet.lua import Argument
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import ChannelMessage

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
        self._unreadable: set[str] = set()
        """Ids of jobs that are damaged or of another version: each is logged once."""

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
        except ValueError as problem:
            if job_id not in self._unreadable:
                self._unreadable.add(job_id)
                log.error("cron job %s is left as it is: %s", job_id, problem)
            return "left"
        try:
            due = job.schedule.due(due_ms, now_ms, at_any_age=job.misfire == "run_once")
            message = None if due.run_ms is None else job.entry(due.run_ms)
        except (ScheduleRefused, MessageRefused) as problem:
            log.error("cron job %s can't be fired: %s", job_id, problem)
            failed = _run(job, due_ms, "failed", str(problem))
            await self._send_fire(job, due_ms, job.due_at(None), failed)
            return "handled"
        # A one-time job fires even while a manual run is open.
        if due.run_ms is not None and not job.is_once and await self._cron.open_run(job):
            if await self._cron.unfinished(job):
                return await self._skip_while_unfinished(job, due_ms, due)
            return "left"  # the next tick settles that run first, which may change the due time
        return await self._fire(job, due_ms, due, message)

    async def _fire(
        self, job: Job, due_ms: int, due: Due, message: ChannelMessage | None
    ) -> Literal["fired", "handled", "left"]:
        missed = None
        if due.has_missed:
            missed = _run(job, due_ms, "skipped", _LATER if due.run_ms is not None else _TOO_LATE)
        if message is None:
            await self._send_fire(job, due_ms, job.due_at(due.next_ms), missed)
            log.info("cron job %s: skipped, it was too late", job.id)
            return "handled"
        assert due.run_ms is not None, "there is a message"
        name = f"{job.id}:{due.run_ms}"
        after = replace(job, next_ms=due.next_ms, last_ms=due.run_ms).begun(name)
        status, queue = await self._send_fire(job, due_ms, after, missed, run=name, message=message)
        if status == "full":
            log.warning("cron job %s waits: %s", job.id, FULL)
            return "left"
        if status == "changed":  # the job, by another scheduler or a call
            return "handled"
        await self._waker.try_hint(job.session, queue)
        log.info("cron job %s: fired", job.id)
        return "fired"

    async def _skip_while_unfinished(self, job: Job, due_ms: int, due: Due) -> Literal["handled"]:
        """Skip a due time: runs would pile up behind the unfinished run."""
        after, skipped = replace(job, next_ms=due.next_ms), None
        if job.missed_ms is None:
            after = replace(after, missed_ms=due_ms)
            why = "The run before it was unfinished; no other one begins until it ends."
            skipped = _run(job, due_ms, "skipped", why)
        await self._send_fire(job, due_ms, after, skipped)
        return "handled"

    async def _send_fire(
        self,
        job: Job,
        due_ms: int,
        after: Job,
        noted: Run | None,
        *,
        run: str = "",
        message: ChannelMessage | None = None,
    ) -> tuple[str, str]:
        """Take a due time; with a `message`, begin the run of that name."""
        names: dict[str, str] = {}
        args: dict[str, Argument] = {}
        if message:
            names = {**entry_keys(job.session), "open": keys.CRON_OPEN}
            entry = encode_entry(message, "channel", "cron", people=job.people)
            args = {
                **entry_args(job.session, entry),
                "run_name": run,
                "run": _run(job, message.timestamp, "fired").encode(sid=job.session.sid),
                "lane": "background",
            }
        status, _, queue = await self._scripts.run(
            "fire",
            keys={
                "jobs": keys.CRON_JOBS,
                "due": keys.CRON_DUE,
                "runs": keys.cron_runs(job.id),
                "all_runs": keys.CRON_RUNS,
                **names,
            },
            args={
                "job_id": job.id,
                "before": job.stored,
                "due_ms": due_ms,
                "after": after.encode(),
                "next_ms": after.next_ms,
                **BOUNDS,
                "missed": noted.encode() if noted else None,
                **args,
            },
        )
        return status.decode(), queue.decode()


def _run(job: Job, due_ms: int, status: str, detail: str | None = None) -> Run:
    agent = job.session.agent
    return Run(job_id=job.id, agent=agent, due_ms=due_ms, status=status, detail=detail)
