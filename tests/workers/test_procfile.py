"""A fleet under honcho, which ends all its processes when one of them ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bridges import script
from tests.support.command import ROOT
from tests.support.processes import children
from tests.support.stack import Stack, said
from tests.support.waiting import HANG_S, eventually

HONCHO = [sys.executable, "-m", "honcho", "-f", "Procfile", "start"]


@pytest.fixture
def honcho(stack: Stack) -> Iterator["subprocess.Popen[bytes]"]:
    """honcho with the repository's Procfile, on the stack's Redis."""
    stack.configure(gateway={"port": 0})
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = stack.env(PATH=path, REMOTECLAW__REDIS__URL=stack.redis.url)
    log = stack.home.logs / "honcho.log"
    with log.open("wb") as output:
        process = subprocess.Popen(HONCHO, cwd=ROOT, env=env, stdout=output, stderr=output)
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) is not None


async def test_a_fleet_under_honcho_outlives_a_redis_that_takes_no_writes(
    stack: Stack, honcho: "subprocess.Popen[bytes]"
) -> None:
    """A failover makes Redis read-only for some seconds, and a stock worker then ends itself."""
    log, redis = stack.home.logs / "honcho.log", stack.fleet.scripts.client

    async def worker() -> int | None:
        assert honcho.poll() is None, log.read_text()
        return next((view.pid for view in await stack.fleet.workers.list()), None)

    first = await eventually(worker)
    accepted = await stack.append("hello")
    assert await stack.outcome(accepted)
    await stack.until_idle(accepted)
    await redis.replicaof("127.0.0.1", 1)
    await eventually(lambda: "quitting" in log.read_text())
    await redis.replicaof("no", "one")

    async def next_worker() -> bool:
        return await worker() not in (None, first)

    await eventually(next_worker)
    assert await stack.ask("hello again")
    assert len(list(children(honcho.pid))) >= 4


async def test_a_turn_outlives_honcho_which_kills_its_processes_after_five_seconds(
    stack: Stack, honcho: "subprocess.Popen[bytes]", directory: Path
) -> None:
    go = directory / "go"
    body = f"turn(); say(type='text', text='slow')\nwhile not os.path.exists({str(go)!r}):\n"
    body += "    time.sleep(0.005)\nsay(type='done')"
    stack.configure({"runtime": "demo", "command": list(script(directory, body))})
    accepted = await stack.append("hello")
    await stack.reached(accepted, "output")

    honcho.send_signal(signal.SIGTERM)
    assert honcho.wait(HANG_S) is not None
    go.touch()

    assert said(await stack.outcome(accepted)) == "slow"
    steps = (await stack.outcome_so_far(accepted)).steps
    assert {step.attempt for step in steps if step.attempt} == {1}
