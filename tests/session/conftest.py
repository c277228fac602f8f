"""An agent that the tests of sessions share."""

from pathlib import Path

import pytest

from tests.support.bridges import script
from tests.support.conversations import AGENT
from tests.support.stack import Stack


@pytest.fixture
async def agent(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent repeats its message and the earlier ones."""
    stack.agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    stack.configure(stack.agent)
    return stack
