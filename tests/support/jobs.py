"""Cron jobs for tests, stored as the gateway stores them, with a clock that tests can set."""

import itertools
import os
from dataclasses import replace
from datetime import datetime
from typing import Any

from remoteclaw.cron.job import Job
from remoteclaw.cron.schedule import Schedule
from remoteclaw.cron.store import JobRun
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import Entry, SessionKey
from tests.support.cron import calls_of, cron_of

HOUR_MS = 3600 * 1000
SESSION = SessionKey("main", "test", "default", "chat-1", "alice")
NAMES = (f"{number:016x}" for number in itertools.count())


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


async def set_clock(fleet: Fleet, at_ms: int) -> None:
    """Set the clock of the Redis scripts."""
    seconds, micros = await fleet.scripts.client.time()
    shift = at_ms - (seconds * 1000 + micros // 1000)
    await fleet.scripts.client.set("test:shift", shift)


async def add(fleet: Fleet, schedule: Schedule, **fields: Any) -> Job:
    """Store a job, as the gateway does. A job that repeats is anchored now, or at `next_ms`.

    Without an anchor it would be due at the next full minute or hour, so that the time of the test
    mattered.
    """
    now_ms = await fleet.scripts.now_ms()
    if schedule.every_s and schedule.anchor_ms is None:
        schedule = replace(schedule, anchor_ms=fields.get("next_ms", now_ms))
    facts: dict[str, Any] = {
        "id": next(NAMES),
        "name": "standup",
        "message": "What is new?",
        "session": SESSION,
        "enabled": True,
        "created_ms": now_ms,
        "people": ("test:olga",),
    }
    if "next_ms" not in fields:
        facts["next_ms"] = schedule.next_after(now_ms)
    job = Job(schedule=schedule, **{**facts, **fields})
    await store(fleet, None, job)
    return job


async def store(fleet: Fleet, before: Job | None, after: Job | None) -> bool:
    job = after or before
    assert job is not None
    return await calls_of(fleet).job(
        None, os.urandom(8).hex(), job.id, before=before, after=after, effect=None
    )


async def job_of(fleet: Fleet, job_id: str) -> Job:
    """Return a job as it is stored now."""
    found = await cron_of(fleet).job(job_id)
    assert found is not None
    return found


async def entries(fleet: Fleet, session: SessionKey = SESSION) -> list[Entry]:
    found: Any = await fleet.scripts.client.xrange(keys.inbound(session.sid))
    return [decode_entry(*entry) for entry in found]


def fired(runs: list[JobRun]) -> list[int]:
    """Return the due times of the runs that were sent to their session."""
    return [run.due_ms for run in runs if run.run_id is not None]


def statuses(runs: list[JobRun]) -> list[str]:
    return [run.status for run in runs]


async def work(
    fleet: Fleet, session: SessionKey = SESSION, *, status: str = "done", category: str = ""
) -> int:
    """Run a session's waiting turns, as a worker does; return the number of turns."""
    error = {"category": category, "detail": "a secret of the CLI"} if category else None
    lease = await fleet.leases.acquire(session.sid, worker="test", host="here")
    turns = 0
    while lease is not None:
        for entry in await entries(fleet, session):
            assert await lease.turns.begin([entry.id])
            await lease.turns.finish(status, reply=[], error=error)
            turns += 1
        if await lease.close():
            break
    return turns
