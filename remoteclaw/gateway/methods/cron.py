"""Handlers of cron jobs.

An agent sees and changes the jobs of all sessions of the same agent, and adds jobs that write to
its own session. Operators see and change all jobs. A job that an agent may not see is refused as if
it did not exist.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from remoteclaw.clock import named_zone
from remoteclaw.cron.calls import CronCalls, job_name
from remoteclaw.cron.changes import (
    SHOWN_TIMES,
    Author,
    changed_job,
    find_job,
    new_job,
    schedule_of,
    upcoming_of,
    zone_of_agent,
)
from remoteclaw.cron.job import Job
from remoteclaw.cron.schedule import Schedule
from remoteclaw.cron.store import Cron, JobRun
from remoteclaw.cron.words import in_words
from remoteclaw.errors import CallRefused
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.session_access import find_session
from remoteclaw.messages import SessionKey
from remoteclaw.tools import cron as contract
from remoteclaw.tools.base import NoParams

#: A job is shown with this many of its last runs.
SHOWN_RUNS = 5


async def _status(call: Call, params: NoParams) -> contract.CronStatus:
    jobs = await _visible_jobs(call)
    upcoming = [job for job in jobs if job.next_ms is not None]
    first = min(upcoming, key=lambda job: job.next_ms or 0, default=None)
    return contract.CronStatus(
        jobs=len(jobs),
        enabled=sum(job.enabled for job in jobs),
        next_run_ms=first and first.next_ms,
        next_run=first and _iso_time(first.next_ms, _zone_of(call, first)),
        scheduler="running" if await _cron(call).has_scheduler() else "absent",
    )


async def _list(call: Call, params: contract.ListJobsParams) -> contract.JobsResult:
    wanted = (params.filter or "").casefold()
    jobs = await _visible_jobs(call)
    return contract.JobsResult(
        jobs=tuple(_job_result(call, job) for job in jobs if wanted in job.name.casefold())
    )


async def _add(call: Call, params: contract.AddParams) -> contract.JobResult:
    session = await _target(call, params.job.session_key)
    now_ms = await call.fleet.scripts.now_ms()
    job = new_job(
        params.job,
        id=job_name(call.caller, call.id),
        session=session,
        author=_author(call, session),
        zone=_zone_of_agent(call, session.agent),
        now_ms=now_ms,
    )
    note = {"type": "cron_added", "jobId": job.id, "ts": now_ms}
    await _write(call, job.id, None, job, note)
    call.note(note)
    # A repeated call returns the job that the first call has added.
    return _changed_result(call, await _cron(call).job(job.id) or job, now_ms)


async def _update(call: Call, params: contract.UpdateParams) -> contract.JobResult:
    job = await _visible_job(call, params.job_id)
    now_ms = await call.fleet.scripts.now_ms()
    after = changed_job(
        job,
        params.updates,
        author=_author(call, job.session),
        zone=_zone_of(call, job),
        now_ms=now_ms,
    )
    await _write(call, job.id, job, after, _change_note(call, job.id))
    # A repeated call has changed nothing, so the job may differ from `after`.
    return _changed_result(call, await _cron(call).job(job.id) or after, now_ms)


async def _remove(call: Call, params: contract.JobParams) -> contract.RemovedResult:
    job = await _cron(call).job(params.job_id)
    if job and not _may_see(call, job.session.agent):
        return contract.RemovedResult(removed=False)
    # Call _write even without a job: this call may have removed it before.
    note = _change_note(call, job.id) if job else None
    return contract.RemovedResult(removed=await _write(call, params.job_id, job, None, note))


async def _write(
    call: Call, job_id: str, before: Job | None, after: Job | None, note: dict[str, Any] | None
) -> bool:
    return await _calls(call).job(
        call.caller, call.id, job_id, before=before, after=after, effect=note
    )


async def _run(call: Call, params: contract.RunParams) -> contract.RunResult:
    job = await _visible_job(call, params.job_id)
    note = _change_note(call, job.id)
    entry_id = await _calls(call).run(
        call.caller,
        call.id,
        job,
        job_name(call.caller, call.id),
        is_forced=params.force,
        now_ms=await call.fleet.scripts.now_ms(),
        effect=note,
    )
    call.note(note)
    return contract.RunResult(run_id=f"{job.session.sid}-{entry_id}")


async def _runs(call: Call, params: contract.RunsParams) -> contract.RunsResult:
    runs = [run for run in await _cron(call).runs(params.job_id) if _may_see(call, run.agent)]
    if params.job_id and not runs:
        await _visible_job(call, params.job_id)
    return contract.RunsResult(runs=_run_results(call, runs[: params.limit]))


def _run_results(call: Call, runs: Sequence[JobRun]) -> tuple[contract.CronRun, ...]:
    return tuple(
        contract.CronRun.of(run, due=_iso_time(run.due_ms, _zone_of_agent(call, run.agent)) or "")
        for run in runs
    )


async def _show(call: Call, params: contract.ShowJobParams) -> contract.JobWithRuns:
    jobs = await _visible_jobs(call)
    job = find_job(jobs, params.name, listed_by="remoteclaw cron list")
    runs = await _cron(call).runs(job.id)
    return contract.JobWithRuns(
        job=_job_result(call, job), runs=_run_results(call, runs[:SHOWN_RUNS])
    )


async def _preview(call: Call, params: contract.PreviewParams) -> contract.SchedulePreview:
    session = await _target(call, params.session_key) if params.session_key else call.session
    default_zone = _zone_of_agent(call, call.config.agent(session.agent if session else None)[0])
    now_ms = await call.fleet.scripts.now_ms()
    schedule = schedule_of(params.schedule, now_ms, default_zone)
    zone, upcoming = schedule.tz or default_zone, schedule.upcoming(now_ms, SHOWN_TIMES)
    return contract.SchedulePreview(
        words=in_words(schedule),
        zone=zone,
        schedule=_schedule_result(schedule),
        upcoming=_iso_times(upcoming, zone),
    )


# -- access to jobs -------------------------------------------------------------------------------


def _cron(call: Call) -> Cron:
    return Cron(call.fleet.scripts)


def _calls(call: Call) -> CronCalls:
    return CronCalls(call.fleet.calls, _cron(call))


def _may_see(call: Call, agent: str) -> bool:
    return call.caller is None or call.caller.session.agent == agent


async def _visible_job(call: Call, job_id: str) -> Job:
    """Return a job that the caller may see. Raises `CallRefused` for others, as if unknown."""
    job = await _cron(call).job(job_id)
    if job is None or not _may_see(call, job.session.agent):
        raise CallRefused("NOT_FOUND", f"There is no cron job {job_id}.")
    return job


async def _visible_jobs(call: Call) -> list[Job]:
    return [job for job in await _cron(call).jobs() if _may_see(call, job.session.agent)]


async def _target(call: Call, named: str | None) -> SessionKey:
    """Return the session that a new job writes to."""
    if named is None:
        return call.session or await call.conversations.with_agent()
    if call.caller is not None:
        own = call.caller.session
        if named not in (str(own), own.conversation, own.sid):
            raise CallRefused(
                "FORBIDDEN",
                "An agent's cron job writes to the session that adds it: leave job.sessionKey out.",
            )
        return own
    try:
        session = SessionKey.parse(named)  # the session need not exist yet
    except ValueError:
        session = (await find_session(call, named)).key
    if session.agent not in call.config.agents:
        raise CallRefused("INVALID_REQUEST", f"There is no agent {session.agent!r}.")
    return session


def _change_note(call: Call, job_id: str) -> dict[str, Any]:
    return {"type": "job_changed", "tool": call.method.tool, "jobId": job_id}


# -- conversion of jobs ---------------------------------------------------------------------------


def _author(call: Call, session: SessionKey) -> Author:
    has_read_web = call.caller is not None and call.turn.has_read_web
    return Author(people=call.people(session), has_read_web=has_read_web)


def _zone_of_agent(call: Call, agent: str) -> str:
    return zone_of_agent(call.config, agent)


def _zone_of(call: Call, job: Job) -> str:
    """Return the time zone that a job is shown in."""
    return job.schedule.tz or _zone_of_agent(call, job.session.agent)


def _iso_time(at_ms: int | None, zone: str) -> str | None:
    """Return a time in a time zone, in ISO 8601 with its offset; None for None."""
    if at_ms is None:
        return None
    # The host on which the job was added may know more time zones than this one.
    return datetime.fromtimestamp(at_ms // 1000, tz=named_zone(zone) or UTC).isoformat()


def _iso_times(times: Sequence[int], zone: str) -> tuple[str, ...]:
    return tuple(_iso_time(at_ms, zone) or "" for at_ms in times)


def _schedule_result(schedule: Schedule) -> dict[str, Any]:
    kinds = {"at": schedule.at, "every": schedule.every_s, "cron": schedule.cron, "tz": schedule.tz}
    return {kind: value for kind, value in kinds.items() if value is not None}


def _changed_result(call: Call, job: Job, now_ms: int) -> contract.JobResult:
    upcoming = _iso_times(upcoming_of(job, now_ms), _zone_of(call, job))
    return contract.JobResult(job=_job_result(call, job), upcoming=upcoming)


def _job_result(call: Call, job: Job) -> contract.CronJob:
    zone, schedule = _zone_of(call, job), job.schedule
    return contract.CronJob.of(
        job,
        schedule=_schedule_result(schedule),
        words=in_words(schedule),
        zone=zone,
        session_key=str(job.session),
        next_run_ms=job.next_ms,
        next_run=_iso_time(job.next_ms, zone),
        last_run_ms=job.last_ms,
        last_run=_iso_time(job.last_ms, zone),
        last_error=job.last_detail,
        is_running=job.running is not None,
    )


HANDLERS: dict[str, Handler] = {
    "cron.status": _status,
    "cron.list": _list,
    "cron.add": _add,
    "cron.update": _update,
    "cron.remove": _remove,
    "cron.run": _run,
    "cron.runs": _runs,
    "cron.show": _show,
    "cron.preview": _preview,
}
