"""Anyone who can write to Redis can queue any job: workers run only hints."""

import itertools
import os
import pickle
import uuid
import zlib
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Callback, Queue
from rq.job import Job
from rq.serializers import DefaultSerializer, JSONSerializer
from rq.webhook import Webhook

from remoteclaw.fleet.wake import HintSerializer
from remoteclaw.host.locks import locked
from tests.support.bridges import script
from tests.support.command import RQ, run_program
from tests.support.stack import Stack
from tests.support.waiting import eventually

SID = "0" * 32


class Forger:
    """An attacker with access to Redis."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        self.redis = Redis(unix_socket_path=str(stack.redis.socket))
        self.trap = directory / "trapped"

    def enqueue(self, *, serializer: Any = HintSerializer, **options: Any) -> Job:
        queue = Queue("agents", connection=self.redis, serializer=serializer)
        options = {"func": "workers.jobs.drain", "args": (SID,), **options}
        return queue.enqueue_call(**options)

    def raw(self, data: bytes, **fields: bytes | str) -> None:
        """Enqueue a job whose hash is written by hand."""
        job_id = uuid.uuid4().hex
        usual: dict[str, Any] = {"created_at": "2026-01-01T00:00:00.0Z", "status": "queued"}
        hash_: dict[Any, Any] = {**usual, "origin": "agents", "data": data, **fields}
        self.redis.hset(f"rq:job:{job_id}", mapping=hash_)
        self.redis.rpush("rq:queue:agents", job_id)


class Bomb:
    """A pickle that runs a command when it is read."""

    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.trap}",)


#: The data of a hint.
HINT = HintSerializer.dumps(("workers.jobs.drain", None, (SID,), {}))


async def test_forged_jobs_are_refused_and_logged(stack: Stack, directory: Path) -> None:
    worker = await stack.start_worker()
    forger = Forger(stack, directory)
    touch = f"touch {forger.trap}"
    code = f"open({str(forger.trap)!r}, 'w')"

    calls: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
        ("os.system", (touch,), {}),
        ("exec", (code,), {}),
        ("subprocess.getoutput", (touch,), {}),
        ("workers.jobs._drain", (SID,), {}),
        ("workers.jobs.drain", ("../../etc/passwd",), {}),
        ("workers.jobs.drain", (SID, "more"), {}),
        ("workers.jobs.drain", (), {"sid": SID}),
        ("workers.jobs.drain", (Bomb(forger.trap),), {}),
    )
    for function, arguments, keywords in calls:
        forger.enqueue(func=function, args=arguments, kwargs=keywords, serializer=DefaultSerializer)
    forger.enqueue(serializer=JSONSerializer)
    bomb = pickle.dumps(Bomb(forger.trap))
    for data in (bomb, HINT + bomb, bomb + HINT, HINT[:-1] + bomb, HINT[:-1], HINT + b"\n", b""):
        forger.raw(zlib.compress(data))
    forger.raw(bomb)
    forger.raw(zlib.compress(HINT.replace(b"drain", b"_rain")))
    forger.raw(zlib.compress(HINT.replace(b"0", b"O")))
    forger.raw(zlib.compress(b"(" * 5_000_000))
    forger.raw(b"\xff\xfe")
    forger.raw(zlib.compress(HINT), status="no such status")
    forger.raw(zlib.compress(HINT), timeout="never", enqueued_at="yesterday")
    forger.redis.set("rq:job:not-a-hash", "x")
    forger.redis.rpush("rq:queue:agents", "not-a-hash", "no-such-job")

    reply = await stack.ask("hello")

    assert "demo agent" in reply
    assert not forger.trap.exists()
    assert worker.poll() is None
    log = stack.worker_logs()
    assert log.count("its data is not a hint's") == len(calls) + 13
    assert log.count("it can't be read") == 2
    assert "its key is not a hash" in log
    assert "Traceback" not in log


async def test_a_hint_with_a_callback_or_a_webhook_is_refused(
    stack: Stack, directory: Path
) -> None:
    await stack.start_worker()
    forger = Forger(stack, directory)
    for number, moment in enumerate(("on_success", "on_failure", "on_stopped"), start=1):
        forger.enqueue(**{moment: Callback("os.abort")})
        await eventually(
            lambda: stack.worker_logs().count("was refused: it has") == number  # noqa: B023
        )

    forger.enqueue(webhooks=[Webhook("http://127.0.0.1:9/", "finished")])

    await eventually(lambda: "it has webhooks" in stack.worker_logs())
    assert "demo agent" in await stack.ask("hello")


async def test_an_invalid_job_id_does_not_end_the_worker(stack: Stack) -> None:
    worker = await stack.start_worker()

    await stack.fleet.scripts.client.rpush("rq:queue:agents", "not an id")

    await eventually(lambda: "no hint has such an id" in stack.worker_logs())
    assert "demo agent" in await stack.ask("hello")
    assert worker.poll() is None


async def test_a_hint_that_has_run_leaves_no_key_and_is_not_searched_for(
    stack: Stack, directory: Path
) -> None:
    """Its session is unknown, which is harmless. RQ alone would send 14 commands more."""
    await stack.start_worker()
    forger = Forger(stack, directory)
    with forger.redis.monitor() as monitor:  # type: ignore[no-untyped-call]
        job = forger.enqueue(result_ttl=0)
        await eventually(lambda: not Job.exists(job.id, connection=job.connection))
        forger.redis.echo("the end")
        sent = (str(each["command"]) for each in monitor.listen())
        commands = list(itertools.takewhile(lambda each: "the end" not in each, sent))

    assert [
        key for part in ("job", "execution", "wip") for key in forger.redis.keys(f"rq:{part}*")
    ] == []
    assert any(each.startswith(f"DEL rq:job:{job.id}") for each in commands)
    searches = ("HGET rq:job:", "HGETALL rq:execution", "ZRANGE rq:executions")
    assert [each for each in commands if each.startswith(searches)] == []
    assert "refused" not in stack.worker_logs()


async def test_no_text_of_a_message_reaches_rq_or_a_log(stack: Stack, directory: Path) -> None:
    quoting = "while True:\n    say(type='done', error='I failed at: ' + turn()['prompt'])"
    stack.configure({"runtime": "demo", "command": list(script(directory, quoting))})
    await stack.start_worker()
    redis = Redis(unix_socket_path=str(stack.redis.socket))
    outcome = await stack.outcome(await stack.append("a very secret sentence"))
    assert "secret" in str(outcome.error)  # operators can read it in the outcome

    for key in redis.scan_iter("rq:*"):
        assert b"secret" not in (redis.dump(key) or b"")
    assert "secret" not in stack.worker_logs()
    redis.close()


# -- starting a worker ----------------------------------------------------------------------------


def start(stack: Stack, *arguments: str, **env: str) -> tuple[int, str]:
    result = run_program([RQ, "worker", *arguments, "--burst"], env=stack.env(**env))
    return result.returncode, result.stderr.strip()


async def test_a_worker_without_the_job_class_does_not_start(stack: Stack) -> None:
    code, why = start(stack, "-c", "workers.settings")

    assert code == 1
    assert why == (
        "This worker would run any job that is put on its queue (rq.job.Job). Start it as "
        "`remoteclaw worker`, which is `rq worker -c workers.settings -j workers.jobs.DrainJob "
        "--job-monitoring-interval 3600`."
    )


async def test_a_worker_without_the_settings_does_not_start(stack: Stack) -> None:
    code, why = start(stack, "-j", "workers.jobs.DrainJob")

    assert code == 1
    assert why.startswith("This worker would not look at RemoteClaw's Redis and queues.")


async def test_a_worker_with_another_redis_does_not_start(stack: Stack) -> None:
    flags = ("-c", "workers.settings", "-j", "workers.jobs.DrainJob", "-u", "redis://127.0.0.1:1")

    code, why = start(stack, *flags)

    assert code == 1
    assert "would not look at RemoteClaw's Redis" in why


@pytest.mark.parametrize("class_name", ["rq.worker.SpawnWorker", "rq.SimpleWorker"])
async def test_a_worker_that_does_not_fork_does_not_start(stack: Stack, class_name: str) -> None:
    flags = ("-c", "workers.settings", "-j", "workers.jobs.DrainJob", "-w", class_name)

    code, why = start(stack, *flags)

    assert code == 1
    assert why.startswith("This worker would end each turn at its start")


async def test_a_pool_of_workers_does_not_start(stack: Stack) -> None:
    result = run_program([RQ, "worker-pool", "-c", "workers.settings"], env=stack.env())

    assert result.returncode == 1
    assert "Start it as `remoteclaw worker`" in result.stderr


async def test_a_worker_with_other_queues_does_not_start(stack: Stack) -> None:
    code, why = start(stack, "-c", "workers.settings", "-j", "workers.jobs.DrainJob", "other")

    assert code == 1
    assert "would not look at RemoteClaw's Redis and queues" in why


async def test_a_worker_with_an_invalid_configuration_reports_it_in_one_line(stack: Stack) -> None:
    flags = ("-c", "workers.settings", "-j", "workers.jobs.DrainJob")

    code, why = start(stack, *flags, REMOTECLAW__FLEET__WORKRS="3")

    assert code == 1
    assert why.endswith("[fleet] has no key 'workrs'; did you mean 'workers'?")
    assert "\n" not in why


async def test_a_worker_that_cannot_reach_redis_reports_it_in_one_line(stack: Stack) -> None:
    flags = ("-c", "workers.settings", "-j", "workers.jobs.DrainJob")

    code, why = start(stack, *flags, REMOTECLAW__REDIS__URL="redis://127.0.0.1:1")

    assert code == 1
    assert why.startswith("The Redis at redis://127.0.0.1:1 can't be reached")
    assert "\n" not in why


async def test_a_worker_ends_that_gets_sigterm_while_it_takes_a_hint(stack: Stack) -> None:
    """RQ's handler raises an exception then, which the check of the hint must not swallow."""
    worker = await stack.start_worker()
    file = stack.home.config_file

    def waits() -> bool:
        locks = Path("/proc/locks").read_text().splitlines()
        return any("->" in line and f" {worker.pid} " in line for line in locks)

    with locked(stack.home.path / ".lock"):  # the worker waits for it, to keep the changed file
        file.write_text(f"{file.read_text()}\n# changed\n")
        await stack.append("hello")
        await eventually(waits)
        worker.terminate()

        await eventually(lambda: worker.poll() is not None)
    assert "was refused" not in stack.worker_logs()
