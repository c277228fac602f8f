"""How RQ reads and runs a job; `workers.jobs.DrainJob` relies on it."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from rq.job import Job

from tests.upstream.plain import ROOT, PlainRq

RECORDER = ("-j", "tests.upstream.jobs.Recorder")


def recorded(rq: PlainRq) -> list[tuple[int, str]]:
    """Return the records of the class, each with the process that has written it."""
    lines = (rq.directory / "record").read_text().splitlines()
    return [(int(pid), text) for pid, _, text in (line.partition(" ") for line in lines)]


# -- reading --------------------------------------------------------------------------------------


async def test_a_worker_reads_each_job_once_with_the_job_class_of_its_flags(
    rq: PlainRq,
) -> None:
    """workers/jobs.py: the job that `refresh` and `restore` have checked is the one that runs."""
    rq.enqueue("note", "one")

    log = await rq.work(*rq.flags(*RECORDER))

    (refreshed, restored, performed) = recorded(rq)
    assert refreshed[1] == "refresh"
    assert restored == (refreshed[0], "restore bytes")  # names and values
    assert performed[1] == "perform one"
    assert performed[0] != restored[0]
    assert "Traceback" not in log


async def test_a_job_runs_perform_and_its_function_is_never_looked_up(
    rq: PlainRq,
) -> None:
    """workers/jobs.py: `perform` runs the drain, whatever the job's data names."""
    job = rq.queue.enqueue_call("no_such_module.nothing", ("one",))

    log = await rq.work(*rq.flags(*RECORDER))

    assert recorded(rq)[-1][1] == "perform one"
    assert job.get_status() == "finished"
    assert "Traceback" not in log


async def test_the_job_class_decides_the_serializer_whatever_the_flags(
    rq: PlainRq,
) -> None:
    """workers/jobs.py: workers are started without `-S`, which would mean pickle."""
    rq.enqueue("note", "one")

    await rq.work(*rq.flags("-S", "pickle", *RECORDER))

    assert recorded(rq)[-1][1] == "perform one"


async def test_a_worker_logs_the_description_that_the_job_class_has_set(rq: PlainRq) -> None:
    """workers/jobs.py: the description in the hash is not logged."""
    rq.enqueue("note", "one", description="as somebody says")

    log = await rq.work(*rq.flags(*RECORDER))

    assert "q: as its class says" in log
    assert "as somebody says" not in log


async def test_a_job_whose_class_raises_no_such_job_is_skipped(rq: PlainRq) -> None:
    """workers/jobs.py: `NoSuchJobError` is how a job is refused."""
    refused = rq.enqueue("note", "one", description="not there")
    rq.enqueue("note", "two")

    log = await rq.work(*rq.flags(*RECORDER))

    assert [text for _, text in recorded(rq) if text.startswith("perform")] == ["perform two"]
    assert refused.get_status() == "queued"
    assert "Traceback" not in log


async def test_a_refused_job_stays_in_a_list_until_a_worker_starts(rq: PlainRq) -> None:
    """workers/jobs.py: refused jobs do not pile up."""
    refused = rq.enqueue("note", "one", description="not there")
    await rq.work(*rq.flags(*RECORDER))
    assert rq.redis.lrange("rq:queue:q:intermediate", 0, -1) == [refused.id.encode()]

    await rq.work(*rq.flags(*RECORDER))

    assert rq.redis.llen("rq:queue:q:intermediate") == 0


async def test_any_other_error_while_a_job_is_read_ends_the_worker(rq: PlainRq) -> None:
    """workers/jobs.py: why every error in `restore` becomes `NoSuchJobError`."""
    worker = await rq.start_worker(*rq.flags(*RECORDER))

    rq.enqueue("note", "one", description="broken")

    await worker.ended()
    assert "ValueError: this can't be read" in worker.log.read_text()


def test_the_job_class_can_override_the_timeout_of_the_hash(rq: PlainRq) -> None:
    """workers/jobs.py: `restore` gets `timeout: -1`, whatever is in the hash."""
    job = rq.enqueue("note", "one", timeout=5)
    fields: Any = rq.redis.hgetall(job.key)

    job.restore({**fields, b"timeout": b"-1"})

    assert job.timeout == -1


# -- what a hash can make RQ do -------------------------------------------------------------------

#: Fields that RQ only keeps or shows, for a while.
#: (It decompresses `exc_info`, however large that becomes.)
CONSIDERED = frozenset(
    """
    data created_at origin worker_name description enqueued_at started_at ended_at last_heartbeat
    group_id timeout result_ttl failure_ttl ttl status exc_info
    success_callback_timeout failure_callback_timeout stopped_callback_timeout
    allow_dependency_failures enqueue_at_front enqueue_at_front_on_retry
    number_of_retries retry_intervals repeat_intervals
    """.split()
)


def test_rq_reads_only_the_fields_that_we_have_considered() -> None:
    """workers/jobs.py: `_FORBIDDEN` has every field that makes RQ do something."""
    fields = set(fields_read_by(Job.restore))

    assert fields == CONSIDERED | forbidden()


def fields_read_by(function: Any) -> Iterator[str]:
    """Yield each name that a function looks up in `obj`."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        match node:
            case (
                ast.Subscript(value=ast.Name(id="obj"), slice=ast.Constant(value=str(name)))
                | ast.Call(
                    func=ast.Attribute(value=ast.Name(id="obj"), attr="get"),
                    args=[ast.Constant(value=str(name)), *_],
                )
                | ast.Compare(left=ast.Constant(value=str(name)), comparators=[ast.Name(id="obj")])
            ):
                yield name


def forbidden() -> frozenset[str]:
    """Return `workers.jobs._FORBIDDEN`; importing that would need a configured worker."""
    for node in ast.parse((ROOT / "workers" / "jobs.py").read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="_FORBIDDEN")], value=value):
                return frozenset(name.decode() for name in ast.literal_eval(value))
    raise AssertionError("workers/jobs.py has no _FORBIDDEN")
