"""Cron jobs: where they are kept, and the scheduler that fires them. Any number may run.

A firing is an entry on the session's inbound stream, like a message from a chat. One script takes a
due time, appends the entry and sets the next due time; so it is fired once, whoever looks, and is
not lost with a scheduler that dies.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from remoteclaw.clock import boottime
from remoteclaw.cron import Due, Schedule
from remoteclaw.errors import MessageRefused, RedisRefused, RedisUnavailable, ScheduleRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import DEDUPE_MS, FULL, FULL_AT, GRACE_MS, encode_entry
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import ChannelMessage, SessionKey
from remoteclaw.telemetry import frames_of

__all__ = ["Cron", "Job", "Maker", "Run", "Scheduler"]

#: How often it is looked for jobs that are due, in seconds: nothing is due between two seconds.
INTERVAL_S = 1.0
#: How many jobs are looked at at once: each may have a message of 400 KB.
AT_MOST = 100
#: How long a scheduler counts as there after a look, in milliseconds.
THERE_MS = 30_000
#: How many runs are remembered, of one job and of all, and for how long, in milliseconds.
MOST_RUNS_OF_JOB, MOST_RUNS = 100, 1000
RUNS_MS = 30 * 24 * 3600 * 1000
#: How long reading is tried while Redis is away, in seconds.
READ_S = 5.0
#: The form in which jobs are written. A scheduler leaves alone what has a higher number.
JOB_VERSION = 1

log = logging.getLogger(__name__)


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
    stored: bytes = field(default=b"", compare=False, repr=False)
    """The job as it was read: who writes it says so."""

    def entry(self, due_ms: int) -> ChannelMessage:
        """Return the message of a due time. Raises `MessageRefused` for what can be none."""
        return ChannelMessage.checked(
            id=f"cron-{self.id}-{due_ms}",
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
        fields = {**asdict(self), "session": str(self.session), "v": JOB_VERSION}
        del fields["stored"]
        return orjson.dumps(fields)

    @classmethod
    def decode(cls, data: bytes) -> "Job":
        """Return a job as it was stored.

        Raises `NewerJob` if a newer RemoteClaw has to do that, and ValueError if nobody can.
        """
        try:
            fields: dict[str, Any] = orjson.loads(data)
            if fields.pop("v") > JOB_VERSION:
                raise NewerJob
            fields["schedule"] = Schedule(**fields["schedule"])
            fields["maker"] = Maker(**fields["maker"])
            fields["session"] = SessionKey.parse(fields["session"])
            return cls(**fields, stored=data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__})") from None


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a due time."""

    job_id: str
    agent: str
    """Whose job it was."""
    due_ms: int
    status: Literal["fired", "skipped", "failed"]
    run_id: str | None
    """Names the message that was given to the session; the trace of it is under this name."""
    detail: str | None


class Cron:
    """The jobs, and what became of their due times. Changes go through `Effects.job()`."""

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
        client = self._scripts.client
        read = functools.partial(client.hget, keys.CRON_JOBS, job_id)
        data = await self._scripts.call(read, deadline=boottime() + READ_S)
        return next(_readable([data] if data else []), None)

    async def runs(self, job_id: str | None = None) -> list[Run]:
        """Return what became of the last due times, of one job or of all, newest first."""
        client = self._scripts.client
        name = keys.cron_runs(job_id) if job_id else keys.CRON_RUNS
        read = functools.partial(client.lrange, name, 0, -1)
        lines: Sequence[bytes] = await self._scripts.call(read, deadline=boottime() + READ_S)
        return [_run(line) for line in lines]

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
    fields = orjson.loads(data)
    sid = fields.pop("sid", None)
    return Run(run_id=f"{sid}-{entry_id}" if entry_id else None, **fields)


