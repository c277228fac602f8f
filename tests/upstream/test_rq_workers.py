"""A stock worker: the settings that it reads, its registration, and its end."""

import json
import os
import signal
import socket
from typing import Any, cast

import pytest

from tests.support.processes import is_alive
from tests.support.waiting import eventually
from tests.upstream.plain import PlainRq

SETTINGS = "tests.upstream.settings"


def settings_read(rq: PlainRq) -> list[dict[str, Any]]:
    """Return a record for each time that the settings were read."""
    path = rq.directory / "settings-read"
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- settings -------------------------------------------------------------------------------------


async def test_names_in_capitals_are_taken_from_the_settings_module(rq: PlainRq) -> None:
    """workers/settings.py: QUEUES, REDIS_URL and DICT_CONFIG."""
    worker = await rq.start_worker("-c", SETTINGS, "-S", "json")

    assert rq.redis.hget(worker.key, "queues") == b"from-settings"


async def test_the_logging_of_the_settings_applies_in_a_work_horse(rq: PlainRq) -> None:
    """workers/settings.py: DICT_CONFIG logs our own lines; RQ's logging does not undo it."""
    rq.enqueue("speak", "hello")

    await rq.work("-c", SETTINGS, "-S", "json", "q")

    assert (rq.directory / "spoken").read_text() == "hello\n"


async def test_settings_are_read_once_by_the_worker_and_inherited_by_work_horses(
    rq: PlainRq,
) -> None:
    """workers/settings.py: WORKER_PID is the worker's, and loaded modules survive a fork."""
    rq.enqueue("describe")
    rq.enqueue("describe")
    worker = await rq.start_worker("-c", SETTINGS, "-S", "json", "q")

    await eventually(lambda: len(rq.noted()) == 2)

    assert [read["pid"] for read in settings_read(rq)] == [worker.process.pid]
    horses = [json.loads(line) for line in rq.noted()]
    assert [horse["knows_settings"] for horse in horses] == [True, True]
    assert horses[0]["pid"] != horses[1]["pid"]


async def test_a_work_horse_is_its_workers_child_and_leads_its_own_group(rq: PlainRq) -> None:
    """workers/jobs.py: `die_with_parent(WORKER_PID)`; a Ctrl-C for the worker does not reach it."""
    worker = await rq.start_worker()

    rq.enqueue("describe")
    await eventually(rq.noted)

    (horse,) = (json.loads(line) for line in rq.noted())
    assert horse["parent"] == worker.process.pid
    assert horse["group"] == horse["pid"]


@pytest.mark.parametrize("how", ["flags", "environment"])
async def test_the_flags_are_in_clicks_context_while_settings_are_read(
    rq: PlainRq, how: str
) -> None:
    """workers/settings.py: it refuses a worker without the job class, or with another Redis."""
    job_class = "tests.upstream.jobs.Recorder"
    if how == "flags":
        await rq.work("-c", SETTINGS, "-j", job_class, "-u", rq.server.url, "q")
    else:
        env = {"RQ_CONFIG": SETTINGS, "RQ_JOB_CLASS": job_class, "RQ_REDIS_URL": rq.server.url}
        await rq.work("q", **env)

    (read,) = settings_read(rq)
    assert read["command"] == "worker"
    assert read["flags"]["config"] == SETTINGS
    assert read["flags"]["job_class"] == job_class
    assert read["flags"]["url"] == rq.server.url
    assert read["flags"]["queues"] == ["q"]


async def test_a_url_on_the_command_line_wins_over_the_settings(rq: PlainRq) -> None:
    """workers/settings.py: why it refuses a worker that has one."""
    process, log = rq.spawn("-c", SETTINGS, "-u", "unix:///nowhere")

    await eventually(lambda: process.poll() is not None)

    assert "/nowhere" in log.read_text()
    assert rq.redis.dbsize() == 0


async def test_queues_on_the_command_line_win_over_the_settings(rq: PlainRq) -> None:
    """workers/settings.py: why it refuses a worker that has some."""
    worker = await rq.start_worker("-c", SETTINGS, "one", "two")

    assert rq.redis.hget(worker.key, "queues") == b"one,two"


async def test_settings_that_exit_end_the_worker_with_their_message(rq: PlainRq) -> None:
    """workers/settings.py: an unfit Redis or a wrong configuration is one line."""
    process, log = rq.spawn("-c", SETTINGS, UPSTREAM_REFUSED="1")

    assert await eventually(lambda: process.poll() is not None and [process.returncode]) == [1]
    assert log.read_text() == "Refused, in one line.\n"


# -- the registry ---------------------------------------------------------------------------------


async def test_a_worker_is_registered_with_its_pid_host_queues_and_state(rq: PlainRq) -> None:
    """fleet/workers.py: `status`, `doctor` and `up` read the registry."""
    worker = await rq.start_worker(*rq.flags(queues=("q", "another")))

    def fields() -> list[bytes | None]:
        return cast(list[bytes | None], rq.redis.hmget(worker.key, "state", "death"))

    assert rq.redis.smembers("rq:workers") == {worker.key.encode()}
    assert rq.redis.hmget(worker.key, "pid", "hostname", "queues") == [
        str(worker.process.pid).encode(),
        socket.gethostname().encode(),
        b"q,another",
    ]
    assert fields() == [b"idle", None]
    held, _ = await rq.running()
    assert fields() == [b"busy", None]
    held.release()
    await eventually(lambda: fields() == [b"idle", None])


