"""The scheduler: fires cron jobs that are due, and settles runs that have ended.

Firing a job appends an entry to the session's inbound stream, like a message from a chat. One
script takes the due time, appends the entry and sets the next due time. So any number of schedulers
may run: each due time is fired once, and none is lost if a scheduler dies.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from remoteclaw.config.model import Config
from remoteclaw.cron.job import Job
from remoteclaw.cron.schedule import Due
from remoteclaw.cron.settle import Settler
from remoteclaw.cron.store import LOG_LIMITS, Cron, JobRun
from remoteclaw.errors import MessageRefused, RedisRefused, RedisUnavailable, ScheduleRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.budgets.budgets import Budgets
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.lua import Values
from remoteclaw.fleet.turns.inbound import FULL, encode_entry, entry_args
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import ChannelMessage

#: The interval between two searches for due jobs while a sweep finds none, in seconds.
INTERVAL_S = 10.0
#: The maximum number of jobs that one script reads: each may have a message of 400 KB.
MAX_BATCH = 100
#: A scheduler counts as running for this long after a tick, in milliseconds.
ALIVE_MS = 30_000

#: The reasons for a skipped due time; the hour is `schedule.GRACE_S`.
_LATER = "No scheduler was there to fire it; a later due time was fired instead."
_TOO_LATE = "No scheduler was there to fire it, and it is more than an hour ago."
_RESTORED = "The fleet was restored from a backup; the lost one may have fired it."

log = logging.getLogger(__name__)


class Scheduler:
    """Fires due jobs, and settles their runs."""

    def __init__(
        self, scripts: Scripts, waker: Waker, budgets: Budgets, config: Callable[[], Config]
    ) -> None:
        self._scripts = scripts
        self._waker = waker
        self._budgets = budgets
        self._config = config
        self._cron = Cron(scripts)
        self._settler = Settler(scripts)
        self._unreadable: set[str] = set()
        """The ids of jobs that are damaged or of another version: each is logged once."""

    async def run(self, has_work: asyncio.Event) -> None:
        """Tick after each sweep that sets `has_work`, which one does every second.

        Ends when cancelled, and goes on while Redis is unavailable.
        """
        while True:
            has_work.clear()
            try:
                await self.tick()
            except (RedisUnavailable, RedisRefused) as error:
                log.warning("firing cron jobs: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await has_work.wait()

    async def tick(self) -> int:
        """Settle runs that have ended and fire jobs that are due; return the number of jobs fired.

        The number of jobs that stay due is the offset from which the next batch is read.
        """
        fired = offset = 0
        is_settled = False
        while True:
            due = await self._scripts.run(
                "due_jobs",
                max_count=MAX_BATCH,
                alive_ms=ALIVE_MS,
                skipped=offset,
            )
            if due.unsettled and not is_settled:
                is_settled = True
                await self._settler.settle_ended()
                continue  # a run that ends may change when its job is due
            for row in due.jobs:
                status = await self._handle(row.id, int(float(row.due_ms)), row.job, due.now_ms)
                offset += status == "left"
                fired += status == "fired"
            if len(due.jobs) < MAX_BATCH:
                return fired

    async def skip_due(self) -> int:
        """Skip the due times of all jobs that are due, and note that; return the number of jobs.

        This is for a fleet that was restored: the lost one may have fired them.
        """
        skipped = offset = 0
        while True:
            due = await self._scripts.run(
                "due_jobs", max_count=MAX_BATCH, alive_ms=ALIVE_MS, skipped=offset
            )
            for row in due.jobs:
                try:
                    job = Job.decode(row.job)
                    upcoming = job.schedule.due(int(float(row.due_ms)), due.now_ms).next_ms
                except (ValueError, ScheduleRefused):
                    offset += 1  # `tick()` logs it
                    continue
                due_ms = int(float(row.due_ms))
                run = _run(job, due_ms, "skipped", _RESTORED)
                await self._send_fire(job, due_ms, job.with_next_due(upcoming), run)
                skipped += 1
            if len(due.jobs) < MAX_BATCH:
                return skipped

    async def _handle(
        self, job_id: str, due_ms: int, data: str | bytes, now_ms: int
    ) -> Literal["fired", "handled", "left"]:
        """Fire or skip a due time of a job.

        "fired": the message was sent. "left": the job stays due. "handled": the due time was
        skipped, the job can't be fired, or another process changed the job in the meantime.
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
            message = None if due.run_ms is None else job.message_at(due.run_ms)
        except (ScheduleRefused, MessageRefused) as problem:
            log.error("cron job %s can't be fired: %s", job_id, problem)
            failed = _run(job, due_ms, "failed", str(problem))
            await self._send_fire(job, due_ms, job.with_next_due(None), failed)
            return "handled"
        # A one-time job fires even while a manual run is open.
        if due.run_ms is not None and not job.is_once and await self._cron.open_run(job):
            if await self._cron.unfinished(job):
                return await self._skip_while_unfinished(job, due_ms, due)
            return "left"  # the next tick settles the run first, which may change the due time
        if message and not job.is_once:  # a message that comes once is kept, as those of people are
            why = await self._budgets.refusal(self._config(), job.session, job.session, job.people)
            if why:
                refused = _run(job, due_ms, "skipped", why)
                await self._send_fire(job, due_ms, replace(job, next_ms=due.next_ms), refused)
                return "handled"
        return await self._fire(job, due_ms, due, message)

    async def _fire(
        self, job: Job, due_ms: int, due: Due, message: ChannelMessage | None
    ) -> Literal["fired", "handled", "left"]:
        missed = None
        if due.has_missed:
            missed = _run(job, due_ms, "skipped", _LATER if due.run_ms is not None else _TOO_LATE)
        if message is None:
            await self._send_fire(job, due_ms, job.with_next_due(due.next_ms), missed)
            log.info("cron job %s: skipped, it was too late", job.id)
            return "handled"
        assert due.run_ms is not None, "the message was made for this due time"
        name = f"{job.id}:{due.run_ms}"
        after = replace(job, next_ms=due.next_ms, last_ms=due.run_ms).with_run(name)
        status, entry_id, queue = await self._send_fire(
            job, due_ms, after, missed, run=name, message=message
        )
        if status == "full":
            log.warning("cron job %s waits: %s", job.id, FULL)
            return "left"
        if status == "changed":  # by another scheduler or a call
            return "handled"
        await self._waker.accepted(job.session, entry_id, queue, by=f"cron job {job.id}")
        return "fired"

    async def _skip_while_unfinished(self, job: Job, due_ms: int, due: Due) -> Literal["handled"]:
        """Skip a due time, so that runs don't pile up after an unfinished run."""
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
        skipped: JobRun | None,
        *,
        run: str = "",
        message: ChannelMessage | None = None,
    ) -> tuple[str, str, str | None]:
        """Take a due time of `job`, and store the job as `after`.

        With a `message`, begin the run named `run`. `skipped` is the due time to log as skipped or
        failed. Returns the script's status, the id of the entry, and the queue of the hint.
        """
        args: Values = {}
        if message:
            entry = encode_entry(message, "channel", "cron", job.provenance, job.people)
            args = {
                **entry_args(job.session, entry),
                "run_name": run,
                "run": _run(job, message.timestamp, "fired").encode(sid=job.session.sid),
                "lane": "background",
            }
        fired = await self._scripts.run(
            "fire",
            job_id=job.id,
            before=job.stored,
            due_ms=due_ms,
            after=after.encode(),
            next_ms=after.next_ms,
            missed=skipped.encode() if skipped else None,
            cron_job_runs=keys.cron_job_runs(job.id),
            **LOG_LIMITS,
            **args,
        )
        return fired.status, fired.entry_id or "", fired.queue


def _run(job: Job, due_ms: int, status: str, detail: str | None = None) -> JobRun:
    agent = job.session.agent
    return JobRun(job_id=job.id, agent=agent, due_ms=due_ms, status=status, detail=detail)
