"""rq-dashboard and `rq info` show the fleet, and nothing of what people write."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.support.command import REMOTECLAW, RQ, run_program, start_program
from tests.support.processes import children
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually, eventually_sync


class Dashboard:
    """rq-dashboard, as a browser sees it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.seen = ""

    def get(self, path: str) -> Any:
        """Return a page's data."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=HANG_S) as page:
            text = page.read().decode()
        self.seen += text
        return json.loads(text) if path.endswith(".json") else text

    def answers(self) -> bool:
        try:
            return bool(self.get("/0/data/queues.json"))
        except (urllib.error.URLError, OSError):
            return False

    def status(self, path: str, method: str = "GET", **headers: str) -> int:
        """Return the status of a request such as a stranger's web page can send."""
        url = f"http://127.0.0.1:{self._port}{path}"
        request = urllib.request.Request(url, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            self.seen += error.read().decode()
            return error.code


@contextlib.contextmanager
def running(stack: Stack, *argv: str) -> Iterator[Dashboard]:
    """Run a dashboard as a process of its own, until it is left."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    log = (stack.home.logs / "dashboard.log").open("wb")
    argv = (*argv, "--port", str(port))
    with log, subprocess.Popen(argv, env=stack.env(), stdout=log, stderr=log) as process:
        page = Dashboard(port)
        eventually_sync(page.answers)
        try:
            yield page
        finally:
            process.terminate()


@pytest.fixture
def dashboard(stack: Stack) -> Iterator[Dashboard]:
    with running(stack, sys.executable, "-m", "workers.dashboard") as page:
        yield page


@pytest.fixture(params=[(), ("--json",), ("--show-full-args",)], ids=lambda flags: str(*flags))
def stock_dashboard(stack: Stack, request: pytest.FixtureRequest) -> Iterator[Dashboard]:
    """rq-dashboard as people start it who know only RQ."""
    program = str(Path(sys.executable).with_name("rq-dashboard"))
    with running(stack, program, "--redis-url", stack.redis.url, *request.param) as page:
        yield page


@contextlib.contextmanager
def running_sweeper(stack: Stack) -> Iterator[None]:
    sweeper = start_program(
        (REMOTECLAW, "sweep"), env=stack.env(), log=stack.home.logs / "sweep.log"
    )
    try:
        yield
    finally:
        sweeper.kill()
        sweeper.wait()


def rq_info(stack: Stack, *flags: str) -> str:
    """Return the output of stock `rq info`."""
    result = run_program([RQ, "info", "--raw", "--url", stack.redis.url, *flags], env=stack.env())
    assert result.returncode == 0, result.stderr
    return result.stdout


async def test_the_dashboard_shows_queues_workers_and_jobs_but_no_personal_data(
    stack: Stack, dashboard: Dashboard
) -> None:
    worker = await stack.start_worker()
    running = await stack.append("slow", from_="bob")
    await stack.reached(running, "output")
    accepted = await stack.append("a very secret sentence", from_="carol")

    queues = {queue["name"]: queue for queue in dashboard.get("/0/data/queues.json")["queues"]}
    assert queues["agents"]["count"] == 1

    async def busy() -> Any:
        workers = dashboard.get("/0/data/workers.json")["workers"]
        return [each for each in workers if each["state"] == "busy"]

    (busy_worker,) = await eventually(busy)
    assert f"main/test/{running.session.sid[:8]}" in json.dumps(busy_worker)
    assert worker.poll() is None

    (waiting,) = dashboard.get("/0/data/jobs/agents/queued/8/asc/1.json")["jobs"]
    assert waiting["description"] == f"main/test/{accepted.session.sid[:8]}"
    job = dashboard.get(f"/0/data/job/{waiting['id']}.json")
    assert job["status"] == "queued"
    for page in ("/0/view/queues", "/0/view/workers", "/0/view/jobs"):
        assert "<html" in dashboard.get(page)
    for private in ("secret", "carol", "bob", "chat-1", running.session.sid, accepted.session.sid):
        assert private not in dashboard.seen
    await stack.fleet.sessions.stop(running.session.sid)


async def test_the_dashboard_refuses_foreign_host_names_and_origins(dashboard: Dashboard) -> None:
    """The requests use a host name that a stranger points here, or come from another origin."""
    for headers in (
        {"Host": "evil.example"},
        {"Host": "evil.example:9181"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ):
        for path in ("/", "/0/data/workers.json", "/static/x", "/nothing"):
            assert dashboard.status(path, **headers) == 403, (headers, path)
    for name in ("localhost", "127.0.0.1:9181", "[::1]", "LOCALHOST"):
        assert dashboard.status("/", Host=name) == 200, name


async def test_the_dashboard_is_read_only(stack: Stack, dashboard: Dashboard) -> None:
    await stack.append("hello")
    with Redis(unix_socket_path=str(stack.redis.socket)) as redis:
        (job,) = (key.decode().removeprefix("rq:job:") for key in redis.keys("rq:job:*"))
        for failed in (False, True):
            if failed:
                redis.zadd("rq:failed:agents", {job: 2**40})
                redis.lrem("rq:queue:agents", 0, job)
            before = {key: redis.dump(key) for key in redis.keys("rq:*")}

            for path in (
                f"/job/{job}/delete",
                f"/job/{job}/requeue",
                "/requeue/agents",
                "/queue/agents/queued/empty",
                "/queue/agents/failed/empty",
                "/queue/agents/compact",
            ):
                for method in ("POST", "PUT", "DELETE", "OPTIONS", "GET"):
                    assert dashboard.status(path, method) in (403, 405), (method, path)
            assert dashboard.status("/requeue/agents", "HEAD") == 403
            assert {key: redis.dump(key) for key in redis.keys("rq:*")} == before
    page = dashboard.get("/0/view/jobs")
    assert "Empty queue" not in page


# -- stock views ----------------------------------------------------------------------------------


@pytest.mark.thorough("--json")
async def test_stock_views_name_hints_that_wait_and_hints_that_run(
    stack: Stack, stock_dashboard: Dashboard
) -> None:
    await stack.start_worker()
    running = await stack.append("slow", from_="bob")
    await stack.reached(running, "output")
    waiting = await stack.append("a very secret sentence", from_="carol")

    async def busy() -> Any:
        workers = stock_dashboard.get("/0/data/workers.json")["workers"]
        return [each for each in workers if each["state"] == "busy"]

    (worker,) = await eventually(busy)
    assert running.session.sid[:8] in worker["current_job"]["description"]
    assert worker["current_job"]["call_string"] == f"workers.jobs.drain('{running.session.sid}')"
    for registry, accepted in (("queued", waiting), ("started", running)):
        (job,) = stock_dashboard.get(f"/0/data/jobs/agents/{registry}/8/asc/1.json")["jobs"]
        assert accepted.session.sid[:8] in job["description"]
        assert stock_dashboard.get(f"/0/data/job/{job['id']}.json")["status"] == registry
    for private in ("secret", "carol", "bob", "chat-1"):
        assert private not in stock_dashboard.seen
    info = rq_info(stack)
    assert "queue agents 1, 1 executing" in info
    assert " busy " in info
    await stack.fleet.sessions.stop(running.session.sid)


async def test_stock_views_show_no_killed_worker_while_a_sweeper_runs(stack: Stack) -> None:
    await stack.start_worker()
    await stack.start_worker()
    await stack.reached(await stack.append("slow"), "output")
    assert " busy " in rq_info(stack)
    with running_sweeper(stack):
        for each in stack.workers:
            each.kill()
            each.wait()

        await eventually(lambda: "worker" not in rq_info(stack))

    assert "0 executing, 0 finished, 0 failed" in rq_info(stack)
    with Redis(unix_socket_path=str(stack.redis.socket)) as redis:
        assert redis.keys("rq:exec*") + redis.keys("rq:wip:*") == []


@pytest.mark.thorough("--json")
async def test_stock_views_show_a_hint_whose_work_horse_was_killed(
    stack: Stack, stock_dashboard: Dashboard
) -> None:
    worker = await stack.start_worker()
    running = await stack.append("slow")
    await stack.reached(running, "output")

    for horse in children(worker.pid):
        os.kill(horse, signal.SIGKILL)
    await eventually(lambda: "0 executing, 0 finished, 1 failed" in rq_info(stack))

    (job,) = stock_dashboard.get("/0/data/jobs/agents/failed/8/asc/1.json")["jobs"]
    assert "Work-horse terminated unexpectedly" in job["exc_info"]
    assert worker.poll() is None
