"""How runs of cron jobs end: what that means for the job, and what the chat is told.

A run is over when its entry's outcome is final. One script writes the line of the log, the job and
the alert, once, whoever looks; so a run stays open through every kill and restart until somebody
has settled it.
"""

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from remoteclaw.clock import boottime
from remoteclaw.config import CronConfig
from remoteclaw.errors import ErrorCategory, RedisRefused, RedisUnavailable, ScheduleRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.cron import BOUNDS, READ_S, Cron, Job, NewerJob, OpenRun, Run
from remoteclaw.fleet.outcomes import Outcome, Outcomes
from remoteclaw.fleet.replies import reply_payload
from remoteclaw.telemetry import frames_of

__all__ = ["BACKOFF_S", "RETRIES", "Ended", "Settlement", "Settler", "settlement"]

#: How many open runs are looked at in one look: what is left is looked at a second later.
AT_MOST = 100
#: How soon, and how late, it is looked again whether a run is over, in milliseconds: in between, a
#: quarter of the time that it has taken so far.
SHORTEST_MS, LONGEST_MS = 1000, 15_000
#: How long a job that failed is left alone, in seconds: once, twice, … in a row.
BACKOFF_S = (30, 60, 300, 900, 3600)
#: How often a job that is due once is tried again after a failure that may pass.
RETRIES = 3

