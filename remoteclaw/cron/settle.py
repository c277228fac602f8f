"""Settles runs of cron jobs: watches each until its entry's outcome is final.

One script writes the line of the log, the job and the alert, once, whichever scheduler sends it; so
a run stays open through every kill and restart until one has settled it.
"""

import contextlib
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import orjson

from remoteclaw.clock import named_zone
from remoteclaw.cron.job import Job
from remoteclaw.cron.store import BOUNDS, Cron, OpenRun, Run
from remoteclaw.errors import ScheduleRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.outcomes import Outcome, Outcomes
from remoteclaw.fleet.reply import reply_payload

#: The pause after a failure, in seconds; it doubles with each failure in a row, up to the longest.
BACKOFF_S, LONGEST_BACKOFF_S = 30, 3600

_SUCCEEDED = ("done", "steered")
_FAILED = ("failed", "dead")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settlement:
    """The consequences of a run that has ended."""

    job: Job | None
    """The job from now on; None if it is removed."""
    run: Run
    missed: Run | None = None
    """The due time that is skipped because the job failed."""
    alert: str | None = None
    """What the chat is told."""


def _ended(run: Run, outcome: Outcome | None, now_ms: int) -> Run:
    """Return a run as the log has it; None stands for an outcome that is forgotten."""
    if outcome is None or not outcome.is_final:
        return replace(run, status="unknown", detail="Its outcome is not known any more.")
    steps = outcome.steps
    at_ms = max((step.at_ms for step in steps if step.name == "finished"), default=now_ms)
    begun = [step.at_ms for step in steps if step.name == "begun"]
    duration_ms = max(0, at_ms - min(begun)) if begun else None
    return replace(run, status=outcome.status, detail=_reason(outcome), duration_ms=duration_ms)


def _reason(outcome: Outcome) -> str | None:
    """Return a sentence about a failure: never what a CLI has printed, or the agent has said."""
    if outcome.status == "dead":
        return "It was tried more than once and given up; `remoteclaw deadletters list` shows it."
    if outcome.status != "failed":
        return None
    kind = str((outcome.error or {}).get("category", "")).replace("_", " ")
    return f"The agent failed: {kind}." if kind else "The agent failed."


def _settlement(job: Job, name: str, run: Run, now_ms: int) -> Settlement:
    """Return the consequences of a run that has ended, for the log, the job and the chat.

    A manual run doesn't move the schedule, and its failure is reported to its caller alone; its
    success resets the failures.
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
    # A one-time job that was given another time meanwhile has that one before it.
    if has_succeeded and job.is_once and job.next_ms is None:
        return Settlement(None, run)
    if run.status not in _FAILED:
        return Settlement(job.due_at(job.next_ms), run)
    job = replace(job, failures=job.failures + 1)
    after, missed = _backed_off(job, now_ms)
    return Settlement(after, run, missed, _alert(after) if _is_alerted(job, after) else None)


def _backed_off(job: Job, now_ms: int) -> tuple[Job, Run | None]:
    """Return a job that failed as it is due next, and the due time that is skipped for that."""
    if not job.enabled or job.next_ms is None or job.is_once:
        return job.due_at(job.next_ms), None
    wait_s = min(BACKOFF_S * 2 ** min(job.failures - 1, 16), LONGEST_BACKOFF_S)
    try:
        next_ms = job.schedule.next_after(now_ms + wait_s * 1000 - 1)
    except ScheduleRefused:  # which is said when it is due
        return job, None
    if next_ms is None or next_ms <= job.next_ms:
        return job, None
    times = "once" if job.failures == 1 else f"{job.failures} times in a row"
    why = f"It had failed {times}, so it pauses for {wait_s} s."
    agent = job.session.agent
    missed = Run(job_id=job.id, agent=agent, due_ms=job.next_ms, status="skipped", detail=why)
    return replace(job, next_ms=next_ms), missed


def _is_alerted(job: Job, after: Job) -> bool:
    """Whether the chat is told: once in a row of failures, and when a one-shot is given up."""
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
    """Settles the runs that are over."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._cron = Cron(scripts)
        self._outcomes = Outcomes(scripts)

    async def look(self) -> None:
        """Settle the runs that are over."""
        found = await self._scripts.run("unsettled", keys={"open": keys.CRON_OPEN})
        parts = iter(found)
        for name, stored in zip(parts, parts, strict=True):
            with contextlib.suppress(ValueError):  # it is damaged
                await self.settle(OpenRun.decode(name.decode(), stored))

    async def settle(self, run: OpenRun) -> None:
        """Settle a run that is over. If its job changes meanwhile, the next look does it."""
        stored = await self._cron.stored(run.run.job_id) or b""
        now_ms = await self._scripts.now_ms()
        ended = _ended(run.run, await self._outcomes.read(run.sid, run.entry_id), now_ms)
        try:
            job = Job.decode(stored) if stored else None
        except ValueError:  # a scheduler of its version can read it
            return
        settled = Settlement(None, ended)
        if job:
            settled = _settlement(job, run.name, ended, now_ms)
        if await self._write(run, stored, settled) == "done":
            log.info("cron job %s: a run is over, %s", run.run.job_id, ended.status)

    async def _write(self, run: OpenRun, before: bytes, told: Settlement) -> str:
        job_id = run.run.job_id
        next_ms = told.job.next_ms if told.job else None
        stream, reply = keys.NO_KEY, b""
        if told.job and told.alert:
            session = told.job.session
            stream = keys.reply_stream(session.provider, session.account)
            call = f"{{{session.sid}}}:{run.name}"
            alert = reply_payload(
                session.place, told.alert, sid=session.sid, is_error=True, call=call
            )
            reply = orjson.dumps(alert)
        status: bytes = await self._scripts.run(
            "settle",
            keys={
                "jobs": keys.CRON_JOBS,
                "due": keys.CRON_DUE,
                "open": keys.CRON_OPEN,
                "runs": keys.cron_runs(job_id),
                "all_runs": keys.CRON_RUNS,
                "replies": stream,
            },
            args={
                "run_name": run.name,
                "run": run.stored,
                "job_id": job_id,
                "before": before,
                "after": told.job.encode() if told.job else b"",
                "next_ms": next_ms,
                **BOUNDS,
                "missed": told.missed.encode() if told.missed else None,
                "line": told.run.line(run.entry_id, run.sid),
                "reply": reply,
            },
        )
        return status.decode()