async def test_a_worker_that_ends_leaves_the_registry(rq: PlainRq) -> None:
    """fleet/workers.py: a worker that has ended is not counted."""
    worker = await rq.start_worker()

    worker.process.terminate()
    await worker.ended()

    assert rq.redis.smembers("rq:workers") == set()
    assert rq.redis.hexists(worker.key, "death")


async def test_a_worker_that_is_killed_stays_registered_until_its_key_expires(rq: PlainRq) -> None:
    """fleet/workers.py: "counts as alive" is RQ's view, and may be wrong for eight minutes."""
    worker = await rq.start_worker()

    worker.process.kill()
    await worker.ended()

    assert rq.redis.smembers("rq:workers") == {worker.key.encode()}
    assert rq.redis.hmget(worker.key, "state", "death") == [b"idle", None]
    assert 0 < rq.redis.ttl(worker.key) <= 480


# -- ending ---------------------------------------------------------------------------------------


async def test_an_idle_worker_ends_at_once_when_asked_to(rq: PlainRq) -> None:
    """supervisor.py: SIGTERM, and three seconds later SIGKILL."""
    worker = await rq.start_worker()

    worker.process.terminate()

    # It takes a second when the thread that listens to commands misses the end.
    assert await worker.ended() == 0


async def test_a_busy_worker_that_is_asked_to_end_finishes_its_job_and_takes_no_other(
    rq: PlainRq,
) -> None:
    """supervisor.py: a turn is not cut off by a restart of its worker, if it is given time."""
    worker = await rq.start_worker()
    held, _ = await rq.running()
    rq.enqueue("note")

    worker.process.terminate()
    await eventually(lambda: rq.redis.hexists(worker.key, "shutdown_requested_date"))
    assert worker.process.poll() is None
    held.release()

    assert await worker.ended() == 0
    assert held.job.get_status() == "finished"
    assert rq.noted() == []
    assert rq.redis.llen("rq:queue:q") == 1


async def test_a_busy_worker_that_is_asked_to_end_twice_kills_its_work_horse(rq: PlainRq) -> None:
    """fleet/turns/sweep.py: the job stays "started", so RQ does not repeat it; the sweeper does."""
    worker = await rq.start_worker()
    held, horse = await rq.running()

    def was_noticed_twice() -> bool:
        worker.process.terminate()  # a second SIGTERM within a second of the first is ignored
        return "cold shut down" in worker.log.read_text()

    await eventually(was_noticed_twice)
    await worker.ended()

    assert not is_alive(horse)
    assert held.finished == []
    assert held.job.get_status() == "started"


# -- being killed ---------------------------------------------------------------------------------


async def test_a_work_horse_outlives_a_worker_that_is_killed(rq: PlainRq) -> None:
    """workers/jobs.py: why a drain asks the kernel to die with its worker."""
    worker = await rq.start_worker()
    held, horse = await rq.running()

    worker.process.kill()
    await worker.ended()
    held.release()

    await eventually(lambda: held.finished == [horse])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
async def test_a_worker_continues_at_once_after_a_signal_kills_its_work_horse(
    rq: PlainRq, number: signal.Signals
) -> None:
    """fleet/turns/sweep.py: for RQ the job has failed, so the sweeper repeats the turn."""
    await rq.start_worker()
    held, horse = await rq.running()

    os.kill(horse, number)
    rq.enqueue("note")

    await eventually(rq.noted)
    assert held.job.get_status() == "failed"
    assert held.finished == []


async def test_a_work_horse_ignores_ctrl_c(rq: PlainRq) -> None:
    """supervisor.py: a Ctrl-C that reaches it as well does not cut off the turn."""
    await rq.start_worker()
    held, horse = await rq.running()

    os.kill(horse, signal.SIGINT)
    held.release()

    await eventually(lambda: held.finished == [horse])
    await eventually(lambda: held.job.get_status() == "finished")


# -- without Redis --------------------------------------------------------------------------------


async def test_a_busy_worker_ends_at_a_heartbeat_without_redis_and_leaves_its_work_horse(
    rq: PlainRq,
) -> None:
    """supervisor.py: why workers are restarted; workers/jobs.py: the work-horse ends, too."""
    worker = await rq.start_worker(*rq.flags("--job-monitoring-interval", "1"))
    _, horse = await rq.running()

    rq.server.kill()

    assert await worker.ended() == 1
    assert is_alive(horse)


async def test_an_idle_worker_survives_a_restart_of_redis(rq: PlainRq) -> None:
    """supervisor.py: after a restart of Redis, idle workers need no restart."""
    worker = await rq.start_worker()

    rq.server.kill()
    # The thread that listens to commands logs another line, with 2 seconds.
    await eventually(lambda: "retrying in 1 seconds" in worker.log.read_text())
    rq.server.start()

    rq.enqueue("note")
    await eventually(rq.noted)
    assert worker.process.poll() is None
