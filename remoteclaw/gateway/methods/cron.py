"""What can be asked of cron jobs.

An agent sees and changes the jobs of its own agent, whichever of its sessions they write to, and
adds jobs that write to its own session; operators see and change all. For an agent, what it may not
see is not there.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from remoteclaw.clock import host_zone, named_zone
from remoteclaw.cron.calls import CronCalls
from remoteclaw.cron.job import Job, Maker, Policy
from remoteclaw.cron.schedule import Schedule, has_offset, offset_ms, stagger_s
from remoteclaw.cron.store import Cron, Run
from remoteclaw.errors import CallRefused, MessageRefused, ScheduleRefused
from remoteclaw.fleet.effects import call_name
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.principals import Operator
from remoteclaw.gateway.sessions import find
from remoteclaw.messages import SessionKey
from remoteclaw.tools import cron as contract
from remoteclaw.tools.base import NoParams

__all__ = ["HANDLERS"]

#: How often a change is tried while others change the same job: each time somebody else succeeded.
MOST_TRIES = 8


async def _status(call: Call, params: NoParams) -> contract.CronStatus:
    jobs = await _visible(call)
    upcoming = [job for job in jobs if job.next_ms is not None]
    first = min(upcoming, key=lambda job: job.next_ms or 0, default=None)
    return contract.CronStatus(
        jobs=len(jobs),
        enabled=sum(job.enabled for job in jobs),
        next_run_ms=first and first.next_ms,
        next_run=first and _clock(first.next_ms, _zone_of(call, first)),
        scheduler="running" if await _cron(call).has_scheduler() else "absent",
    )


async def _list(call: Call, params: contract.ListParams) -> contract.JobsResult:
    wanted = (params.filter or "").casefold()
    jobs = await _visible(call)
    return contract.JobsResult(
        jobs=tuple(_told(call, job) for job in jobs if wanted in job.name.casefold())
    )


async def _add(call: Call, params: contract.AddParams) -> contract.JobResult:
    spec = params.job
    session = await _target(call, spec.session_key)
    now_ms = await _cron(call).now_ms()
    job_id = _job_id(call)
    schedule = _schedule(spec.schedule, job_id, now_ms, _zone(call, session.agent))
    job = Job(
        id=job_id,
        name=spec.name,
        schedule=schedule,
        message=spec.message,
        session=session,
        enabled=spec.enabled,
        created_ms=now_ms,
        maker=_maker(call, session),
        next_ms=None,
        policy=Policy(
            misfire=spec.misfire,
            delete_after_run=spec.delete_after_run,
            alert_after=spec.alert_after,
        ),
    )
    job = _checked(replace(job, next_ms=_first(schedule, now_ms) if spec.enabled else None), now_ms)
    note = {"type": "cron_added", "jobId": job.id, "ts": now_ms}
    await CronCalls(call.fleet.effects).job(
        call.caller, call.id, job.id, before=None, after=job.encode(), due_ms=job.next_ms, note=note
    )
    call.note(note)
    # Under this call's name it was made before, if there was one already.
    return contract.JobResult(job=_told(call, await _cron(call).job(job.id) or job))


async def _update(call: Call, params: contract.UpdateParams) -> contract.JobResult:
    updates = params.updates

    async def change(job: Job) -> Job:
        now_ms = await _cron(call).now_ms()
        changed = replace(
            job,
            name=job.name if updates.name is None else updates.name,
            message=job.message if updates.message is None else updates.message,
            enabled=job.enabled if updates.enabled is None else updates.enabled,
            schedule=_schedule(updates.schedule, job.id, now_ms, _zone_of(call, job))
            if updates.schedule
            else job.schedule,
            policy=_policy(job.policy, updates),
            maker=_with_people(job.maker, call.people(job.session)),
        )
        is_resumed = changed.enabled and not job.enabled
        if is_resumed or updates.schedule or updates.message:
            # What failed was something else.
            changed = replace(changed, state=replace(changed.state, failures=0))
        if not changed.enabled:
            changed = replace(changed, next_ms=None)
        elif updates.schedule:
            changed = replace(changed, next_ms=_first(changed.schedule, now_ms))
        elif is_resumed:
            changed = replace(changed, next_ms=_resumed(job, now_ms))
        return _checked(changed, now_ms)

    found = await _changed(call, params.job_id, change)
    if found is None:
        raise CallRefused("NOT_FOUND", f"There is no cron job {params.job_id}.")
    return contract.JobResult(job=_told(call, found))


async def _remove(call: Call, params: contract.JobParams) -> contract.RemovedResult:
    job_id = params.job_id
    for _ in range(MOST_TRIES):
        job = await _cron(call).job(job_id)
        if job and not _sees(call, job.session.agent):
            return contract.RemovedResult(removed=False)
        # Also where there is none: this call may have removed it before.
        status = await CronCalls(call.fleet.effects).job(
            call.caller, call.id, job_id,
            before=job.stored if job else None, after=None, due_ms=None,
            note=_changes(call, job_id) if job else None,
        )  # fmt: skip
        if status != "changed":
            return contract.RemovedResult(removed=status == "done")
    raise _busy(job_id)


async def _run(call: Call, params: contract.RunParams) -> contract.RunResult:
    job_id = params.job_id
    digest = hashlib.sha256(call_name(call.caller, call.id).encode()).hexdigest()[:16]
    name = f"{job_id}:now-{digest}"
    # Under this call's name it may have been done before; then it is not refused now.
    is_new = await call.fleet.effects.made(call.caller, call.id) is None
    for _ in range(MOST_TRIES):
        job = await _cron(call).job(job_id)
        if job is None or not _sees(call, job.session.agent):
            raise CallRefused("NOT_FOUND", f"There is no cron job {job_id}.")
        if is_new and not params.force:
            unfinished = await _cron(call).unfinished(job)
            if unfinished and unfinished.name != name:
                raise CallRefused(
                    "UNAVAILABLE",
                    f"A run of the cron job {job_id} has not finished: wait for it, "
                    "stop its session, or say force.",
                )
        now_ms = await _cron(call).now_ms()
        note = _changes(call, job_id)
        entry_id = await CronCalls(call.fleet.effects).run(
            call.caller, call.id, job, name, now_ms=now_ms, note=note
        )
        if entry_id is not None:
            call.note(note)
            return contract.RunResult(run_id=f"{job.session.sid}-{entry_id}")
    raise _busy(job_id)


async def _runs(call: Call, params: contract.RunsParams) -> contract.RunsResult:
    runs = [run for run in await _cron(call).runs(params.job_id) if _sees(call, run.agent)]
    if params.job_id and not runs:
        job = await _cron(call).job(params.job_id)
        if job is None or not _sees(call, job.session.agent):
            raise CallRefused("NOT_FOUND", f"There is no cron job {params.job_id}.")
    zones = {job.id: _zone_of(call, job) for job in await _cron(call).jobs()}
    return contract.RunsResult(
        runs=tuple(
            _told_run(run, zones.get(run.job_id) or _zone(call, run.agent))
            for run in runs[: params.limit]
        )
    )


# ---------------------------------------------------------------------------------------------
# Who may what


def _cron(call: Call) -> Cron:
    return Cron(call.fleet.scripts)


def _sees(call: Call, agent: str) -> bool:
    return call.caller is None or call.caller.session.agent == agent


async def _visible(call: Call) -> list[Job]:
    return [job for job in await _cron(call).jobs() if _sees(call, job.session.agent)]


async def _target(call: Call, named: str | None) -> SessionKey:
    """Return the session that a new job writes to."""
    if named is None:
        if call.session is None:
            raise CallRefused("INVALID_REQUEST", "Say which session: job.sessionKey is missing.")
        return call.session
    if call.caller is not None:
        own = call.caller.session
        if named not in (str(own), own.conversation, own.sid):
            raise CallRefused(
                "FORBIDDEN",
                "An agent's cron job writes to the session that adds it: leave job.sessionKey out.",
            )
        return own
    try:
        session = SessionKey.parse(named)  # a job may begin a conversation
    except ValueError:
        session = (await find(call, named)).key
    if session.agent not in call.config.agents:
        raise CallRefused("INVALID_REQUEST", f"There is no agent {session.agent!r}.")
    return session


def _maker(call: Call, session: SessionKey) -> Maker:
    people = call.people(session)
    if call.caller is None:
        assert isinstance(call.principal, Operator), "an agent has a session"
        return Maker(operator=call.principal.name, people=people)
    own = call.caller.session
    return Maker(agent=own.agent, session=str(own), people=people)


def _with_people(maker: Maker, people: Sequence[str]) -> Maker:
    """Return a job's maker with those who change it; with nobody's change, it is nobody's."""
    both = dict.fromkeys((*maker.people, *people)) if maker.people and people else ()
    return replace(maker, people=tuple(both))


