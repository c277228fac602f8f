"""Settles runs of cron jobs whose entry has its final outcome.

One script writes the line of the log, the job and the alert, so that several schedulers settle a
run once. A run stays open, also if schedulers are killed, until one of them has settled it.
"""

import contextlib
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import orjson

from remoteclaw.clock import named_zone
from remoteclaw.cron.job import Job
from remoteclaw.cron.store import LOG_LIMITS, Cron, JobRun, OpenRun
from remoteclaw.errors import ScheduleRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.turns.outcomes import Outcome, Outcomes

#: The pause after a failure, in seconds. It doubles with each failure in a row, up to the maximum.
BACKOFF_S, MAX_BACKOFF_S = 30, 3600

_SUCCEEDED = ("done", "steered")
_FAILED = ("failed", "dead")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settlement:
    """The consequences of a run that has ended."""

    job: Job | None
    """The job after the run; None if it is removed."""
    run: JobRun
    missed: JobRun | None = None
    """The due time that is skipped because the job failed."""
    alert: str | None = None
    """The notice for the chat."""


def _ended(run: JobRun, outcome: Outcome | None, now_ms: int) -> JobRun:
    """Return a run with its result; `outcome` is None if it has expired."""
    if outcome is None or not outcome.is_final:
        return replace(run, status="unknown", detail="Its outcome is no longer known.")
    steps = outcome.steps
    at_ms = max((step.at_ms for step in steps if step.name == "finished"), default=now_ms)
    begun = [step.at_ms for step in steps if step.name == "begun"]
    duration_ms = max(0, at_ms - min(begun)) if begun else None
    return replace(run, status=outcome.status, detail=_reason(outcome), duration_ms=duration_ms)


def _reason(outcome: Outcome) -> str | None:
    """Return a sentence about a failure, without the CLI's output and the agent's text."""
    if outcome.status == "dead":
        return "It was tried more than once and given up; `remoteclaw deadletters list` shows it."
    if outcome.status != "failed":
        return None
    category = str((outcome.error or {}).get("category", "")).replace("_", " ")
    return f"The agent failed: {category}." if category else "The agent failed."


def _settlement(job: Job, name: str, run: JobRun, now_ms: int) -> Settlement:
    """Return the consequences of a run that has ended, for the log, the job and the chat.

    A manual run doesn't change the schedule. Its success resets the number of failures; its failure
    is reported only to its caller.
    """
    has_succeeded = run.status in _SUCCEEDED
    job = replace(
        job,
        last_status=run.status,
        last_detail=run.detail,
        last_duration_ms=run.duration_ms,
        failures=0 if has_succeeded else job.failures,
    )
    if job.running == name:
        job = replace(job, running=None, missed_ms=None)
    if run.is_manual:
        return Settlement(job, run)
    # A one-time job may have been given a new due time since: then it is kept.
    if has_succeeded and job.is_once and job.next_ms is None:
        return Settlement(None, run)
    if run.status not in _FAILED:
        return Settlement(job.with_next_due(job.next_ms), run)
    job = replace(job, failures=job.failures + 1)
    after, missed = _backed_off(job, now_ms)
    return Settlement(after, run, missed, _alert(after) if _is_alerted(job, after) else None)


def _backed_off(job: Job, now_ms: int) -> tuple[Job, JobRun | None]:
    """Return a failed job with its next due time after a pause, and the due time it skips.

    The latter is None if no due time falls into the pause.
    """
    if not job.enabled or job.next_ms is None or job.is_once:
        return job.with_next_due(job.next_ms), None
    wait_s = min(BACKOFF_S * 2 ** min(job.failures - 1, 16), MAX_BACKOFF_S)
    try:
        next_ms = job.schedule.next_after(now_ms + wait_s * 1000 - 1)
    except ScheduleRefused:  # the scheduler logs this when the job is due
        return job, None
    if next_ms is None or next_ms <= job.next_ms:
        return job, None
    times = "once" if job.failures == 1 else f"{job.failures} times in a row"
    why = f"It had failed {times}, so it pauses for {wait_s} s."
    agent = job.session.agent
    missed = JobRun(job_id=job.id, agent=agent, due_ms=job.next_ms, status="skipped", detail=why)
    return replace(job, next_ms=next_ms), missed


def _is_alerted(job: Job, after: Job) -> bool:
    """Whether the chat is notified: once per row of failures, and when a job is disabled."""
    if not job.alert_after or not job.enabled:
        return False
    return not after.enabled or job.failures == job.alert_after


def _alert(job: Job) -> str:
    failures = job.failures
    times = "" if failures == 1 else f" {failures} times in a row"
    name = " ".join(job.name.split())
    reason = job.last_detail or ""
    reason = reason[:1].lower() + reason[1:]
    if job.next_ms is None:
        return f'The cron job "{name}" has failed{times} and is off now: {reason}'
    zone = named_zone(job.schedule.tz) or UTC
    at = f"{datetime.fromtimestamp(job.next_ms // 1000, tz=zone):%Y-%m-%d at %H:%M}"
    return f'The cron job "{name}" has failed{times}, next try {at} ({zone}): {reason}'


class Settler:
    """Settles the runs that have ended."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._cron = Cron(scripts)
        self._outcomes = Outcomes(scripts)

    async def settle_ended(self) -> None:
        """Settle all runs that have ended."""
        rows = await self._scripts.run("unsettled_runs")
        for row in rows:
            with contextlib.suppress(ValueError):  # a damaged run
                await self.settle(OpenRun.decode(row.name, row.run))

    async def settle(self, run: OpenRun) -> None:
        """Settle a run that has ended; if its job changes at the same time, it stays open."""
        stored = await self._cron.stored(run.run.job_id) or b""
        now_ms = await self._scripts.now_ms()
        ended = _ended(run.run, await self._outcomes.read(run.sid, run.entry_id), now_ms)
        try:
            job = Job.decode(stored) if stored else None
        except ValueError:  # left to a scheduler of the job's version
            return
        settlement = Settlement(None, ended)
        if job:
            settlement = _settlement(job, run.name, ended, now_ms)
        if await self._write(run, stored, settlement) == "done":
            log.info("cron job %s: a run is over, %s", run.run.job_id, ended.status)

    async def _write(self, run: OpenRun, before: bytes, settlement: Settlement) -> str:
        job_id, job = run.run.job_id, settlement.job
        stream, reply = keys.NO_KEY, b""
        if job and settlement.alert:
            session = job.session
            stream = keys.replies(session.provider, session.account)
            call = f"{{{session.sid}}}:{run.name}"
            alert = reply_payload(
                session.place, settlement.alert, sid=session.sid, is_error=True, call=call
            )
            reply = orjson.dumps(alert)
        status: str = await self._scripts.run(
            "settle",
            run_name=run.name,
            run=run.stored,
            job_id=job_id,
            before=before,
            after=job.encode() if job else b"",
            next_ms=job.next_ms if job else None,
            missed=settlement.missed.encode() if settlement.missed else None,
            line=settlement.run.line(run.entry_id, run.sid),
            reply=reply,
            cron_job_runs=keys.cron_job_runs(job_id),
            replies=stream,
            **LOG_LIMITS,
        )
        return status
