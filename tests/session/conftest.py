"""An agent and a second host that the tests of sessions share."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoteclaw.config.home import Home
from tests.support.bridges import script
from tests.support.conversations import AGENT
from tests.support.stack import Stack


@pytest.fixture
async def agent(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent repeats its message and the earlier ones."""
    stack.agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    stack.configure(stack.agent)
    return stack


@pytest.fixture
async def other(stack: Stack, directory: Path) -> AsyncIterator[Stack]:
    """A second host, with its own state directory and workers, on the Redis of the first one."""
    other = Stack(Home(directory / "other").create())
    other.redis, other.fleet = stack.redis, stack.fleet
    os.mkfifo(other.lifeline)
    other.open_lifeline()
    other.configure()
    yield other
    await other.end_processes()