# ---------------------------------------------------------------------------------------------
# Jobs


def _job_id(call: Call) -> str:
    """Return a new job's id: for the same call, the same one."""
    return hashlib.sha256(call_name(call.caller, call.id).encode()).hexdigest()[:16]


def _zone(call: Call, agent: str) -> str:
    """Return the time zone of an agent: as it is configured, else that of this host."""
    settings = call.config.agents.get(agent)
    return (settings and settings.timezone) or host_zone()


def _zone_of(call: Call, job: Job) -> str:
    return job.schedule.tz or _zone(call, job.session.agent)


def _schedule(wanted: contract.Schedule, job_id: str, now_ms: int, zone: str) -> Schedule:
    """Return a schedule as it is stored, whether or not it will ever be due.

    Without a zone, what is written as on a wall clock is meant in `zone`.
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
    """Return when a job is due that goes on: a one-shot that failed, now."""
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


def _changes(call: Call, job_id: str) -> dict[str, Any]:
    return {"type": "job_changed", "tool": call.method.tool, "jobId": job_id}


async def _changed(call: Call, job_id: str, change: Callable[[Job], Awaitable[Job]]) -> Job | None:
    """Change a job and return it; None if there is none that the caller sees.

    Whatever happened to it meanwhile, a firing or another change, is kept.
    """
    for _ in range(MOST_TRIES):
        job = await _cron(call).job(job_id)
        if job is None or not _sees(call, job.session.agent):
            return None
        after = await change(job)
        status = await CronCalls(call.fleet.effects).job(
            call.caller, call.id, job_id,
            before=job.stored, after=after.encode(), due_ms=after.next_ms,
            note=_changes(call, job_id),
        )  # fmt: skip
        if status != "changed":
            # A call that was made before has changed nothing now.
            return await _cron(call).job(job_id) or after
    raise _busy(job_id)


def _busy(job_id: str) -> CallRefused:
    return CallRefused("UNAVAILABLE", f"The cron job {job_id} changes all the time: try again.")


# ---------------------------------------------------------------------------------------------
# What is told


def _clock(at_ms: int | None, zone: str) -> str | None:
    """Return a time in a zone, as ISO 8601 with the offset."""
    if at_ms is None:
        return None
    # The host that made the job may know more zones than this one.
    return datetime.fromtimestamp(at_ms // 1000, tz=named_zone(zone) or UTC).isoformat()


def _told(call: Call, job: Job) -> contract.CronJob:
    zone = _zone_of(call, job)
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
        next_run=_clock(job.next_ms, zone),
        last_run_ms=job.last_ms,
        last_run=_clock(job.last_ms, zone),
        last_status=state.last_status,
        last_error=state.last_detail,
        last_duration_ms=state.last_duration_ms,
        failures=state.failures,
        is_running=state.running is not None,
        misfire=policy.misfire,
        delete_after_run=job.goes_after_run,
        alert_after=policy.alert_after,
    )


def _told_run(run: Run, zone: str) -> contract.CronRun:
    return contract.CronRun(
        job_id=run.job_id,
        due_ms=run.due_ms,
        due=_clock(run.due_ms, zone) or "",
        status=run.status,
        run_id=run.run_id,
        detail=run.detail,
        is_manual=run.is_manual,
        duration_ms=run.duration_ms,
    )


HANDLERS: dict[str, Handler] = {
    "cron.status": _status,
    "cron.list": _list,
    "cron.add": _add,
    "cron.update": _update,
    "cron.remove": _remove,
    "cron.run": _run,
    "cron.runs": _runs,
}
