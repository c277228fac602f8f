"""Cron jobs of calls: as parameters ask for them, and as results show them."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from remoteclaw.clock import host_zone, named_zone
from remoteclaw.cron.job import Job, Maker, Policy
from remoteclaw.cron.schedule import Schedule, has_offset, offset_ms, stagger_s
from remoteclaw.cron.store import Run
from remoteclaw.errors import CallRefused, MessageRefused, ScheduleRefused
from remoteclaw.fleet.caller import call_name
from remoteclaw.gateway.call import Call
from remoteclaw.messages import SessionKey
from remoteclaw.tools import cron as contract

__all__ = [
    "changed_job",
    "in_zone",
    "new_job",
    "shown_job",
    "shown_run",
    "zone_of",
    "zone_of_agent",
]


def new_job(call: Call, spec: contract.JobSpec, session: SessionKey, now_ms: int) -> Job:
    """Return the job that a call adds; its id is the same for the same call.

    Raises `CallRefused` for one that can't be fired.
    """
    job_id = hashlib.sha256(call_name(call.caller, call.id).encode()).hexdigest()[:16]
    schedule = _schedule(spec.schedule, job_id, now_ms, zone_of_agent(call, session.agent))
    job = Job(
        id=job_id,
        name=spec.name,
        schedule=schedule,
        message=spec.message,
        session=session,
        enabled=spec.enabled,
        created_ms=now_ms,
        maker=_maker(call, session),
        next_ms=_first(schedule, now_ms) if spec.enabled else None,
        policy=Policy(
            misfire=spec.misfire,
            delete_after_run=spec.delete_after_run,
            alert_after=spec.alert_after,
        ),
    )
    return _checked(job, now_ms)


def changed_job(call: Call, job: Job, updates: contract.JobPatch, now_ms: int) -> Job:
    """Return a job with a call's changes; raises `CallRefused` for one that can't be fired."""
    schedule = updates.schedule and _schedule(updates.schedule, job.id, now_ms, zone_of(call, job))
    changed = replace(
        job,
        name=job.name if updates.name is None else updates.name,
        message=job.message if updates.message is None else updates.message,
        enabled=job.enabled if updates.enabled is None else updates.enabled,
        schedule=schedule or job.schedule,
        policy=_policy(job.policy, updates),
        maker=_with_people(job.maker, call.people(job.session)),
    )
    is_resumed = changed.enabled and not job.enabled
    if is_resumed or schedule or updates.message:
        # What failed was something else.
        changed = replace(changed, state=replace(changed.state, failures=0))
    if not changed.enabled:
        changed = replace(changed, next_ms=None)
    elif schedule:
        changed = replace(changed, next_ms=_first(schedule, now_ms))
    elif is_resumed:
        changed = replace(changed, next_ms=_resumed(job, now_ms))
    return _checked(changed, now_ms)


def _maker(call: Call, session: SessionKey) -> Maker:
    """Return who makes a job, and on whose behalf it runs."""
    people = call.people(session)
    if call.caller is None:
        return Maker(operator=call.operator.name, people=people)
    own = call.caller.session
    return Maker(agent=own.agent, session=str(own), people=people)


def _with_people(maker: Maker, people: Sequence[str]) -> Maker:
    """Return a job's maker with the people behind a change; without any, the job has none."""
    both = dict.fromkeys((*maker.people, *people)) if maker.people and people else ()
    return replace(maker, people=tuple(both))


def zone_of_agent(call: Call, agent: str) -> str:
    """Return the time zone of an agent: as it is configured, else that of this host."""
    settings = call.config.agents.get(agent)
    return (settings and settings.timezone) or host_zone()


def zone_of(call: Call, job: Job) -> str:
    """Return the time zone that a job is shown in."""
    return job.schedule.tz or zone_of_agent(call, job.session.agent)


