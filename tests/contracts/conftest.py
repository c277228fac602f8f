"""Fixtures for the contracts that every agent CLI and every chat platform has to meet."""

from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from remoteclaw.config.home import Home
from remoteclaw.runtimes import CLIS
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.bridged import Open, conversation
from tests.support.processes import marked_processes
from tests.support.receiver import Receiver
from tests.support.stack import Stack
from tests.support.waiting import eventually
from tests.support.worlds.running import WORLDS, entered
from tests.support.worlds.world import World


@pytest.fixture(params=CLIS)
def cli(request: pytest.FixtureRequest, model_server: ModelServerProcess) -> AgentCli:
    """Each of the CLIs in turn."""
    return required(request.param, model_server)


@pytest.fixture
async def opened(cli: AgentCli, home: Home) -> AsyncIterator[Open]:
    """A function that opens a conversation with the CLI. At the end, no process may be left."""
    yield partial(conversation, home, cli)
    await eventually(lambda: not marked_processes(home))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A webhook's program."""
    with Receiver.running("0123456789abcdef") as running:
        yield running


@pytest.fixture(params=WORLDS, ids=lambda made: str(made.provider))
async def world(request: pytest.FixtureRequest, stack: Stack) -> AsyncIterator[World]:
    """Each of the chat platforms in turn, with its account at work."""
    if why := request.param.lacks.get(request.node.originalname):
        pytest.skip(why)
    made: World = request.param(stack, request)
    async with entered(made, stack):
        yield made
