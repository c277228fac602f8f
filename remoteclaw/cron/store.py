"""The store of cron jobs and their runs.

A run begins as an entry on its session's inbound stream. It is open until it is settled, after the
entry's outcome is final. `scheduler.py` begins runs, `settle.py` settles them, and `calls.py`
changes jobs.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson

from remoteclaw.cron.job import Job
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: The maximum number of runs that the log keeps, of one job and of all jobs.
MAX_RUNS_OF_JOB, MAX_RUNS = 100, 1000
#: The log keeps a run for this long, in milliseconds.
RUNS_MS = 30 * 24 * 3600 * 1000
LOG_LIMITS = {"max_runs": MAX_RUNS_OF_JOB, "max_all_runs": MAX_RUNS, "runs_ms": RUNS_MS}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """A run of a job, or a due time that was skipped."""

    job_id: str
    agent: str
    """The agent of the job's session."""
    due_ms: int
    """The due time; for a manual run, the time of the call."""
    status: str
    """`fired` while the run is open; then the status of its outcome (`done`, `failed`, `stopped`,
    …), or `unknown` if the outcome has expired. `skipped` for a due time without a run."""
    run_id: str | None = None
    """The id of the session and of its entry; `remoteclaw sessions trace` accepts it."""
    detail: str | None = None
    is_manual: bool = False
    """Whether a call began the run, rather than the schedule."""
    duration_ms: int | None = None
    """The duration of the turn; None while the run is open, or if no turn began."""

    def line(self, entry_id: str, sid: str) -> bytes:
        """Return the run as a line of the log."""
        return f"{entry_id} ".encode() + self.encode(sid=sid)

    def encode(self, **more: str) -> bytes:
        """Return the stored form of the run, with `more` fields and without its run id."""
        values = {**asdict(self), **more}
        del values["run_id"]
        return orjson.dumps(values)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that is not settled yet."""

    name: str
    run: JobRun
    sid: str
    entry_id: str
    stored: str | bytes
    """The stored form that was read; the script that settles the run compares it."""

    @classmethod
    def decode(cls, name: str, stored: str | bytes) -> "OpenRun":
        """Return an open run from its stored form. Raises ValueError if it is damaged."""
        try:
            text = stored if isinstance(stored, str) else stored.decode()
            outcome, _, data = text.partition(" ")
            entry_id = outcome.rpartition(":")[2]
            values = orjson.loads(data)
            sid = values["sid"]
            run = _run_of(values, f"{sid}-{entry_id}")
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__})") from None
        return cls(name, run, sid, entry_id, stored)


class Cron:
    """Reads jobs and their runs."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def jobs(self) -> list[Job]:
        """Return all readable jobs, oldest first."""
        stored = await self._scripts.call(self._scripts.client.hvals, keys.CRON_JOBS)
        return sorted(_readable(stored), key=lambda job: (job.created_ms, job.id))

    async def job(self, job_id: str) -> Job | None:
        """Return a job; None if it doesn't exist or is unreadable."""
        data = await self.stored(job_id)
        return next(_readable([data] if data else []), None)

    async def stored(self, job_id: str) -> bytes | None:
        """Return the stored form of a job, readable or not; None if the job doesn't exist."""
        client = self._scripts.client
        data: bytes | None = await self._scripts.call(client.hget, keys.CRON_JOBS, job_id)
        return data

    async def runs(self, job_id: str | None = None) -> list[JobRun]:
        """Return the open and the logged runs, of one job or of all jobs, newest first."""
        name = keys.cron_job_runs(job_id) if job_id else keys.CRON_RUNS
        # In one transaction: a run that is settled between two reads would be in neither.
        open_runs, lines = await self._scripts.run_pipeline(
            lambda ask: (ask.hgetall(keys.CRON_OPEN), ask.lrange(name, 0, -1)), is_atomic=True
        )
        runs = list(_runs(lines))
        for run_name, stored in open_runs.items():
            with contextlib.suppress(ValueError):
                open_run = OpenRun.decode(run_name.decode(), stored)
                if job_id in (None, open_run.run.job_id):
                    runs.append(open_run.run)
        return sorted(runs, key=lambda run: run.due_ms, reverse=True)

    async def unfinished(self, job: Job) -> OpenRun | None:
        """Return the job's open run if its outcome is not final yet; else None."""
        run = await self.open_run(job)
        if run is None:
            return None
        outcome = keys.outcome(run.sid, run.entry_id)
        status = await self._scripts.call(self._scripts.client.hget, outcome, "status")
        return run if status in (b"accepted", b"running") else None

    async def open_run(self, job: Job) -> OpenRun | None:
        """Return the last run of the job if it is not settled yet; else None."""
        if (name := job.running) is None:
            return None
        stored = await self._scripts.call(self._scripts.client.hget, keys.CRON_OPEN, name)
        with contextlib.suppress(ValueError):
            return OpenRun.decode(name, stored) if stored else None
        return None

    async def has_scheduler(self) -> bool:
        """Return whether a scheduler is running."""
        return bool(await self._scripts.call(self._scripts.client.exists, keys.CRON_SCHEDULER))


def _readable(stored: Sequence[bytes]) -> Iterator[Job]:
    for data in stored:
        with contextlib.suppress(ValueError):
            yield Job.decode(data)


def _runs(lines: Sequence[bytes]) -> Iterator[JobRun]:
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, AttributeError):  # a damaged line
            entry_id, _, data = line.decode().partition(" ")
            values = orjson.loads(data)
            yield _run_of(values, f"{values.get('sid')}-{entry_id}" if entry_id else None)


def _run_of(values: dict[str, Any], run_id: str | None) -> JobRun:
    """Return a run from its stored values; fields of a newer version are ignored."""
    known = {each.name for each in fields(JobRun)} - {"run_id"}
    return JobRun(run_id=run_id, **{name: values[name] for name in known & values.keys()})
