"""Cron jobs and their runs: what they are, where they are kept, and how they are read.

A run begins as an entry on its session's inbound stream, and is open until that entry's outcome is
final. `scheduler.py` begins runs, `settling.py` ends them; changes of jobs go through `Effects`.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

import orjson

from remoteclaw.clock import boottime
from remoteclaw.cron import GRACE_S, ON_TIME_MS, Schedule
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.messages import ChannelMessage, SessionKey

__all__ = [
    "BOUNDS",
    "Cron",
    "Job",
    "Maker",
    "Misfire",
    "NewerJob",
    "OpenRun",
    "Policy",
    "Run",
    "State",
]

#: How many runs are remembered, of one job and of all, and for how long, in milliseconds.
MOST_RUNS_OF_JOB, MOST_RUNS = 100, 1000
RUNS_MS = 30 * 24 * 3600 * 1000
BOUNDS = (MOST_RUNS_OF_JOB, MOST_RUNS, RUNS_MS)
#: How long reading is tried while Redis is away, in seconds.
READ_S = 5.0
#: The newest form of a job. A scheduler leaves alone what has a higher number; 1 had no policy and
#: no state, and those that know only it would throw both away.
JOB_VERSION = 2

#: What becomes of a due time that nobody fired then: it is run if it is less than a grace old, not
#: at all, or once, however old it is.
Misfire = Literal["grace", "skip", "run_once"]


class NewerJob(Exception):
    """Raised for a job that a newer RemoteClaw has written: its schedulers can read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Who made a job."""

    operator: str | None = None
    """The name of an operator's token, if one did."""
    agent: str | None = None
    """The agent that did in a turn."""
    session: str | None = None
    """The key of that turn's session."""
    for_owner: bool
    """Whether the turn was an owner's; operators are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is to be done where a job doesn't go as it should."""

    misfire: Misfire = "grace"
    grace_s: int = GRACE_S
    """How old a due time may be that is still run, where the misfire policy is a grace."""
    delete_after_run: bool | None = None
    """Whether the job is removed after a run that went well. None: if it is due once."""
    alert_after: int | None = None
    """After how many failures in a row the chat is told; 0: never. None: as is configured."""
    alert_cooldown_s: int | None = None
    """How long it isn't told again. None: as is configured."""

    @property
    def late_ms(self) -> int | None:
        """How late a run may begin; None if however late."""
        if self.misfire == "run_once":
            return None
        return ON_TIME_MS if self.misfire == "skip" else self.grace_s * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How a job's runs have gone."""

    running: str | None = None
    """The name of the run that was begun last, until that is settled."""
    missed_ms: int | None = None
    """The first due time that came while that one was not finished."""
    failures: int = 0
    """How many runs in a row have failed, of those that the clock began."""
    alerted_ms: int | None = None
    """When the chat was told last."""
    last_status: str | None = None
    """How the run ended that was settled last."""
    last_detail: str | None = None
    last_duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A message that a session is given by the clock."""

    id: str
    name: str
    schedule: Schedule
    message: str
    session: SessionKey
    """The session that it belongs to and writes to."""
    enabled: bool
    created_ms: int
    maker: Maker
    next_ms: int | None
    """When it is due next; None if it isn't. It changes with every firing, so that whoever changes
    a job finds out that it was fired meanwhile."""
    last_ms: int | None = None
    """The due time that was fired last."""
    policy: Policy = Policy()
    state: State = State()
    stored: bytes = field(default=b"", compare=False, repr=False)
    """The job as it was read: who writes it says so."""

    @property
    def is_once(self) -> bool:
        """Whether it is due once."""
        return self.schedule.at is not None

    @property
    def goes_after_run(self) -> bool:
        """Whether it is removed after a run that went well."""
        wanted = self.policy.delete_after_run
        return self.is_once if wanted is None else wanted

    def begun(self, run: str) -> "Job":
        """Return the job while a run of it is open."""
        return replace(self, state=replace(self.state, running=run, missed_ms=None))

    def entry(self, due_ms: int, *, name: str | None = None) -> ChannelMessage:
        """Return the message of a due time, or of a run of another name.

        Raises `MessageRefused` for what can be none.
        """
        return ChannelMessage.checked(
            id=f"cron-{self.id}-{name or due_ms}",
            text=self.message,
            from_=self.session.user,
            user_name=f"cron job {self.name}",
            channel_id=self.session.channel_id,
            provider=self.session.provider,
            account=self.session.account,
            thread_id=self.session.thread,
            timestamp=due_ms,
            timezone=self.schedule.tz,
        )

    def encode(self) -> bytes:
        """Return the job as it is stored."""
        told = {**asdict(self), "session": str(self.session), "v": JOB_VERSION}
        del told["stored"]
        return orjson.dumps(told)

    @classmethod
    def decode(cls, data: bytes) -> "Job":
        """Return a job as it was stored.

        Raises `NewerJob` if a newer RemoteClaw has to do that, and ValueError if nobody can.
        """
        try:
            told: dict[str, Any] = orjson.loads(data)
            if told.pop("v") > JOB_VERSION:
                raise NewerJob
            told["schedule"] = Schedule(**told["schedule"])
            told["maker"] = Maker(**told["maker"])
            told["session"] = SessionKey.parse(told["session"])
            told["policy"] = Policy(**told.get("policy", {}))
            told["state"] = State(**told.get("state", {}))
            return cls(**told, stored=data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__})") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What became of a due time, or of a run that somebody asked for."""

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
    """Whether somebody asked for it."""
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
    """The run as it was read: who settles it says so."""

    @classmethod
    def decode(cls, name: str, stored: bytes) -> "OpenRun":
        """Return a run as it was stored. Raises ValueError for what can be none."""
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

    async def now_ms(self) -> int:
        """Return the time that due times are compared with: Redis' own, the same for all hosts."""
        return int(await self._scripts.run("clock", [], [], deadline=boottime() + READ_S))

    async def jobs(self) -> list[Job]:
        """Return every job that can be read, oldest first."""
        client = self._scripts.client
        found: Sequence[bytes] = await self._scripts.call(
            lambda: client.hvals(keys.CRON_JOBS), deadline=boottime() + READ_S
        )
        return sorted(_readable(found), key=lambda job: (job.created_ms, job.id))

    async def job(self, job_id: str) -> Job | None:
        """Return a job; None if there is none, or none that can be read."""
        data = await self.stored(job_id)
        return next(_readable([data] if data else []), None)

    async def stored(self, job_id: str) -> bytes | None:
        """Return a job as it is stored, also where it can't be read; None if there is none."""
        client = self._scripts.client
        read = functools.partial(client.hget, keys.CRON_JOBS, job_id)
        data: bytes | None = await self._scripts.call(read, deadline=boottime() + READ_S)
        return data

    async def runs(self, job_id: str | None = None) -> list[Run]:
        """Return what became of the last due times, of one job or of all, newest first."""
        client = self._scripts.client
        name = keys.cron_runs(job_id) if job_id else keys.CRON_RUNS

        async def read() -> Any:
            # At once: a run that ends between the two would be in neither.
            pipeline = client.pipeline(transaction=True)
            pipeline.hgetall(keys.CRON_OPEN)
            pipeline.lrange(name, 0, -1)
            return await pipeline.execute()

        unfinished, lines = await self._scripts.call(read, deadline=boottime() + READ_S)
        runs = [_run(line) for line in lines]
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
        client, entry_id = self._scripts.client, run.entry_id

        async def read() -> Any:
            pipeline = client.pipeline(transaction=True)
            pipeline.hget(keys.outcome_prefix(run.sid) + entry_id, "status")
            pipeline.xrange(keys.inbound(run.sid), entry_id, entry_id)
            return await pipeline.execute()

        status, entry = await self._scripts.call(read, deadline=boottime() + READ_S)
        return run if entry and status in (b"accepted", b"running") else None

    async def open_run(self, job: Job) -> OpenRun | None:
        """Return the run of a job that was begun last, if it is not settled."""
        name = job.state.running
        if name is None:
            return None
        client = self._scripts.client
        read = functools.partial(client.hget, keys.CRON_OPEN, name)
        stored = await self._scripts.call(read, deadline=boottime() + READ_S)
        if stored is not None:
            with contextlib.suppress(ValueError):
                return OpenRun.decode(name, stored)
        return None

    async def has_scheduler(self) -> bool:
        """Whether something runs that fires jobs."""
        client = self._scripts.client
        look = functools.partial(client.exists, keys.CRON_SCHEDULER)
        return bool(await self._scripts.call(look, deadline=boottime() + READ_S))


def _readable(stored: Sequence[bytes]) -> Iterator[Job]:
    for data in stored:
        with contextlib.suppress(ValueError, NewerJob):
            yield Job.decode(data)


def _run(line: bytes) -> Run:
    entry_id, _, data = line.decode().partition(" ")
    told = orjson.loads(data)
    return _run_of(told, f"{told.get('sid')}-{entry_id}" if entry_id else None)


def _run_of(told: dict[str, Any], run_id: str | None) -> Run:
    """Return a run; what a newer version tells besides is left out."""
    known = {one.name for one in fields(Run)} - {"run_id"}
    return Run(run_id=run_id, **{name: value for name, value in told.items() if name in known})
