"""Terminals among the run directories: they are no warm agents, and make no room for any."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoteclaw.clock import boottime
from remoteclaw.config.home import MAX_SOCKET_DIR_BYTES
from remoteclaw.holder.client import HolderClient
from remoteclaw.holder.runs import (
    holders_ended,
    is_terminal,
    make_room,
    remove_dead_runs,
    run_name,
    terminal_run_name,
    terminals,
    warm_agents,
)
from remoteclaw.holder.terminal_client import TerminalClient
from tests.support.holders import FAR, KEY, end, parked_agent, sh
from tests.support.processes import is_alive


@pytest.fixture
def runs(directory: Path) -> Path:
    found = directory / "runs"
    found.mkdir()
    return found


@pytest.fixture
async def agent(runs: Path) -> AsyncIterator[HolderClient]:
    found = await parked_agent(runs / run_name("up"))
    yield found
    far = boottime() + FAR
    if again := await HolderClient.attach(found.path, key=KEY, epoch=2, deadline=far):
        await again.end()


@pytest.fixture
async def terminal(runs: Path) -> AsyncIterator[TerminalClient]:
    found = await sh(runs.parent, "cat", run_dir=runs / terminal_run_name("up"))
    yield found
    await end(found)


async def test_terminals_are_counted_on_their_own(
    runs: Path, agent: HolderClient, terminal: TerminalClient
) -> None:
    assert [run.name for run in terminals(runs)] == [terminal.path.parent.name]
    assert [found.path for found in warm_agents(runs)] == [str(agent.path)]

    with make_room(runs, most=2, reserve_bytes=0):  # a second agent beside the one that waits
        assert is_alive(agent.pid)
    with make_room(runs, most=None, reserve_bytes=0):  # a second terminal
        assert is_alive(agent.pid)
    with make_room(runs, most=1, reserve_bytes=1 << 60):
        assert not is_alive(agent.pid)
        assert is_alive(terminal.pid)


async def test_a_terminal_whose_holder_lives_is_not_cleared_away(
    runs: Path, terminal: TerminalClient
) -> None:
    remove_dead_runs(runs, older_than_s=0)

    assert terminal.path.exists()
    assert await holders_ended(runs, prefix="up", wait_s=0.1) == [terminal.path.parent]
    assert await holders_ended(runs, prefix="tty") == []  # those that outlive `up`


def test_the_names_tell_terminals_from_agents() -> None:
    longest = len("/run/0123456789abcdef/holder.sock")
    for prefix in ("", "up"):
        assert is_terminal(Path(terminal_run_name(prefix)))
        assert not is_terminal(Path(run_name(prefix)))
        path = f"/run/{terminal_run_name(prefix)}/holder.sock"
        assert len(path) <= longest == 107 - MAX_SOCKET_DIR_BYTES
