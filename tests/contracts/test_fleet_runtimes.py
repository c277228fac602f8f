"""Every agent CLI behind real workers: begun again after a crash."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from remoteclaw.runtimes import CLIS
from remoteclaw.session.notices import SECOND_TRY
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.processes import children, is_alive
from tests.support.stack import Stack, said
from tests.support.waiting import eventually


@pytest.fixture(params=CLIS)
async def agent(
    request: pytest.FixtureRequest, stack: Stack, model_server: ModelServerProcess
) -> AsyncIterator[Stack]:
    """A stack whose agent is each of the CLIs in turn, with a short lease and a sweeper."""
    cli: AgentCli = required(request.param, model_server)
    stack.configure(cli.config(permissions="auto"), lease_s=3)
    await stack.fleet.aclose()
    stack.reopen()
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    yield stack
    sweeping.cancel()


def pid_of(detail: str) -> int:
    return int(detail.rpartition(" ")[2])


async def test_a_worker_that_is_killed_in_a_turn(agent: Stack) -> None:
    worker = await agent.start_worker()
    accepted = await agent.append("DRIP:40:50")
    await agent.reached(accepted, "output")
    pid = pid_of(await agent.reached(accepted, "spawned"))

    (horse,) = children(worker.pid)
    os.kill(horse, signal.SIGKILL)

    await eventually(lambda: not is_alive(pid))  # with its holder
    outcome = await agent.outcome(accepted)
    assert outcome.status == "done"
    assert said(outcome).startswith(SECOND_TRY)
    assert said(outcome).endswith("w40")
    assert said(outcome).count("w40") == 1
