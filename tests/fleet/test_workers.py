"""Workers that were killed leave RQ's registries; live ones stay in them."""

import signal
from typing import Any

import orjson
import pytest
from redis import Redis
from rq.registry import StartedJobRegistry

from remoteclaw.errors import RedisUnavailable
from remoteclaw.fleet import keys, workers
from remoteclaw.fleet.workers import WorkerView
from remoteclaw.host import process
from tests.support.stack import Stack
from tests.support.waiting import eventually


def nothing_known(_process: str) -> bool:
    """Whether a process is alive, as another machine answers, which can't know."""
    return True


async def forget_beats(stack: Stack) -> None:
    """Let all workers appear as if their last beat had been long ago."""
    client = stack.fleet.scripts.client
    for view in await stack.fleet.workers.list():
        facts = orjson.loads(await client.hget(keys.PROCESSES, field(view)) or b"")
        facts["at_ms"] -= 60_000
        await client.hset(keys.PROCESSES, field(view), orjson.dumps(facts))


def field(view: WorkerView) -> str:
    """Return the field of a worker in the hash of all processes."""
    return f"worker {view.host_id} {view.pid}"


async def names(stack: Stack) -> set[str]:
    """Return the workers that RQ lists."""
    found: Any = await stack.fleet.scripts.client.smembers(keys.RQ_WORKERS)
    return {name.decode() for name in found}


async def listeners(stack: Stack, name: str) -> int:
    """Return the number of those that listen for RQ's commands to a worker."""
    client: Any = stack.fleet.scripts.client
    channel = keys.rq_commands(name.removeprefix(keys.rq_worker("")))
    return int((await client.pubsub_numsub(channel))[0][1])


async def test_live_and_frozen_workers_stay_in_rqs_registries(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "LOST_S", 0)
    await stack.start_worker()
    frozen = await stack.start_worker()

    async def all_listen() -> bool:
        return 0 not in [await listeners(stack, name) for name in await names(stack)]

    await eventually(all_listen)  # a worker's first beat precedes that
    frozen.send_signal(signal.SIGSTOP)
    await forget_beats(stack)

    assert [await stack.fleet.workers.clear_dead(process.is_alive) for _ in range(3)] == [0, 0, 0]

    assert len(await names(stack)) == 2
    (silent,) = [each for each in await stack.fleet.workers.list() if each.pid == frozen.pid]
    assert (silent.is_ours, silent.host_id) == (False, stack.home.host_id)
    assert "has not answered since 20" in silent.problem
    assert "not started as" not in silent.problem
    frozen.send_signal(signal.SIGCONT)


async def test_an_idle_worker_that_was_killed_leaves_rqs_registries_at_once(stack: Stack) -> None:
    kept, killed = await stack.start_worker(), await stack.start_worker()

    killed.kill()
    killed.wait()

    assert await stack.fleet.workers.clear_dead(process.is_alive) == 1
    assert [view.pid for view in await stack.fleet.workers.list()] == [kept.pid]
    assert len(await names(stack)) == 1
    assert await stack.fleet.workers.clear_dead(process.is_alive) == 0


async def test_the_hint_of_a_live_worker_stays_when_its_neighbour_is_killed(stack: Stack) -> None:
    first = await stack.start_worker()
    await stack.reached(await stack.append("slow", from_="alice"), "output")
    second = await stack.start_worker()
    other = await stack.append("slow", from_="bob")
    await stack.reached(other, "output")
    with Redis(unix_socket_path=str(stack.redis.socket)) as redis:
        started = StartedJobRegistry("agents", connection=redis)
        assert len(started.get_job_ids(cleanup=False)) == 2

        first.kill()
        first.wait()
        assert await stack.fleet.workers.clear_dead(process.is_alive) == 1

        (view,) = await stack.fleet.workers.list()
        assert (view.pid, view.state, view.session) == (second.pid, "busy", other.session.sid[:8])
        assert len(started.get_job_ids(cleanup=False)) == 1
        assert len(redis.keys("rq:job:*")) == 1


