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
from tests.support.processes import children, is_alive, marked_processes, parent
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


def goes_on(reply: str) -> bool:
    """Whether an agent knows what was said, or the person that it has only notes of it.

    gemini can't resume, and claude writes a turn down a moment after its answer.
    """
    return "my colour is green" in reply or "but notes of it" in reply


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


async def test_a_holder_that_is_killed_in_a_turn(agent: Stack) -> None:
    """Its tree ends with it, the person hears of it, and the conversation goes on.

    Where it was killed while its agent waited, nothing was lost, and nobody hears of it.
    The command that it runs is shown: each CLI calls its shell in a way of its own.
    """
    await agent.start_worker()
    first = await agent.append("my colour is green SAY:noted", channel_id="alice")
    await agent.outcome(first)
    shown: set[str] = set()

    async def follow() -> None:
        async for live in agent.fleet.replies.live(first.session.sid):
            shown.update(tool["argument"] for tool in live["activity"])

    following = asyncio.create_task(follow())
    accepted = await agent.append("SHELL:touch begun; sleep 60", channel_id="alice")
    await eventually((agent.home.path / "workspaces" / "main" / "begun").exists)
    await agent.reached(accepted, "tool")
    await eventually(lambda: shown)
    following.cancel()
    assert shown == {"touch begun; sleep 60"}
    processes = marked_processes(agent.home)

    os.kill(parent(pid_of(await agent.reached(first, "spawned"))), signal.SIGKILL)

    outcome = await agent.outcome(accepted)
    assert outcome.error is not None
    assert outcome.error["category"] == "died"
    await eventually(lambda: not [pid for pid in processes if is_alive(pid)])
    second = await agent.append("RECALL", channel_id="alice")
    assert goes_on(said(await agent.outcome(second)))

    await agent.until_idle(second)
    pid = pid_of(await agent.reached(second, "spawned"))
    os.kill(parent(pid), signal.SIGKILL)
    third = await agent.append("RECALL", channel_id="alice")

    outcome = await agent.outcome(third)
    assert outcome.status == "done"
    assert goes_on(said(outcome))
    assert pid_of(await agent.reached(third, "spawned")) != pid
    await eventually(lambda: not is_alive(pid))
