"""A person and a channel of the tests' Slack."""

import pytest

from tests.support.slack import SlackWorkspace


@pytest.fixture
def ann(team: SlackWorkspace) -> str:
    """A person."""
    return str(team.person("ann"))


@pytest.fixture
def room(team: SlackWorkspace, ann: str) -> str:
    """A channel with her and the app."""
    return str(team.channel("room", members=[ann]))