async def test_a_worker_of_a_lost_machine_leaves_rqs_registries_after_a_time(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await stack.start_worker()
    worker.kill()
    worker.wait()
    await forget_beats(stack)
    (name,) = await names(stack)

    async def is_silent() -> bool:
        return await listeners(stack, name) == 0

    await eventually(is_silent)
    assert await stack.fleet.workers.clear_dead(nothing_known) == 0
    monkeypatch.setattr(workers, "LOST_S", 0)

    assert await stack.fleet.workers.clear_dead(nothing_known) == 1
    assert await names(stack) == set()


async def test_the_time_of_silence_begins_anew_when_redis_was_away(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage, live workers need a moment for their next sign of life."""
    monkeypatch.setattr(workers, "LOST_S", 0)
    monkeypatch.setattr(workers, "RETRY_S", 0.2)
    with Redis(unix_socket_path=str(stack.redis.socket)) as redis:
        redis.sadd("rq:workers", "rq:worker:gone")
        redis.hset("rq:worker:gone", mapping={"queues": "agents", "pid": 1, "hostname": "h"})
    assert await stack.fleet.workers.clear_dead(nothing_known) == 0
    with stack.redis.frozen(), pytest.raises(RedisUnavailable):
        await stack.fleet.workers.clear_dead(nothing_known)

    assert await stack.fleet.workers.clear_dead(nothing_known) == 0
    assert await stack.fleet.workers.clear_dead(nothing_known) == 1


async def test_a_worker_whose_process_id_was_used_again_is_not_taken_for_the_new_one(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that starts again has the same host name and the same process ids."""
    monkeypatch.setattr(workers, "LOST_S", 0)
    await stack.start_worker()
    with Redis(unix_socket_path=str(stack.redis.socket)) as redis:
        (live,) = redis.smembers("rq:workers")
        fields = redis.hgetall(live)
        earlier = {**fields, b"birth": b"2020-01-01T00:00:00.000000Z", b"state": b"busy"}
        redis.hset("rq:worker:earlier", mapping=earlier)
        redis.sadd("rq:workers", "rq:worker:earlier")
    assert len(await stack.fleet.workers.list()) == 1

    await stack.fleet.workers.clear_dead(process.is_alive)

    assert await stack.fleet.workers.clear_dead(process.is_alive) == 1
    assert await names(stack) == {live.decode()}


async def test_a_worker_of_an_earlier_version_is_known_by_its_machine(stack: Stack) -> None:
    """It announces no identity of its process; earlier readers find ours in the same way."""
    await stack.start_worker()
    (view,) = await stack.fleet.workers.list()
    client = stack.fleet.scripts.client
    announced = orjson.loads(await client.hget(keys.PROCESSES, field(view)) or b"")
    sign_of_life = announced.pop("identity").encode()
    del announced["hostname"]
    assert await client.get(keys.worker(view.host, view.pid)) == sign_of_life
    await client.hset(keys.PROCESSES, field(view), orjson.dumps(announced))

    assert [each.is_ours for each in await stack.fleet.workers.list()] == [True]


async def test_a_live_worker_stays_when_one_with_its_host_id_and_process_id_is_killed(
    stack: Stack,
) -> None:
    """Two containers can share a home, and each has its own pid namespace."""
    await stack.start_worker()
    (view,) = await stack.fleet.workers.list()
    with Redis(unix_socket_path=str(stack.redis.socket)) as redis:
        (live,) = redis.smembers("rq:workers")
        redis.hset("rq:worker:b", mapping={**redis.hgetall(live), b"hostname": b"container-b"})
        redis.sadd("rq:workers", "rq:worker:b")
        announced = orjson.loads(redis.hget(keys.PROCESSES, field(view)) or b"")
        announced |= {"hostname": "container-b", "identity": announced["identity"] + "1"}
        redis.hset(keys.PROCESSES, field(view), orjson.dumps(announced))
        redis.set(keys.worker("container-b", view.pid), announced["identity"])

    assert await stack.fleet.workers.clear_dead(process.is_alive) == 1

    assert await names(stack) == {live.decode()}
    assert [each.is_ours for each in await stack.fleet.workers.list()] == [True]


async def test_a_beat_of_another_form_ends_neither_the_worker_nor_the_sweep(stack: Stack) -> None:
    """A worker of an older version, beside a newer sweeper, or anybody with access to Redis."""
    await stack.start_worker()
    client = stack.fleet.scripts.client
    (view,) = await stack.fleet.workers.list()
    announced = orjson.loads(await client.hget(keys.PROCESSES, field(view)) or b"")
    for beat in ("8c6a1c1e-boot", "pid x", ""):
        strange = orjson.dumps({**announced, "identity": beat})
        await client.hset(keys.PROCESSES, field(view), strange)

        assert await stack.fleet.workers.clear_dead(process.is_alive) == 0
        assert [each.is_ours for each in await stack.fleet.workers.list()] == [False]