def _schedule(wanted: contract.Schedule, job_id: str, now_ms: int, zone: str) -> Schedule:
    """Return a schedule as it is stored, whether or not it will ever be due.

    A time on a wall clock without a zone of its own is in `zone`.
    """
    by_wall_clock = wanted.cron is not None or (wanted.at is not None and not has_offset(wanted.at))
    most_s = stagger_s(wanted.cron, wanted.stagger)
    return Schedule(
        at=wanted.at,
        every_s=wanted.every,
        cron=wanted.cron,
        tz=wanted.tz or (zone if by_wall_clock else None),
        anchor_ms=now_ms,
        stagger_s=most_s,
        offset_ms=offset_ms(job_id, most_s),
    )


def _policy(policy: Policy, updates: contract.JobPatch) -> Policy:
    """Return a policy with what is to be changed of it."""
    wanted = {
        "misfire": updates.misfire,
        "delete_after_run": updates.delete_after_run,
        "alert_after": updates.alert_after,
    }
    changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    return replace(policy, **changes)


def _first(schedule: Schedule, now_ms: int) -> int:
    try:
        return schedule.first(now_ms)
    except ScheduleRefused as error:
        raise CallRefused("INVALID_REQUEST", str(error)) from None


def _resumed(job: Job, now_ms: int) -> int:
    """Return when a resumed job is due: now for a one-shot that failed."""
    due = job.schedule.next_after(now_ms)
    if due is None and job.schedule.at is not None and job.state.failures:
        return now_ms
    return _first(job.schedule, now_ms) if due is None else due


def _checked(job: Job, now_ms: int) -> Job:
    """Return a job that can be fired; raises `CallRefused` for one that can't."""
    try:
        job.schedule.next_after(now_ms)
        message = job.entry(now_ms)
    except (ScheduleRefused, MessageRefused) as error:
        raise CallRefused("INVALID_REQUEST", str(error)) from None
    if SessionKey.of(message, agent=job.session.agent) != job.session:
        raise CallRefused("INVALID_REQUEST", "There can be no session with this key.")
    return job


def in_zone(at_ms: int | None, zone: str) -> str | None:
    """Return a time in a zone, as ISO 8601 with the offset."""
    if at_ms is None:
        return None
    # The host that made the job may know more zones than this one.
    return datetime.fromtimestamp(at_ms // 1000, tz=named_zone(zone) or UTC).isoformat()


def shown_job(call: Call, job: Job) -> contract.CronJob:
    """Return a job as results show it."""
    zone = zone_of(call, job)
    schedule = job.schedule
    kinds = {
        "at": schedule.at,
        "every": schedule.every_s,
        "cron": schedule.cron,
        "tz": schedule.tz,
        "stagger": schedule.stagger_s or None,
    }
    policy, state = job.policy, job.state
    return contract.CronJob(
        id=job.id,
        name=job.name,
        schedule={kind: value for kind, value in kinds.items() if value is not None},
        message=job.message,
        session_key=str(job.session),
        enabled=job.enabled,
        created_ms=job.created_ms,
        next_run_ms=job.next_ms,
        next_run=in_zone(job.next_ms, zone),
        last_run_ms=job.last_ms,
        last_run=in_zone(job.last_ms, zone),
        last_status=state.last_status,
        last_error=state.last_detail,
        last_duration_ms=state.last_duration_ms,
        failures=state.failures,
        is_running=state.running is not None,
        misfire=policy.misfire,
        delete_after_run=job.goes_after_run,
        alert_after=policy.alert_after,
    )


def shown_run(run: Run, zone: str) -> contract.CronRun:
    """Return a run as results show it."""
    return contract.CronRun(
        job_id=run.job_id,
        due_ms=run.due_ms,
        due=in_zone(run.due_ms, zone) or "",
        status=run.status,
        run_id=run.run_id,
        detail=run.detail,
        is_manual=run.is_manual,
        duration_ms=run.duration_ms,
    )
