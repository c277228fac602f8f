"""Fixtures for the contract that every agent CLI has to meet."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from remoteclaw.config.home import Home
from remoteclaw.runtimes import CLIS
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.bridged import Open, conversation
from tests.support.processes import marked_processes
from tests.support.waiting import eventually


@pytest.fixture(params=CLIS)
def cli(request: pytest.FixtureRequest, model_server: ModelServerProcess) -> AgentCli:
    """Each of the CLIs in turn."""
    return required(request.param, model_server)


@pytest.fixture
async def opened(cli: AgentCli, home: Home) -> AsyncIterator[Open]:
    """A function that opens a conversation with the CLI. At the end, no process may be left."""
    yield partial(conversation, home, cli)
    await eventually(lambda: not marked_processes(home))
