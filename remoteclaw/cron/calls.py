"""Changes and manual runs of cron jobs on behalf of calls; each call takes effect once."""

from collections.abc import Mapping
from typing import Any, Literal

from remoteclaw.cron.job import Job
from remoteclaw.cron.store import JobRun
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.turns.caller import Caller
from remoteclaw.fleet.turns.calls import ToolCalls
from remoteclaw.fleet.turns.inbound import encode_entry, entry_args

#: The maximum number of cron jobs of a fleet.
MAX_JOBS = 1000


class CronCalls:
    """Changes and runs cron jobs on behalf of calls."""

    def __init__(self, calls: ToolCalls) -> None:
        self._calls = calls

    async def job(
        self,
        caller: Caller | None,
        call: str,
        job_id: str,
        *,
        before: Job | None,
        after: Job | None,
        effect: Mapping[str, Any] | None,
    ) -> Literal["done", "nothing", "changed"]:
        """Replace the cron job `before` with `after`, unless the stored job differs from `before`.

        `before` is None for a new job, and `after` is None to remove the job. Returns "changed" if
        the stored job differs, and "nothing" if both are None. A repeated `call` returns the same
        result again. Raises `CallRefused` if there are `MAX_JOBS` jobs.
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
            return "changed"
        return "done" if made["is_done"] else "nothing"

    async def run(
        self,
        caller: Caller | None,
        call: str,
        job: Job,
        name: str,
        *,
        now_ms: int,
        effect: Mapping[str, Any] | None,
    ) -> str | None:
        """Begin a manual run of a cron job; return the id of its entry.

        Returns None if the stored job differs from `job`. A repeated `call` returns the id of the
        first entry. Raises `MessageRefused` if the job's message is invalid.
        """
        session = job.session
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
            return None
        entry_id = str(made["entry_id"])
        by = f"cron job {job.id}"
        await self._calls.waker.accepted(session, entry_id, made.get("queue"), by=by)
        return entry_id
