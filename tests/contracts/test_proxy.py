"""Agents behind a proxy: their calls of RemoteClaw's tools never go there."""

import copy
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from remoteclaw.runtimes import CLIS
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.doors import gateway_process
from tests.support.forwarding import MODEL_HOST, ForwardProxy
from tests.support.stack import Stack, said


@pytest.mark.thorough("http_proxy", "::1", "opencode", "gemini", "claude")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy"])
@pytest.mark.parametrize("name", CLIS)
async def test_calls_of_the_gateway_bypass_a_proxy_and_those_of_the_model_do_not(
    name: str, variable: str, host: str, stack: Stack, model_server: ModelServerProcess
) -> None:
    """The model is at a name that only the proxy knows."""
    model, port = copy.copy(model_server), urlsplit(model_server.url).port
    assert port
    model.url = f"http://{MODEL_HOST}:{port}"
    cli = replace(required(name, model_server), model=model)
    proxy = ForwardProxy(port)
    async with proxy.running():
        stack.configure(cli.config())
        async with gateway_process(stack, REMOTECLAW__GATEWAY__HOST=host):
            await stack.start_worker(**{variable: proxy.url})
            reply = await stack.ask("TOOL:sessions_list:{}")

    assert '"isSelf":true' in reply.replace(" ", "").replace("\\", ""), reply
    assert MODEL_HOST in proxy.targets
    assert not {"127.0.0.1", "::1", "localhost"} & set(proxy.targets)
    assert not [head for head in proxy.heads if "rca_" in head]


@pytest.mark.thorough("gemini", "opencode", "claude")
@pytest.mark.parametrize("name", CLIS)
async def test_an_agent_that_cannot_reach_its_tools_says_so_once(
    name: str, stack: Stack, model_server: ModelServerProcess
) -> None:
    """At the gateway's address is a program that refuses all calls, as a proxy would."""
    cli = required(name, model_server)
    stack.configure(cli.config(warm_s=0))  # a new agent for each turn
    await stack.start_worker()
    refusing = ForwardProxy()
    async with refusing.running():
        async with stack.fleet.gateways.announced(stack.home.host_id, refusing.url):
            lost = [await asked(stack), await asked(stack)]
        async with gateway_process(stack):
            reached = await asked(stack)
        async with stack.fleet.gateways.announced(stack.home.host_id, refusing.url):
            lost_again = await asked(stack)

    notice = f"(main works without RemoteClaw's tools, which {name} could not reach"
    assert notice in lost[0]
    assert "`remoteclaw doctor` checks the gateway" in lost[0]
    assert notice not in lost[1] + reached
    assert notice in lost_again


async def asked(stack: Stack) -> str:
    """Send a message, and return the reply once the worker has released the session."""
    accepted = await stack.append("SAY:fine")
    reply = said(await stack.outcome(accepted))
    await stack.until_idle(accepted)
    return reply
