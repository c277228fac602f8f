"""The store of cron jobs and their runs.

A run begins as an entry on its session's inbound stream, and is open until that entry's outcome is
final. `scheduler.py` begins runs, `settle.py` ends them, and `calls.py` changes jobs.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson

from remoteclaw.cron.job import Job
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: How many runs are remembered, of one job and of all, and for how long, in milliseconds.
MAX_RUNS_OF_JOB, MAX_RUNS = 100, 1000
RUNS_MS = 30 * 24 * 3600 * 1000
BOUNDS = {"most_runs": MAX_RUNS_OF_JOB, "most_all_runs": MAX_RUNS, "runs_ms": RUNS_MS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of a due time, or of a manual run."""

    job_id: str
    agent: str
    """Whose job it was."""
    due_ms: int
    """When it was due, or asked for."""
    status: str
    """`fired` until it has ended; then done, failed, stopped, … as outcomes are, or unknown if the
    outcome is forgotten. `skipped` for a due time without a run."""
    run_id: str | None = None
    """Names the message that was given to the session; the trace of it is under this name."""
    detail: str | None = None
    is_manual: bool = False
    """Whether it was started by a call, and not by its schedule."""
    duration_ms: int | None = None
    """How long the turn took, of a run that has ended."""

    def line(self, entry_id: str, sid: str) -> bytes:
        """Return the run as the list of runs has it."""
        return f"{entry_id} ".encode() + self.encode(sid=sid)

    def encode(self, **more: str) -> bytes:
        """Return what is stored of it beside its entry's name."""
        told = {**asdict(self), **more}
        del told["run_id"]
        return orjson.dumps(told)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that has not been settled."""

    name: str
    run: Run
    sid: str
    entry_id: str
    stored: bytes
    """The run as it was read, which the settler sends back."""

    @classmethod
    def decode(cls, name: str, stored: bytes) -> "OpenRun":
        """Return a run as it was stored. Raises ValueError if it can't be read."""
        try:
            outcome, _, data = stored.partition(b" ")
            entry_id = outcome.decode().rpartition(":")[2]
            told = orjson.loads(data)
            sid = told["sid"]
            run = _run_of(told, f"{sid}-{entry_id}")
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__})") from None
        return cls(name, run, sid, entry_id, stored)


class Cron:
    """Reads the jobs and their runs."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def jobs(self) -> list[Job]:
        """Return every job that can be read, oldest first."""
        found = await self._scripts.call(self._scripts.client.hvals, keys.CRON_JOBS)
        return sorted(_readable(found), key=lambda job: (job.created_ms, job.id))

    async def job(self, job_id: str) -> Job | None:
        """Return a job; None if there is none, or none that can be read."""
        data = await self.stored(job_id)
        return next(_readable([data] if data else []), None)

    async def stored(self, job_id: str) -> bytes | None:
        """Return a job as it is stored, also where it can't be read; None if there is none."""
        client = self._scripts.client
        data: bytes | None = await self._scripts.call(client.hget, keys.CRON_JOBS, job_id)
        return data

    async def runs(self, job_id: str | None = None) -> list[Run]:
        """Return what became of the last due times, of one job or of all, newest first."""
        name = keys.cron_runs(job_id) if job_id else keys.CRON_RUNS
        # At once: a run that ends between the two would be in neither.
        unfinished, lines = await self._scripts.together(
            lambda ask: (ask.hgetall(keys.CRON_OPEN), ask.lrange(name, 0, -1)), is_atomic=True
        )
        runs = list(_runs(lines))
        for run_name, stored in unfinished.items():
            with contextlib.suppress(ValueError):
                found = OpenRun.decode(run_name.decode(), stored)
                if job_id in (None, found.run.job_id):
                    runs.append(found.run)
        return sorted(runs, key=lambda run: run.due_ms, reverse=True)

    async def unfinished(self, job: Job) -> OpenRun | None:
        """Return the run of a job that is under way; None if there is none."""
        run = await self.open_run(job)
        if run is None:
            return None
        outcome = keys.outcome_prefix(run.sid) + run.entry_id
        status = await self._scripts.call(self._scripts.client.hget, outcome, "status")
        return run if status in (b"accepted", b"running") else None

    async def open_run(self, job: Job) -> OpenRun | None:
        """Return the run of a job that was begun last, if it is not settled."""
        if (name := job.running) is None:
            return None
        stored = await self._scripts.call(self._scripts.client.hget, keys.CRON_OPEN, name)
        with contextlib.suppress(ValueError):
            return OpenRun.decode(name, stored) if stored else None
        return None

    async def has_scheduler(self) -> bool:
        """Whether something runs that fires jobs."""
        return bool(await self._scripts.call(self._scripts.client.exists, keys.CRON_SCHEDULER))


def _readable(stored: Sequence[bytes]) -> Iterator[Job]:
    for data in stored:
        with contextlib.suppress(ValueError):
            yield Job.decode(data)


def _runs(lines: Sequence[bytes]) -> Iterator[Run]:
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, AttributeError):  # of damaged ones
            entry_id, _, data = line.decode().partition(" ")
            told = orjson.loads(data)
            yield _run_of(told, f"{told.get('sid')}-{entry_id}" if entry_id else None)


def _run_of(told: dict[str, Any], run_id: str | None) -> Run:
    """Return a run; what a newer version tells besides is left out."""
    known = {one.name for one in fields(Run)} - {"run_id"}
    return Run(run_id=run_id, **{name: value for name, value in told.items() if name in known})
