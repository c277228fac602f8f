"""Settles runs of cron jobs: watches each until its entry's outcome is final.

One script writes the line of the log, the job and the alert, once, whoever looks; so a run stays
open through every kill and restart until somebody has settled it.
"""

import logging
from typing import Any

import orjson

from remoteclaw.clock import boottime
from remoteclaw.config.model import CronConfig
from remoteclaw.cron.job import Job, NewerJob
from remoteclaw.cron.settlement import Ended, ended_run, settlement
from remoteclaw.cron.store import BOUNDS, READ_S, Cron, OpenRun, Run
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.outcomes import Outcome, Outcomes
from remoteclaw.fleet.replies import reply_payload
from remoteclaw.host.logs import frames_of

__all__ = ["Settler"]

#: How many open runs are looked at in one look: what is left is looked at a second later.
AT_MOST = 100
#: How soon, and how late, it is looked again whether a run is over, in milliseconds: in between, a
#: quarter of the time that it has taken so far.
SHORTEST_MS, LONGEST_MS = 1000, 15_000

log = logging.getLogger(__name__)


class Settler:
    """Settles the runs that are over."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._cron = Cron(scripts)
        self._outcomes = Outcomes(scripts)

    async def look(self, config: CronConfig) -> None:
        """Settle the runs that are over, of some that are open: the others' turn comes."""
        _, *found = await self._scripts.run(
            "unsettled",
            [keys.CRON_OPEN, keys.CRON_LOOKS],
            [AT_MOST, SHORTEST_MS, LONGEST_MS, keys.INBOUND_PREFIX],
            deadline=boottime() + READ_S,
        )
        parts = iter(found)
        for name, stored in zip(parts, parts, strict=True):
            try:
                run = OpenRun.decode(name.decode(), stored)
            except ValueError as problem:
                log.error("a run of a cron job is forgotten: %s", problem)
                await self._forget(name)
                continue
            await self.settle(run, config)

    async def settle(self, run: OpenRun, config: CronConfig) -> None:
        """Settle a run that is over. Whoever changes its job meanwhile has a later look do it."""
        stored = await self._cron.stored(run.run.job_id)
        now_ms = await self._cron.now_ms()
        ended = Ended.of(await self._outcome(run), now_ms)
        try:
            job = Job.decode(stored) if stored else None
            told = settlement(job, run, ended, now_ms, config) if job else None
        except NewerJob:
            return
        except (RedisUnavailable, RedisRefused):
            raise
        except Exception as error:  # noqa: BLE001 - one job must not stop the others
            log.error("a run of cron job %s is only noted: %s", run.run.job_id, frames_of(error))
            job, told = None, None
        before = stored or b""
        if told is None:
            await self._write(run, before, before, None, ended_run(run.run, ended))
            return
        after = told.job.encode() if told.job else b""
        next_ms = told.job.next_ms if told.job else None
        status = await self._write(run, before, after, next_ms, told.run, told.missed, told.alert)
        if status == "done":
            log.info("cron job %s: a run is over, %s", run.run.job_id, ended.status)

    async def _outcome(self, run: OpenRun) -> Outcome | None:
        try:
            return await self._outcomes.read(run.sid, run.entry_id)
        except (KeyError, TypeError, ValueError):  # damaged, so nobody can know
            return None

    async def _forget(self, name: bytes) -> None:
        """Let go of what can be no run."""
        client = self._scripts.client

        async def forget() -> Any:
            pipeline = client.pipeline(transaction=True)
            pipeline.hdel(keys.CRON_OPEN, name)
            pipeline.zrem(keys.CRON_LOOKS, name)
            return await pipeline.execute()

        await self._scripts.call(forget, deadline=boottime() + READ_S)

    async def _write(
        self,
        run: OpenRun,
        before: bytes,
        after: bytes,
        next_ms: int | None,
        line: Run,
        missed: Run | None = None,
        alert: str | None = None,
    ) -> str:
        job_id = run.run.job_id
        stream, reply = keys.NOBODY, b""
        if alert:
            session = Job.decode(after).session
            stream = keys.reply_stream(session.provider, session.account)
            reply = orjson.dumps(
                reply_payload(
                    sid=session.sid,
                    turn="",
                    attempt=0,
                    index=0,
                    channel_id=session.channel_id,
                    thread_id=session.thread,
                    text=alert,
                    is_error=True,
                    call=f"{{{session.sid}}}:{run.name}",
                )
            )
        status: bytes = await self._scripts.run(
            "settle",
            [
                *(keys.CRON_JOBS, keys.CRON_DUE, keys.CRON_OPEN, keys.CRON_LOOKS),
                *(keys.cron_runs(job_id), keys.CRON_RUNS, stream),
            ],
            [
                *(run.name, run.stored, job_id, before, after),
                *("" if next_ms is None else next_ms, *BOUNDS),
                *(missed.encode() if missed else b"", line.line(run.entry_id, run.sid)),
                reply,
            ],
            deadline=boottime() + READ_S,
        )
        return status.decode()
