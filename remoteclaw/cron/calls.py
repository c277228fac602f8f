"""Changes and manual runs of cron jobs on behalf of calls; each call takes effect once."""

import hashlib
from collections.abc import Mapping
from typing import Any

from remoteclaw.cron.job import Job
from remoteclaw.cron.store import Cron, JobRun
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.turns.caller import Caller, call_name
from remoteclaw.fleet.turns.calls import ToolCalls
from remoteclaw.fleet.turns.inbound import encode_entry, entry_args

#: The maximum number of cron jobs of a fleet.
MAX_JOBS = 1000


def job_name(caller: Caller | None, call: str) -> str:
    """Return a call's part of the ids of jobs and runs; a repeated call has the same ids."""
    return hashlib.sha256(call_name(caller, call).encode()).hexdigest()[:16]


class CronCalls:
    """Changes and runs cron jobs on behalf of calls."""

    def __init__(self, calls: ToolCalls, cron: Cron) -> None:
        self._calls, self._cron = calls, cron

    async def job(
        self,
        caller: Caller | None,
        call: str,
        job_id: str,
        *,
        before: Job | None,
        after: Job | None,
        effect: Mapping[str, Any] | None,
    ) -> bool:
        """Replace the cron job `before` with `after`; return whether there was or is a job.

        `before` is None for a new job, and `after` is None to remove the job. A repeated `call`
        returns the same result again. Raises `CallRefused` if the stored job differs from `before`,
        or if there are `MAX_JOBS` jobs.
        """
        status, made = await self._calls.perform(
            caller,
            call,
            effect,
            "call_job",
            job_id=job_id,
            before=before.stored if before else None,
            job=after.encode() if after else None,
            due_ms=after.next_ms if after else None,
            max_jobs=MAX_JOBS,
        )
        if status == "full":
            raise CallRefused("UNAVAILABLE", f"There are {MAX_JOBS} cron jobs: remove some first.")
        if status == "changed":
            raise _changed(job_id)
        return bool(made["is_done"])

    async def run(
        self,
        caller: Caller | None,
        call: str,
        job: Job,
        name: str,
        *,
        is_forced: bool = False,
        now_ms: int,
        effect: Mapping[str, Any] | None,
    ) -> str:
        """Begin a manual run of a cron job, named after `job_name()`; return the id of its entry.

        A repeated `call` returns the id of the first entry. Raises `CallRefused` if the stored job
        differs from `job`, or if a run of the job is unfinished, unless `is_forced`. Raises
        `MessageRefused` if the job's message is invalid.
        """
        session, name = job.session, f"{job.id}:now-{name}"
        # A repeated call is not refused, because it begins no other run.
        if not is_forced and await self._calls.result_of(caller, call) is None:
            unfinished = await self._cron.unfinished(job)
            if unfinished and unfinished.name != name:
                raise CallRefused(
                    "UNAVAILABLE",
                    f"A run of the cron job {job.id} has not finished: wait for it, or "
                    "stop its session.",
                )
        run = JobRun(
            job_id=job.id, agent=session.agent, due_ms=now_ms, status="fired", is_manual=True
        )
        message = job.message_at(now_ms, name=name.partition(":")[2])
        entry = encode_entry(message, "channel", "cron", job.provenance, job.people)
        status, made = await self._calls.perform(
            caller,
            call,
            effect,
            "call_run",
            lane="background",
            job_id=job.id,
            before=job.stored,
            job=job.with_run(name).encode(),
            run_name=name,
            run=run.encode(sid=session.sid),
            **entry_args(session, entry),
        )
        if status == "changed":
            raise _changed(job.id)
        entry_id = str(made["entry_id"])
        by = f"cron job {job.id}"
        await self._calls.waker.accepted(session, entry_id, made.get("queue"), by=by)
        return entry_id


def _changed(job_id: str) -> CallRefused:
    return CallRefused(
        "UNAVAILABLE",
        f"Nothing was done: the cron job {job_id} has changed at the same moment. Try again.",
    )
