"""The settlement of one run: its consequences for the log, the job and the chat.

No I/O: `settling.py` reads what this needs, and writes what it says.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from remoteclaw.config.model import CronConfig
from remoteclaw.cron.job import Job
from remoteclaw.cron.schedule import in_words
from remoteclaw.cron.store import OpenRun, Run
from remoteclaw.errors import ErrorCategory, ScheduleRefused
from remoteclaw.fleet.outcomes import Outcome

__all__ = ["Ended", "Settlement", "ended_run", "settlement"]

#: How long a job that failed is left alone, in seconds: once, twice, … in a row.
BACKOFF_S = (30, 60, 300, 900, 3600)
#: How often a job that is due once is tried again after a failure that may pass.
RETRIES = 3

_WENT_WELL = ("done", "steered")
_FAILED = ("failed", "dead")
#: Failures that may be gone in a minute. An agent that died may have done a part of the work.
_TRANSIENT = (ErrorCategory.RETRYABLE, ErrorCategory.UNREACHABLE, ErrorCategory.TIMEOUT)
#: What the log of runs says of an outcome: never what a CLI has printed, or the agent has said.
_REASONS = {
    "stopped": "Somebody stopped it.",
    "interrupted": "A newer message interrupted it.",
    "dropped": "Too many messages waited in its session.",
    "dead": "It was tried more than once and given up; `remoteclaw deadletters list` shows it.",
    "unknown": "What became of it is not known any more.",
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
    run = ended_run(open_run.run, ended)
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


def ended_run(run: Run, ended: Ended) -> Run:
    """Return a run as the log has it when it has ended."""
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
    why = f"It had failed {times}, so it is left alone for {in_words(wait_ms // 1000)}."
    agent = job.session.agent
    missed = Run(job_id=job.id, agent=agent, due_ms=job.next_ms, status="skipped", detail=why)
    return replace(job, next_ms=next_ms), missed


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
