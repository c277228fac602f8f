"""Fixtures of the chat tools' tests: a platform, and a turn whose agent calls tools."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remoteclaw.gateway.methods.messages import HANDLERS
from tests.support import tasks
from tests.support.platform import Platform
from tests.support.stack import Stack
from tests.support.turns import Turn, begin_turn
from tests.support.waiting import HANG_S


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend the time limits of adapters for busy machines; tests of timeouts set their own."""
    monkeypatch.setattr("remoteclaw.gateway.send.RECEIPT_S", HANG_S)
    monkeypatch.setattr("remoteclaw.gateway.methods.messages.BEGIN_S", HANG_S)
    monkeypatch.setattr("remoteclaw.gateway.methods.messages.OPERATION_S", HANG_S)
    monkeypatch.setattr("remoteclaw.channels.relay.OPERATE_S", HANG_S)


@pytest.fixture
def platform(directory: Path, patient: None) -> Iterator[Platform]:
    """A platform without an adapter."""
    platform = Platform(directory / "platform")
    yield platform
    platform.end()


@pytest.fixture
async def served(stack: Stack, platform: Platform) -> AsyncIterator[Platform]:
    """A platform with a running adapter."""
    async with platform.served(stack.fleet):
        yield platform


@pytest.fixture
async def turn(stack: Stack) -> Turn:
    """A turn with the chat tools."""
    return await begin_turn(stack, HANDLERS)


@pytest.fixture
async def parent(stack: Stack) -> Turn:
    """A turn that a person in a chat has started, with the tools for tasks."""
    return await begin_turn(stack, tasks.HANDLERS)