_WENT_WELL = ("done", "steered")
_FAILED = ("failed", "dead")
#: Failures that may be gone in a minute. An agent that died may have done a part of the work.
_TRANSIENT = (ErrorCategory.RETRYABLE, ErrorCategory.TIMEOUT)
#: What the log of runs says of an outcome: never what a CLI has printed, or the agent has said.
_REASONS = {
    "stopped": "Somebody stopped it.",
    "interrupted": "A newer message interrupted it.",
    "dropped": "Too many messages waited in its session.",
    "dead": "It was tried more than once and given up; `remoteclaw deadletters list` shows it.",
    "unknown": "What became of it is not known any more.",
    ErrorCategory.RETRYABLE: "The agent's model was busy or out of reach.",
    ErrorCategory.CONTEXT_OVERFLOW: "The conversation was too long for the agent's model.",
    ErrorCategory.UNFIT_IMAGE: "The agent's model could not read a picture of the conversation.",
    ErrorCategory.AUTH: "The agent was not signed in to its model.",
    ErrorCategory.BILLING: "The agent's account had no credit or quota left.",
    ErrorCategory.PERMISSION: "The agent was not allowed to do that.",
    ErrorCategory.SESSION_EXPIRED: "The agent had lost the conversation.",
    ErrorCategory.NOT_INSTALLED: "The agent could not be started.",
    ErrorCategory.TIMEOUT: "The agent took too long.",
    ErrorCategory.DIED: "The agent stopped working in the middle of it.",
    ErrorCategory.TOO_LONG: "The agent's answer became too long.",
    ErrorCategory.UNREADABLE: "The worker that got it could not read it.",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    status: str
    at_ms: int
    duration_ms: int | None = None
    category: str | None = None
    """What kind of failure it was."""

    @property
    def went_well(self) -> bool:
        """Whether the agent has answered."""
        return self.status in _WENT_WELL

    @property
    def has_failed(self) -> bool:
        """Whether something went wrong; what people stop or drop has not failed."""
        return self.status in _FAILED

    @property
    def may_pass(self) -> bool:
        """Whether it may go well in a minute. What was given up as dead was tried often enough."""
        return self.status == "failed" and self.category in _TRANSIENT

    @property
    def reason(self) -> str | None:
        """One sentence about why it did not go well."""
        if self.went_well:
            return None
        found = _REASONS.get(self.status) or _REASONS.get(self.category or "")
        return found or "The agent failed."

    @classmethod
    def of(cls, outcome: Outcome | None, now_ms: int) -> "Ended":
        """Return how a run with this outcome ended; None is one that is forgotten.

        One that is not final is of an entry that an operator has removed with their own hands.
        """
        if outcome is None or not outcome.is_final:
            return cls("unknown", now_ms)
        steps = outcome.steps
        at_ms = max((step.at_ms for step in steps if step.name == "finished"), default=now_ms)
        begun = [step.at_ms for step in steps if step.name == "begun"]
        duration_ms = max(0, at_ms - min(begun)) if begun else None
        category = str((outcome.error or {}).get("category")) if outcome.error else None
        return cls(outcome.status, at_ms, duration_ms, category)


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a run that has ended comes to."""

    job: Job | None
    """The job as it is from now on; None if it is done with."""
    run: Run
    missed: Run | None = None
    """The due time that is left out while a job that failed is left alone."""
    alert: str | None = None
    """What the chat is told."""


def settlement(
    job: Job, open_run: OpenRun, ended: Ended, now_ms: int, config: CronConfig
) -> Settlement:
    """Return what a run that has ended means for its job.

    A run that somebody asked for doesn't move the schedule, and its failure is told to whoever
    asked; but if it goes well, the job is well again.
    """
    run = _ended(open_run.run, ended)
    state = replace(
        job.state,
        last_status=ended.status,
        last_detail=ended.reason,
        last_duration_ms=ended.duration_ms,
    )
    if state.running == open_run.name:
        state = replace(state, running=None, missed_ms=None)
    if ended.went_well:
        state = replace(state, failures=0)
    if run.is_manual:
        return Settlement(replace(job, state=state), run)
    if ended.has_failed:
        state = replace(state, failures=state.failures + 1)
    job = replace(job, state=state)
    # A job that was given another time meanwhile has that one before it.
    is_over = job.is_once and job.next_ms is None
    if ended.went_well and job.goes_after_run and (is_over or not job.is_once):
        return Settlement(None, run)
    if not ended.has_failed:
        return Settlement(_off_if_over(job), run)
    after, missed = _left_alone(job, ended, now_ms)
    threshold = _chosen(job.policy.alert_after, config.alert_after)
    cooldown_ms = _chosen(job.policy.alert_cooldown_s, config.alert_cooldown_s) * 1000
    alerted_ms = state.alerted_ms
    is_quiet = alerted_ms is not None and 0 <= now_ms - alerted_ms < cooldown_ms
    is_enough = state.failures >= threshold or not after.enabled
    if not threshold or not is_enough or is_quiet or not job.enabled:
        return Settlement(after, run, missed)
    after = replace(after, state=replace(state, alerted_ms=now_ms))
    return Settlement(after, run, missed, _alert(after))


def _ended(run: Run, ended: Ended) -> Run:
    return replace(
        run, status=ended.status, detail=ended.reason, duration_ms=ended.duration_ms, run_id=None
    )


def _off_if_over(job: Job) -> Job:
    """Return a job that is not due again as one that is off: it is kept, and can be seen."""
    return job if job.next_ms is not None else replace(job, enabled=False)


def _left_alone(job: Job, ended: Ended, now_ms: int) -> tuple[Job, Run | None]:
    """Return a job that failed as it is due next, and the due time that is left out for that."""
    failures = job.state.failures
    wait_ms = BACKOFF_S[min(failures, len(BACKOFF_S)) - 1] * 1000
    # A clock that was set back has not seen the end yet.
    until_ms = min(ended.at_ms, now_ms) + wait_ms
    if not job.enabled:
        return job, None
    if job.next_ms is None:
        if job.is_once and ended.may_pass and failures <= RETRIES:
            return replace(job, next_ms=max(until_ms, now_ms)), None
        return replace(job, enabled=False), None
    if job.is_once or job.next_ms >= until_ms:
        return job, None
    try:
        next_ms = job.schedule.next_after(until_ms - 1)
    except ScheduleRefused:  # which is said when it is due
        return job, None
    if next_ms is None or next_ms <= job.next_ms:
        return job, None
    times = "once" if failures == 1 else f"{failures} times in a row"
    why = f"It had failed {times}, so it is left alone for {_words(wait_ms // 1000)}."
    agent = job.session.agent
    missed = Run(job_id=job.id, agent=agent, due_ms=job.next_ms, status="skipped", detail=why)
    return replace(job, next_ms=next_ms), missed


def _words(seconds: int) -> str:
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min"


def _chosen(own: int | None, configured: int) -> int:
    return configured if own is None else own


def _alert(job: Job) -> str:
    """Return the one sentence that the chat is told."""
    failures = job.state.failures
    times = "" if failures == 1 else f" {failures} times in a row"
    name = " ".join(job.name.split())
    if job.next_ms is None:
        return f'The cron job "{name}" has failed{times} and is off now: {_lower(job)}'
    zone = job.schedule.tz
    at = datetime.fromtimestamp(job.next_ms // 1000, tz=ZoneInfo(zone) if zone else UTC)
    upcoming = f"{at:%Y-%m-%d at %H:%M} ({zone or 'UTC'})"
    return f'The cron job "{name}" has failed{times}, next try {upcoming}: {_lower(job)}'


def _lower(job: Job) -> str:
    reason = job.state.last_detail or ""
    return reason[:1].lower() + reason[1:]


class Settler:
    """Settles the runs that are over."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._cron = Cron(scripts)
        self._outcomes = Outcomes(scripts)

    async def look(self, config: CronConfig) -> None:
        """Settle the runs that are over, of some that are open: the others' turn comes."""
        _, *found = await self._scripts.run(
            "unsettled",
            [keys.CRON_OPEN, keys.CRON_LOOKS],
            [AT_MOST, SHORTEST_MS, LONGEST_MS, keys.INBOUND_PREFIX],
            deadline=boottime() + READ_S,
        )
        parts = iter(found)
        for name, stored in zip(parts, parts, strict=True):
            try:
                run = OpenRun.decode(name.decode(), stored)
            except ValueError as problem:
                log.error("a run of a cron job is forgotten: %s", problem)
                await self._forget(name)
                continue
            await self.settle(run, config)

    async def settle(self, run: OpenRun, config: CronConfig) -> None:
        """Settle a run that is over. Whoever changes its job meanwhile has a later look do it."""
        stored = await self._cron.stored(run.run.job_id)
        now_ms = await self._cron.now_ms()
        ended = Ended.of(await self._outcome(run), now_ms)
        try:
            job = Job.decode(stored) if stored else None
            told = settlement(job, run, ended, now_ms, config) if job else None
        except NewerJob:
            return
        except (RedisUnavailable, RedisRefused):
            raise
        except Exception as error:  # noqa: BLE001 - one job must not stop the others
            log.error("a run of cron job %s is only noted: %s", run.run.job_id, frames_of(error))
            job, told = None, None
        before = stored or b""
        if told is None:
            await self._write(run, before, before, None, _ended(run.run, ended))
            return
        after = told.job.encode() if told.job else b""
        next_ms = told.job.next_ms if told.job else None
        status = await self._write(run, before, after, next_ms, told.run, told.missed, told.alert)
        if status == "done":
            log.info("cron job %s: a run is over, %s", run.run.job_id, ended.status)

    async def _outcome(self, run: OpenRun) -> Outcome | None:
        try:
            return await self._outcomes.read(run.sid, run.entry_id)
        except (KeyError, TypeError, ValueError):  # damaged, so nobody can know
            return None

    async def _forget(self, name: bytes) -> None:
        """Let go of what can be no run."""
        client = self._scripts.client

        async def forget() -> Any:
            pipeline = client.pipeline(transaction=True)
            pipeline.hdel(keys.CRON_OPEN, name)
            pipeline.zrem(keys.CRON_LOOKS, name)
            return await pipeline.execute()

        await self._scripts.call(forget, deadline=boottime() + READ_S)

    async def _write(
        self,
        run: OpenRun,
        before: bytes,
        after: bytes,
        next_ms: int | None,
        line: Run,
        missed: Run | None = None,
        alert: str | None = None,
    ) -> str:
        job_id = run.run.job_id
        stream, reply = keys.NOBODY, b""
        if alert:
            session = Job.decode(after).session
            stream = keys.reply_stream(session.provider, session.account)
            reply = orjson.dumps(
                reply_payload(
                    sid=session.sid,
                    turn="",
                    attempt=0,
                    index=0,
                    channel_id=session.channel_id,
                    thread_id=session.thread,
                    text=alert,
                    is_error=True,
                    call=f"{{{session.sid}}}:{run.name}",
                )
            )
        status: bytes = await self._scripts.run(
            "settle",
            [
                *(keys.CRON_JOBS, keys.CRON_DUE, keys.CRON_OPEN, keys.CRON_LOOKS),
                *(keys.cron_runs(job_id), keys.CRON_RUNS, stream),
            ],
            [
                *(run.name, run.stored, job_id, before, after),
                *("" if next_ms is None else next_ms, *BOUNDS),
                *(missed.encode() if missed else b"", line.line(run.entry_id, run.sid)),
                reply,
            ],
            deadline=boottime() + READ_S,
        )
        return status.decode()
