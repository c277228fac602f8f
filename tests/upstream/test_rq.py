"""RQ's queues: how a hint is enqueued and taken, and what is left of it.

`docs/decisions/0001-streams-are-the-truth.md` explains why jobs are only hints.
"""

import base64
import json
import pickle
import time
import zlib
from typing import Any, cast

import pytest
from redis import Redis
from redis.client import Pipeline
from rq import Queue
from rq.job import Job
from rq.serializers import JSONSerializer

from remoteclaw.fleet.connection import open_redis
from remoteclaw.fleet.wake import HintSerializer
from tests.support.waiting import eventually
from tests.upstream.plain import PlainRq

SID = "0" * 32
#: The options with which hints are enqueued.
HINT: dict[str, Any] = {
    "timeout": -1,
    "result_ttl": 0,
    "failure_ttl": 86_400,
    "description": "session 1234",
}


def unconnected_queue() -> Queue:
    """Return a queue whose own connection leads nowhere."""
    nowhere = Redis.from_url("unix:///nowhere")
    return Queue("q", connection=nowhere, serializer=JSONSerializer)


# -- enqueueing -----------------------------------------------------------------------------------


async def test_a_queue_that_knows_the_version_enqueues_on_any_pipeline_and_never_connects(
    rq: PlainRq,
) -> None:
    """fleet/wake.py: hints go out on our own asynchronous pipeline, together with an XADD."""
    queue = unconnected_queue()
    queue.redis_server_version = (6, 2, 0)
    client = open_redis(rq.server.url)
    pipeline = client.pipeline(transaction=True)

    job = queue.create_job("workers.jobs.drain", args=(SID,), **HINT)
    queue.enqueue_job(job, pipeline=cast(Pipeline, pipeline))
    pipeline.xadd("stream", {"sid": SID}, maxlen=1, approximate=False)

    assert rq.redis.dbsize() == 0
    await pipeline.execute()
    await client.aclose()
    assert rq.redis.lrange("rq:queue:q", 0, -1) == [job.id.encode()]
    assert rq.redis.smembers("rq:queues") == {b"rq:queue:q"}
    assert rq.redis.xlen("stream") == 1


def test_a_hint_in_redis_is_a_hash_with_a_compressed_pickle(rq: PlainRq) -> None:
    """workers/jobs.py: its parser accepts this form and no other."""
    queue = Queue("q", connection=rq.redis, serializer=HintSerializer)
    job = queue.create_job("workers.jobs.drain", args=(SID,), **HINT)
    queue.enqueue_job(job)

    fields: Any = rq.redis.hgetall(f"rq:job:{job.id}")
    data = fields.pop(b"data")
    assert pickle.loads(zlib.decompress(data)) == ("workers.jobs.drain", None, (SID,), {})
    stored = {name: value for name, value in fields.items() if value and not name.endswith(b"_at")}
    assert stored == {
        b"origin": b"q",
        b"status": b"queued",
        b"description": b"session 1234",
        b"timeout": b"-1",
        b"result_ttl": b"0",
        b"failure_ttl": b"86400",
    }


# -- taking ---------------------------------------------------------------------------------------


async def test_the_length_of_a_queue_counts_the_jobs_that_no_worker_has_taken(rq: PlainRq) -> None:
    """fleet/turns/lease.py, finish.lua, sweep.lua: LLEN shows whether other sessions wait."""
    await rq.start_worker()
    held, _ = await rq.running()
    assert rq.redis.llen("rq:queue:q") == 0

    rq.enqueue("note")

    assert rq.redis.llen("rq:queue:q") == 1
    held.release()
    await eventually(lambda: rq.redis.llen("rq:queue:q") == 0)


@pytest.mark.parametrize(
    ("queues", "command"), [(("q",), "blmove"), (("q", "q@host"), "blpop")], ids=["one", "several"]
)
async def test_an_idle_worker_is_blocked_on_its_queues(
    rq: PlainRq, queues: tuple[str, ...], command: str
) -> None:
    """fleet/turns/lease.py: a hint that is still on a queue found no idle worker."""
    await rq.start_worker(*rq.flags(queues=queues))

    def blocked() -> list[str]:
        clients: Any = rq.redis.client_list()
        return [client["cmd"] for client in clients if "b" in client["flags"]]

    assert await eventually(blocked) == [command]


