"""Handlers of cron jobs.

An agent sees and changes the jobs of its own agent, whichever of its sessions they write to, and
adds jobs that write to its own session; operators see and change all. For an agent, what it may not
see does not exist.
"""

import hashlib
from typing import Any

from remoteclaw.cron.calls import CronCalls
from remoteclaw.cron.job import Job
from remoteclaw.cron.store import Cron
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.caller import call_name
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.cron_jobs import (
    changed_job,
    in_zone,
    new_job,
    shown_job,
    shown_run,
    zone_of,
    zone_of_agent,
)
from remoteclaw.gateway.sessions import find
from remoteclaw.messages import SessionKey
from remoteclaw.tools import cron as contract
from remoteclaw.tools.base import NoParams

__all__ = ["HANDLERS"]

#: How often a change is tried while others change the same job.
MOST_TRIES = 8


async def _status(call: Call, params: NoParams) -> contract.CronStatus:
    jobs = await _visible(call)
    upcoming = [job for job in jobs if job.next_ms is not None]
    first = min(upcoming, key=lambda job: job.next_ms or 0, default=None)
    return contract.CronStatus(
        jobs=len(jobs),
        enabled=sum(job.enabled for job in jobs),
        next_run_ms=first and first.next_ms,
        next_run=first and in_zone(first.next_ms, zone_of(call, first)),
        scheduler="running" if await _cron(call).has_scheduler() else "absent",
    )


async def _list(call: Call, params: contract.ListParams) -> contract.JobsResult:
    wanted = (params.filter or "").casefold()
    jobs = await _visible(call)
    return contract.JobsResult(
        jobs=tuple(shown_job(call, job) for job in jobs if wanted in job.name.casefold())
    )


async def _add(call: Call, params: contract.AddParams) -> contract.JobResult:
    session = await _target(call, params.job.session_key)
    now_ms = await _cron(call).now_ms()
    job = new_job(call, params.job, session, now_ms)
    note = {"type": "cron_added", "jobId": job.id, "ts": now_ms}
    await CronCalls(call.fleet.calls).job(
        call.caller, call.id, job.id, before=None, after=job.encode(), due_ms=job.next_ms, note=note
    )
    call.note(note)
    # Under this call's name it was made before, if there was one already.
    return contract.JobResult(job=shown_job(call, await _cron(call).job(job.id) or job))


async def _update(call: Call, params: contract.UpdateParams) -> contract.JobResult:
    job_id = params.job_id
    for _ in range(MOST_TRIES):
        job = await _seen(call, job_id)
        after = changed_job(call, job, params.updates, await _cron(call).now_ms())
        status = await CronCalls(call.fleet.calls).job(
            call.caller, call.id, job_id,
            before=job.stored, after=after.encode(), due_ms=after.next_ms,
            note=_changes(call, job_id),
        )  # fmt: skip
        if status != "changed":
            # A call that was made before has changed nothing now.
            return contract.JobResult(job=shown_job(call, await _cron(call).job(job_id) or after))
    raise _busy(job_id)


async def _remove(call: Call, params: contract.JobParams) -> contract.RemovedResult:
    job_id = params.job_id
    for _ in range(MOST_TRIES):
        job = await _cron(call).job(job_id)
        if job and not _sees(call, job.session.agent):
            return contract.RemovedResult(removed=False)
        # Also where there is none: this call may have removed it before.
        status = await CronCalls(call.fleet.calls).job(
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
    is_new = await call.fleet.calls.made(call.caller, call.id) is None
    for _ in range(MOST_TRIES):
        job = await _seen(call, job_id)
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
        entry_id = await CronCalls(call.fleet.calls).run(
            call.caller, call.id, job, name, now_ms=now_ms, note=note
        )
        if entry_id is not None:
            call.note(note)
            return contract.RunResult(run_id=f"{job.session.sid}-{entry_id}")
    raise _busy(job_id)


async def _runs(call: Call, params: contract.RunsParams) -> contract.RunsResult:
    runs = [run for run in await _cron(call).runs(params.job_id) if _sees(call, run.agent)]
    if params.job_id and not runs:
        await _seen(call, params.job_id)
    zones = {job.id: zone_of(call, job) for job in await _cron(call).jobs()}
    return contract.RunsResult(
        runs=tuple(
            shown_run(run, zones.get(run.job_id) or zone_of_agent(call, run.agent))
            for run in runs[: params.limit]
        )
    )


def _cron(call: Call) -> Cron:
    return Cron(call.fleet.scripts)


def _sees(call: Call, agent: str) -> bool:
    return call.caller is None or call.caller.session.agent == agent


async def _seen(call: Call, job_id: str) -> Job:
    """Return a job that the caller sees; others are refused as if there were none."""
    job = await _cron(call).job(job_id)
    if job is None or not _sees(call, job.session.agent):
        raise CallRefused("NOT_FOUND", f"There is no cron job {job_id}.")
    return job


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


def _changes(call: Call, job_id: str) -> dict[str, Any]:
    return {"type": "job_changed", "tool": call.method.tool, "jobId": job_id}


def _busy(job_id: str) -> CallRefused:
    return CallRefused("UNAVAILABLE", f"The cron job {job_id} changes all the time: try again.")


HANDLERS: dict[str, Handler] = {
    "cron.status": _status,
    "cron.list": _list,
    "cron.add": _add,
    "cron.update": _update,
    "cron.remove": _remove,
    "cron.run": _run,
    "cron.runs": _runs,
}
