"""Settles runs of cron jobs: watches each until its entry's outcome is final.

One script writes the line of the log, the job and the alert, once, whichever scheduler sends it; so
a run stays open through every kill and restart until one has settled it.
"""

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from remoteclaw.clock import boottime, named_zone
from remoteclaw.cron.job import Job, NewerJob
from remoteclaw.cron.store import BOUNDS, READ_S, Cron, OpenRun, Run
from remoteclaw.errors import ErrorCategory, ScheduleRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.outcomes import Outcome, Outcomes
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import SessionKey

__all__ = ["Ended", "Settlement", "Settler", "settlement"]

#: How many open runs one look reads: the others follow a second later.
AT_MOST = 100
#: Shortest and longest pause between two looks at an open run, in milliseconds: in between, it is a
#: quarter of the run's age.
SHORTEST_MS, LONGEST_MS = 1000, 15_000
#: The pause after a failure, in seconds; it doubles with each failure in a row, up to the longest.
BACKOFF_S, LONGEST_BACKOFF_S = 30, 3600
#: How often a job that is due once is tried again after a transient failure.
RETRIES = 3

_SUCCEEDED = ("done", "steered")
_FAILED = ("failed", "dead")
#: Failures that may be gone in a minute. An agent that died may have done a part of the work.
_TRANSIENT = (ErrorCategory.RETRYABLE, ErrorCategory.UNREACHABLE, ErrorCategory.TIMEOUT)
#: What the log of runs says of an outcome: never what a CLI has printed, or the agent has said.
_REASONS = {
    "stopped": "It was stopped.",
    "interrupted": "A newer message interrupted it.",
    "dropped": "Too many messages waited in its session.",
    "dead": "It was tried more than once and given up; `remoteclaw deadletters list` shows it.",
    "unknown": "Its outcome is not known any more.",
    ErrorCategory.RETRYABLE: "The agent's model was busy.",
    ErrorCategory.UNREACHABLE: "The agent could not reach its model over the network.",
    ErrorCategory.USAGE_LIMIT: "The agent's account had used up what its plan allows.",
    ErrorCategory.UNKNOWN_MODEL: "The agent was set to a model that its account can't use.",
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
    """The end of a run."""

    status: str
    at_ms: int
    duration_ms: int | None = None
    category: str | None = None
    """The `ErrorCategory` of a failure."""

    @property
    def has_succeeded(self) -> bool:
        """Whether the agent has answered."""
        return self.status in _SUCCEEDED

    @property
    def has_failed(self) -> bool:
        """Whether it failed; a run that was stopped or dropped has neither failed nor succeeded."""
        return self.status in _FAILED

    @property
    def is_transient(self) -> bool:
        """Whether a retry may succeed. A dead letter has been retried often enough."""
        return self.status == "failed" and self.category in _TRANSIENT

    @property
    def reason(self) -> str | None:
        """One sentence about why it did not succeed."""
        if self.has_succeeded:
            return None
        found = _REASONS.get(self.status) or _REASONS.get(self.category or "")
        return found or "The agent failed."

    @classmethod
    def of(cls, outcome: Outcome | None, now_ms: int) -> "Ended":
        """Return the end of a run with this outcome; None for an outcome that is forgotten.

        An outcome that is not final belongs to an entry that an operator has removed from Redis.
        """
        if outcome is None or not outcome.is_final:
            return cls("unknown", now_ms)
        steps = outcome.steps
        at_ms = max((step.at_ms for step in steps if step.name == "finished"), default=now_ms)
        begun = [step.at_ms for step in steps if step.name == "begun"]
        duration_ms = max(0, at_ms - min(begun)) if begun else None
        category = str((outcome.error or {}).get("category")) if outcome.error else None
        return cls(outcome.status, at_ms, duration_ms, category)

    def told(self, run: Run) -> Run:
        """Return a run that has ended so, as the log has it."""
        return replace(
            run, status=self.status, detail=self.reason, duration_ms=self.duration_ms, run_id=None
        )


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


def settlement(job: Job, open_run: OpenRun, ended: Ended, now_ms: int) -> Settlement:
    """Return the consequences of a run that has ended, for the log, the job and the chat.

    A manual run doesn't move the schedule, and its failure is reported to its caller alone; its
    success resets the failures.
    """
    run = ended.told(open_run.run)
    state = replace(
        job.state,
        last_status=ended.status,
        last_detail=ended.reason,
        last_duration_ms=ended.duration_ms,
    )
    if state.running == open_run.name:
        state = replace(state, running=None, missed_ms=None)
    if ended.has_succeeded:
        state = replace(state, failures=0)
    if run.is_manual:
        return Settlement(replace(job, state=state), run)
    if ended.has_failed:
        state = replace(state, failures=state.failures + 1)
    job = replace(job, state=state)
    # A job that was given another time meanwhile has that one before it.
    is_over = job.is_once and job.next_ms is None
    if ended.has_succeeded and job.goes_after_run and (is_over or not job.is_once):
        return Settlement(None, run)
    if not ended.has_failed:
        # A job that is not due again is kept, off.
        return Settlement(job if job.next_ms is not None else replace(job, enabled=False), run)
    after, missed = _backed_off(job, ended, now_ms)
    return Settlement(after, run, missed, _alert(after) if _is_alerted(job, after) else None)


def _backed_off(job: Job, ended: Ended, now_ms: int) -> tuple[Job, Run | None]:
    """Return a job that failed as it is due next, and the due time that is skipped for that."""
    failures = job.state.failures
    wait_s = min(BACKOFF_S * 2 ** min(failures - 1, 16), LONGEST_BACKOFF_S)
    # A clock that was set back has not seen the end yet.
    until_ms = min(ended.at_ms, now_ms) + wait_s * 1000
    if not job.enabled:
        return job, None
    if job.next_ms is None:
        if job.is_once and ended.is_transient and failures <= RETRIES:
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
    why = f"It had failed {times}, so it pauses for {wait_s} s."
    agent = job.session.agent
    missed = Run(job_id=job.id, agent=agent, due_ms=job.next_ms, status="skipped", detail=why)
    return replace(job, next_ms=next_ms), missed


def _is_alerted(job: Job, after: Job) -> bool:
    """Whether the chat is told: once in a row of failures, and when a one-shot is given up."""
    if not job.policy.alert_after or not job.enabled:
        return False
    return not after.enabled or job.state.failures == job.policy.alert_after


def _alert(job: Job) -> str:
    """Return the one sentence that the chat is told."""
    failures = job.state.failures
    times = "" if failures == 1 else f" {failures} times in a row"
    name = " ".join(job.name.split())
    reason = job.state.last_detail or ""
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
        """Settle the runs that are over among some of those that are open, the longest unseen."""
        _, *found = await self._scripts.run(
            "unsettled",
            keys={"open": keys.CRON_OPEN, "looks": keys.CRON_LOOKS},
            args={
                "most": AT_MOST,
                "shortest_ms": SHORTEST_MS,
                "longest_ms": LONGEST_MS,
                "inbound": keys.INBOUND_PREFIX,
            },
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
            await self.settle(run)

    async def settle(self, run: OpenRun) -> None:
        """Settle a run that is over. If its job changes meanwhile, a later look does it."""
        stored = await self._cron.stored(run.run.job_id)
        now_ms = await self._cron.now_ms()
        ended = Ended.of(await self._outcome(run), now_ms)
        try:
            job = Job.decode(stored) if stored else None
            told = settlement(job, run, ended, now_ms) if job else None
        except NewerJob:
            return
        except Exception as error:  # noqa: BLE001 - one job must not stop the others
            log.error("a run of cron job %s is only noted: %s", run.run.job_id, frames_of(error))
            told = None
        before = stored or b""
        if told is None:
            await self._write(run, before, before, Settlement(None, ended.told(run.run)))
            return
        after = told.job.encode() if told.job else b""
        if await self._write(run, before, after, told) == "done":
            log.info("cron job %s: a run is over, %s", run.run.job_id, ended.status)

    async def _outcome(self, run: OpenRun) -> Outcome | None:
        try:
            return await self._outcomes.read(run.sid, run.entry_id)
        except (KeyError, TypeError, ValueError):  # damaged, which is as good as forgotten
            return None

    async def _forget(self, name: bytes) -> None:
        """Remove a run that can't be read."""
        client = self._scripts.client

        async def forget() -> Any:
            pipeline = client.pipeline(transaction=True)
            pipeline.hdel(keys.CRON_OPEN, name)
            pipeline.zrem(keys.CRON_LOOKS, name)
            return await pipeline.execute()

        await self._scripts.call(forget, deadline=boottime() + READ_S)

    async def _write(self, run: OpenRun, before: bytes, after: bytes, told: Settlement) -> str:
        job_id = run.run.job_id
        next_ms = told.job.next_ms if told.job else None
        stream, reply = keys.NO_KEY, b""
        if told.job and told.alert:
            session = told.job.session
            stream = keys.reply_stream(session.provider, session.account)
            reply = _reply(session, told.alert, call=f"{{{session.sid}}}:{run.name}")
        status: bytes = await self._scripts.run(
            "settle",
            keys={
                "jobs": keys.CRON_JOBS,
                "due": keys.CRON_DUE,
                "open": keys.CRON_OPEN,
                "looks": keys.CRON_LOOKS,
                "runs": keys.cron_runs(job_id),
                "all_runs": keys.CRON_RUNS,
                "replies": stream,
            },
            args={
                "run_name": run.name,
                "run": run.stored,
                "job_id": job_id,
                "before": before,
                "after": after,
                "next_ms": next_ms,
                **BOUNDS,
                "missed": told.missed.encode() if told.missed else None,
                "line": told.run.line(run.entry_id, run.sid),
                "reply": reply,
            },
            deadline=boottime() + READ_S,
        )
        return status.decode()


def _reply(session: SessionKey, text: str, *, call: str) -> bytes:
    payload = reply_payload(
        sid=session.sid,
        turn="",
        attempt=0,
        index=0,
        channel_id=session.channel_id,
        thread_id=session.thread,
        text=text,
        is_error=True,
        call=call,
    )
    return orjson.dumps(payload)