async def test_a_worker_takes_jobs_from_its_queues_in_their_order(rq: PlainRq) -> None:
    """workers/settings.py: messages of people come before background work."""
    for name in ("later@host", "later", "q@host", "q"):
        queue = Queue(name, connection=rq.redis, serializer=JSONSerializer)
        queue.enqueue_call("tests.upstream.jobs.note", (name,))

    await rq.work(*rq.flags(queues=("q", "q@host", "later", "later@host")))

    assert rq.noted() == ["q", "q@host", "later", "later@host"]


# -- what is left ---------------------------------------------------------------------------------


async def test_a_successful_job_leaves_no_key_if_its_result_is_not_kept(rq: PlainRq) -> None:
    """fleet/wake.py: hints have `result_ttl=0`, so RQ's keys don't grow."""
    job = rq.enqueue("note", **HINT)
    assert mentions(rq, job)

    await rq.work()

    assert rq.noted() == ["ran"]
    assert mentions(rq, job) == []


async def test_a_failed_job_is_kept_for_its_failure_ttl(rq: PlainRq) -> None:
    """fleet/wake.py: `failure_ttl` is how long rq-dashboard shows a drain that failed."""
    job = rq.enqueue("fail", **HINT)

    await rq.work()

    hash_, stream = f"rq:job:{job.id}", f"rq:results:{job.id}"
    assert mentions(rq, job) == sorted([hash_, stream, "rq:failed:q"])
    for key in (hash_, stream):
        assert 86_000 < rq.redis.ttl(key) <= 86_400
    until = rq.redis.zscore("rq:failed:q", job.id)
    assert 86_000 < cast(float, until) - time.time() <= 86_401


async def test_rq_logs_and_stores_the_text_of_an_exception(rq: PlainRq) -> None:
    """workers/jobs.py: why an unexpected error becomes `DrainFailed`."""
    job = rq.enqueue("fail", "a secret", **HINT)

    log = await rq.work()

    assert "ValueError: a secret" in log
    assert b"ValueError: a secret" in stored_failure(rq, job)


async def test_an_exception_that_is_raised_from_none_hides_the_original(rq: PlainRq) -> None:
    """workers/jobs.py: `raise DrainFailed(…) from None` keeps a message's text out of RQ."""
    job = rq.enqueue("fail_discreetly", "a secret", **HINT)

    log = await rq.work()

    assert "RuntimeError: ValueError" in log
    assert "a secret" not in log
    assert b"RuntimeError: ValueError" in stored_failure(rq, job)
    assert b"a secret" not in stored_failure(rq, job)


async def test_rq_logs_a_jobs_description_but_not_its_arguments(rq: PlainRq) -> None:
    """workers/jobs.py: it gives each job a description that may be logged."""
    rq.enqueue("note", "an argument", **HINT)

    log = await rq.work()

    assert "q: session 1234" in log
    assert "an argument" not in log


async def test_a_timeout_of_minus_one_sets_no_alarm_that_ever_fires(rq: PlainRq) -> None:
    """fleet/wake.py, workers/jobs.py: RQ's clock must not end a turn."""
    rq.enqueue("describe", timeout=-1)
    rq.enqueue("describe", timeout=1000)

    await rq.work()

    never, limited = (json.loads(line)["alarm_s"] for line in rq.noted())
    assert never == 0 or never > 10 * 365 * 86_400
    assert 900 < limited <= 1000


def mentions(rq: PlainRq, job: Job) -> list[str]:
    """Return all keys that belong to a job or contain its id."""
    keys = cast(list[bytes], rq.redis.keys("*"))
    return sorted(
        key.decode() for key in keys if job.id.encode() in key + (rq.redis.dump(key) or b"")
    )


def stored_failure(rq: PlainRq, job: Job) -> bytes:
    """Return the text that RQ has stored for a job's exception."""
    ((_, fields),) = cast(Any, rq.redis.xrange(f"rq:results:{job.id}"))
    return zlib.decompress(base64.b64decode(fields[b"exc_string"]))
