"""Hints: RQ jobs that only say that a session has work.

The sweeper replaces a lost hint, and a duplicate finds no work. So RQ's retries, unique jobs, job
ids and results are not used.
"""

import contextlib
import functools
import logging
import re
from typing import Any, cast

from redis import Redis
from redis.client import Pipeline
from rq import Queue

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.messages import SessionKey, reference
from remoteclaw.telemetry import ACCEPTED

#: The function that a hint names; workers run no other function.
JOB = "workers.jobs.drain"
#: RQ keeps a hint whose drain failed for this long, in seconds, for users of rq-dashboard.
FAILURE_TTL_S = 24 * 3600
#: The time limit for sending a hint, in seconds. After it, the sweeper sends the hint.
SEND_S = 2.0

#: The data of a hint, up to and after the session's id: a pickle of `(JOB, None, (sid,), {})`, as
#: stock views expect it. It imports nothing when it is unpickled.
_DATA = b"(V" + JOB.encode() + b"\nN(V", b"\nt}t."
_HINT = re.compile(re.escape(_DATA[0]) + b"([0-9a-f]{32})" + re.escape(_DATA[1]))

#: A call as RQ's jobs describe it: the function's name, an instance, arguments, keyword arguments.
Call = tuple[str, None, tuple[str], dict[str, Any]]

log = logging.getLogger(__name__)


class HintSerializer:
    """The serializer of hints: it writes and reads pickles of one shape, and never unpickles.

    rq-dashboard and other stock views unpickle the jobs of workers, whatever their options are.
    """

    @staticmethod
    def dumps(call: Any) -> bytes:
        """Return the data of a hint."""
        _, _, (sid,), _ = call
        return _DATA[0] + str(sid).encode() + _DATA[1]

    @staticmethod
    def loads(data: bytes) -> Call:
        """Return the call of a hint; raise ValueError for any other data."""
        match = _HINT.fullmatch(data)
        if match is None:
            raise ValueError("no hint")
        return JOB, None, (match[1].decode(),), {}


class Waker:
    """Sends hints to RQ queues."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    @functools.cache  # noqa: B019 - a handful of queues, and a Waker lives as long as its process
    def _queue(self, name: str) -> Queue:
        """Return RQ's queue, created on first use, since most work-horses send no hints.

        RQ never connects: its commands are collected in our own asynchronous pipeline, and the
        server's version, which it would ask for, is set here.
        """
        queue = Queue(name, connection=Redis(), serializer=HintSerializer)
        queue.redis_server_version = (6, 2, 0)
        return queue

    async def hint(self, sid: str, key: str, *, queue: str) -> None:
        """Send a hint for a session.

        rq-dashboard shows only the agent and the channel of the session's `key`, which also
        contains people's ids.
        """
        rq_queue = self._queue(queue)
        job = rq_queue.create_job(
            JOB,
            args=(sid,),
            timeout=-1,  # a turn is ended by its lease or a stop, not by RQ's time limit
            result_ttl=0,
            failure_ttl=FAILURE_TTL_S,
            description="/".join([*key.split("/")[:2], sid[:8]]),
        )

        async def send() -> None:
            pipeline = self._scripts.client.pipeline(transaction=True)
            rq_queue.enqueue_job(job, pipeline=cast(Pipeline, pipeline))
            pipeline.xadd(keys.WAKE, {"sid": sid}, maxlen=1, approximate=False)
            await pipeline.execute()

        await self._scripts.call(send, deadline=boottime() + SEND_S)

    async def accepted(
        self, session: SessionKey, entry_id: str, queue: str | None, *, by: str
    ) -> None:
        """Log that a message was accepted, and send the hint if one is due, as `try_hint()`."""
        ACCEPTED.log(
            log,
            reference=reference(session.sid, entry_id),
            session=session.sid,
            source=by,
            agent=session.agent,
        )
        await self.try_hint(session, queue)

    async def try_hint(self, session: SessionKey, queue: str | None) -> None:
        """Send a hint if a script returned a `queue`; on errors, leave it to the sweeper."""
        if queue:
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await self.hint(session.sid, str(session), queue=queue)