class Scheduler:
    """Fires the jobs that are due."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self._waker = waker

    async def run(self) -> None:
        """Look every second until cancelled; Redis may be away meanwhile."""
        while True:
            try:
                await self.look()
            except (RedisUnavailable, RedisRefused) as error:
                log.warning("firing cron jobs: %s", error)
            await asyncio.sleep(INTERVAL_S)

    async def look(self) -> int:
        """Fire what is due now; return how many jobs gave their session a message."""
        fired = 0
        while True:
            now, *found = await self._scripts.run(
                "due",
                [keys.CRON_DUE, keys.CRON_JOBS, keys.CRON_SCHEDULER],
                [AT_MOST, THERE_MS],
                deadline=boottime() + READ_S,
            )
            parts = iter(found)
            taken = 0
            for job_id, due, data in zip(parts, parts, parts, strict=True):
                status = await self._take(job_id.decode(), int(float(due)), data, int(now))
                taken += status != "left"
                fired += status == "fired"
            if len(found) < 3 * AT_MOST or not taken:
                return fired

    async def _take(
        self, job_id: str, due_ms: int, data: bytes, now_ms: int
    ) -> Literal["fired", "taken", "left"]:
        """Do what is due about a job; "left" if it stays as due as it is."""
        try:
            job = Job.decode(data)
            due = job.schedule.due(due_ms, now_ms)
            message = None if due.run_ms is None else job.entry(due.run_ms)
        except NewerJob:
            return "left"
        except (ValueError, ScheduleRefused, MessageRefused) as problem:
            log.error("cron job %s can't be fired: %s", job_id, problem)
            return await self._give_up(job_id, due_ms, data, str(problem))
        except Exception as error:  # noqa: BLE001 - one job must not stop the others
            log.error("cron job %s: %s", job_id, frames_of(error))
            return await self._give_up(job_id, due_ms, data, type(error).__name__)
        return await self._fire(job, due_ms, data, due, message)

    async def _fire(
        self, job: Job, due_ms: int, data: bytes, due: Due, message: ChannelMessage | None
    ) -> Literal["fired", "taken", "left"]:
        after = replace(job, next_ms=due.next_ms, last_ms=due.run_ms or job.last_ms)
        facts = {"job_id": job.id, "agent": job.session.agent}
        missed = {**facts, "due_ms": due_ms, "status": "skipped", "detail": _why_missed(due)}
        run = {**facts, "due_ms": due.run_ms, "status": "fired", "detail": None}
        sid = job.session.sid
        status, entry_id, queue = await self._script(
            job.id,
            due_ms,
            data,
            after=after.encode() if due.next_ms is not None else b"",
            next_ms=due.next_ms,
            missed=missed if due.has_missed else None,
            run={**run, "sid": sid} if message else None,
            target=(job.session, message) if message else None,
        )
        if status == "full":
            log.warning("cron job %s waits: %s", job.id, FULL)
            return "left"
        if status == "changed":  # by another scheduler, or whoever changes the job
            return "taken"
        if queue:
            # It is safe by now: without this hint, the sweeper's comes.
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await self._waker.hint(sid, str(job.session), queue=queue)
        log.info("cron job %s: %s", job.id, "fired" if entry_id else "skipped, it was too late")
        return "fired" if entry_id else "taken"

    async def _give_up(
        self, job_id: str, due_ms: int, data: bytes, why: str
    ) -> Literal["taken", "left"]:
        """Leave a job as it is, and never due: nobody could tell when."""
        with contextlib.suppress(ValueError, NewerJob):
            job = Job.decode(data)
            after = replace(job, next_ms=None).encode()
            agent = job.session.agent
            run = {"job_id": job_id, "agent": agent, "due_ms": due_ms, "status": "failed"}
            await self._script(job_id, due_ms, data, after=after, run={**run, "detail": why})
            return "taken"
        await self._script(job_id, due_ms, data, after=data)
        return "taken"

    async def _script(
        self,
        job_id: str,
        due_ms: int,
        before: bytes,
        *,
        after: bytes,
        next_ms: int | None = None,
        missed: Mapping[str, Any] | None = None,
        run: Mapping[str, Any] | None = None,
        target: tuple[SessionKey, ChannelMessage] | None = None,
    ) -> tuple[str, str, str]:
        names = [keys.CRON_JOBS, keys.CRON_DUE, keys.cron_runs(job_id), keys.CRON_RUNS]
        arguments: list[str | bytes | int | float] = [
            *(job_id, before, due_ms, after, "" if next_ms is None else next_ms),
            *(MOST_RUNS_OF_JOB, MOST_RUNS, RUNS_MS),
            *(orjson.dumps(one) if one else b"" for one in (missed, run)),
        ]
        if target:
            session, message = target
            sid = session.sid
            names += [keys.inbound(sid), keys.state(sid), keys.ACTIVE, keys.SESSIONS]
            names.append(keys.dedupe(session, message.id))
            arguments += [encode_entry(message, "channel", "cron"), sid, GRACE_MS, DEDUPE_MS]
            arguments += [keys.outcome_prefix(sid), str(session), "background", ""]
            arguments.append(FULL_AT)
        reply = await self._scripts.run("fire", names, arguments, deadline=boottime() + READ_S)
        status, entry_id, queue = (part.decode() for part in reply)
        return status, entry_id, queue


def _why_missed(due: Due) -> str:
    if due.run_ms is None:
        return "No scheduler ran then, and it is more than an hour ago."
    return "No scheduler ran then; a later due time was fired instead."
