"""Hints: RQ jobs that say that a session has work, and nothing else.

Losing a hint costs a sweep, doubling one costs a look; so none of RQ's guarantees are needed, and
none of its retries, unique jobs, chosen ids or results are used.
"""

import contextlib
import functools
from typing import cast

from redis import Redis
from redis.client import Pipeline
from rq import Queue
from rq.serializers import JSONSerializer

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.messages import SessionKey

#: The function that a hint names; workers run no other.
JOB = "workers.jobs.drain"
#: How long RQ keeps a hint whose drain failed, in seconds, for people who look at rq-dashboard.
FAILURE_TTL_S = 24 * 3600
#: Time limit for sending a hint, in seconds; the sweeper sends it otherwise.
SEND_S = 2.0


class Waker:
    """Puts hints on the RQ queue."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    @functools.cache  # noqa: B019 - a handful of queues, and a Waker lives as long as its process
    def _queue(self, name: str) -> Queue:
        """RQ's queue. Made when it is needed: most work-horses never hint.

        RQ only needs a connection to ask for the server's version; it is told that instead, and
        never connects: its commands are collected on our own, asynchronous pipeline.
        """
        queue = Queue(name, connection=Redis(), serializer=JSONSerializer)
        queue.redis_server_version = (6, 2, 0)
        return queue

    async def hint(self, sid: str, key: str, *, queue: str) -> None:
        """Wake a worker for a session.

        Of its key, which has people's ids, rq-dashboard shows the agent and the kind of channel.
        """
        rq_queue = self._queue(queue)
        job = rq_queue.create_job(
            JOB,
            args=(sid,),
            timeout=-1,  # RQ's clock must not end a turn: lease and stop do
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

    async def try_hint(self, session: SessionKey, queue: str) -> None:
        """Wake a worker for a session if a script has named a queue; failing that, a sweep does."""
        if queue:
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await self.hint(session.sid, str(session), queue=queue)
