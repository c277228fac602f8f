"""Changes and manual runs of cron jobs, as calls ask for them: each is done once."""

from collections.abc import Mapping
from typing import Any, Literal

from remoteclaw.cron.job import Job
from remoteclaw.cron.store import Run
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.caller import Caller
from remoteclaw.fleet.calls import ToolCalls
from remoteclaw.fleet.inbound import encode_entry, entry_args, entry_keys

#: How many cron jobs there may be.
MAX_JOBS = 1000


class CronCalls:
    """Does what calls ask for of cron jobs."""

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
        note: Mapping[str, Any] | None,
    ) -> Literal["done", "nothing", "changed"]:
        """Write, change or remove a cron job, unless it is not any more what it was `before`.

        "nothing" means that there was none and is to be none. Asked again, the answer is the same.
        """
        status, (written,) = await self._calls.perform(
            caller,
            call,
            note,
            "call_job",
            {"jobs": keys.CRON_JOBS, "due": keys.CRON_DUE},
            {
                "job_id": job_id,
                "before": before.stored if before else None,
                "job": after.encode() if after else None,
                "due_ms": after.next_ms if after else None,
                "most": MAX_JOBS,
            },
        )
        if status == "full":
            raise CallRefused("UNAVAILABLE", f"There are {MAX_JOBS} cron jobs: remove some first.")
        if status == "changed":
            return "changed"
        return "done" if written else "nothing"

    async def run(
        self,
        caller: Caller | None,
        call: str,
        job: Job,
        name: str,
        *,
        now_ms: int,
        note: Mapping[str, Any] | None,
    ) -> str | None:
        """Begin a manual run of a cron job; return its entry's id.

        None means that the job is not any more what it was when it was read. Asked again, the entry
        is the first one's. Raises `MessageRefused` for a job whose message can be none.
        """
        session = job.session
        run = Run(job_id=job.id, agent=session.agent, due_ms=now_ms, status="fired", is_manual=True)
        message = job.entry(now_ms, name=name.partition(":")[2])
        entry = encode_entry(message, "channel", "cron", people=job.people)
        status, made = await self._calls.perform(
            caller,
            call,
            note,
            "call_run",
            {
                **entry_keys(session),
                "jobs": keys.CRON_JOBS,
                "open": keys.CRON_OPEN,
            },
            {
                **entry_args(session, entry),
                "lane": "background",
                "job_id": job.id,
                "before": job.stored,
                "job": job.begun(name).encode(),
                "run_name": name,
                "run": run.encode(sid=session.sid),
            },
        )
        if status == "changed":
            return None
        entry_id, queue = made
        await self._calls.waker.try_hint(session, queue)
        return entry_id
