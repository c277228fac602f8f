"""rq-dashboard shows the fleet, and nothing of what people write."""

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

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


@pytest.fixture
def dashboard(stack: Stack) -> Iterator[Dashboard]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    argv = [sys.executable, "-m", "workers.dashboard", "--port", str(port)]
    log = (stack.home.logs / "dashboard.log").open("wb")
    with log, subprocess.Popen(argv, env=stack.env(), stdout=log, stderr=log) as process:
        page = Dashboard(port)
        eventually_sync(page.answers)
        yield page
        process.terminate()


async def test_it_shows_queues_workers_and_jobs_readably(
    stack: Stack, dashboard: Dashboard
) -> None:
    worker = await stack.start_worker()
    running = await stack.append("slow", from_="bob")
    await stack.reached(running, "output")
    await stack.append("a very secret sentence", from_="carol")

    queues = {queue["name"]: queue for queue in dashboard.get("/0/data/queues.json")["queues"]}
    assert queues["agents"]["count"] == 1

    async def busy() -> Any:
        workers = dashboard.get("/0/data/workers.json")["workers"]
        return [each for each in workers if each["state"] == "busy"]

    (busy_worker,) = await eventually(busy)
    assert "main/test/default/chat-1:bob:_" in json.dumps(busy_worker)
    assert worker.poll() is None

    (waiting,) = dashboard.get("/0/data/jobs/agents/queued/8/asc/1.json")["jobs"]
    assert waiting["description"] == "main/test/default/chat-1:carol:_"
    job = dashboard.get(f"/0/data/job/{waiting['id']}.json")
    assert job["status"] == "queued"
    for page in ("/0/view/queues", "/0/view/workers", "/0/view/jobs"):
        assert "<html" in dashboard.get(page)
    assert "secret" not in dashboard.seen
    await stack.fleet.sessions.stop(running.session.sid)
