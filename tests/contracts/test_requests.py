"""Permission requests of each agent CLI through real workers: the CLI follows the answers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from remoteclaw.commands.answers import ENDED, answer_request
from remoteclaw.config.load import load_config
from remoteclaw.fleet.requests.request import Request, Verdict
from remoteclaw.runtimes import CLIS
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.stack import Stack, said
from tests.support.waiting import eventually


@pytest.fixture(params=CLIS)
async def agent(
    request: pytest.FixtureRequest, stack: Stack, model_server: ModelServerProcess
) -> AsyncIterator[Stack]:
    """A stack whose agent is each of the CLIs in turn, with permissions that people give."""
    cli: AgentCli = required(request.param, model_server)
    stack.configure(cli.config(permissions="ask"))
    await stack.start_worker()
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    yield stack
    sweeping.cancel()


async def next_request(stack: Stack) -> Request:
    async def find() -> Request | None:
        return next((r for r in await stack.fleet.requests.waiting() if r.state == "open"), None)

    request: Request = await eventually(find)
    return request


async def answer(stack: Stack, request: Request, verdict: Verdict, words: str = "") -> str:
    reply = await answer_request(
        stack.fleet.requests,
        stack.home,
        load_config(stack.home.config_file, {}),
        request,
        verdict,
        by="test:alice",
        name="Alice",
        is_owner=True,
        words=words,
    )
    return reply.text


@pytest.mark.thorough("opencode", "gemini", "claude")
async def test_the_agent_does_what_people_answer_to_its_requests(agent: Stack) -> None:
    once = await agent.append("SHELL:echo first >> made")
    request = await next_request(agent)
    assert "echo first >> made" in request.what
    await answer(agent, request, "once")
    await agent.outcome(once)

    denied = await agent.append("SHELL:echo first >> made")
    await answer(agent, await next_request(agent), "deny", "not today")
    reply = said(await agent.outcome(denied))
    later_reply = said(await agent.outcome(await agent.append("ECHO")))

    always = await agent.append("SHELL:echo second >> made")
    await answer(agent, await next_request(agent), "conversation")
    await agent.outcome(always)
    await agent.until_idle(always)
    worker = agent.workers.pop()
    worker.kill()
    worker.wait()
    await agent.start_worker()
    again = await agent.append("SHELL:echo second >> made")
    await agent.outcome(again)

    stopped = await agent.append("SHELL:echo third >> made")
    request = await next_request(agent)
    await agent.fleet.sessions.stop(stopped.session.sid)
    assert await answer(agent, request, "once") == ENDED["void"]
    assert (await agent.outcome(stopped)).status == "stopped"

    runtime = load_config(agent.home.config_file, {}).agents["main"].runtime
    # The other CLIs' protocols have no field for a reason: the next message tells them.
    assert ("not today" in reply) == (runtime == "claude")
    assert ("not today" in later_reply) == (runtime != "claude")
    (made,) = agent.home.path.rglob("made")
    assert made.read_text().split() == ["first", "second", "second"]
