"""Run directories of terminals: they don't count as warm agents, and aren't ended for them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoteclaw.clock import boottime
from remoteclaw.holder.client import HolderClient
from remoteclaw.holder.runs import (
    is_terminal,
    make_room,
    remove_dead_runs,
    run_name,
    terminal_run_name,
    terminal_runs,
    wait_for_holders,
    warm_agents,
)
from remoteclaw.holder.terminal_client import TerminalClient
from remoteclaw.locations import MAX_SOCKET_DIR_BYTES
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


async def test_terminals_and_warm_agents_are_counted_separately(
    runs: Path, agent: HolderClient, terminal: TerminalClient
) -> None:
    assert [run.name for run in terminal_runs(runs)] == [terminal.path.parent.name]
    assert [found.path for found in warm_agents(runs)] == [str(agent.path)]

    with make_room(runs, max_agents=2, reserve_bytes=0):  # room for a second agent
        assert is_alive(agent.pid)
    with make_room(runs, max_agents=None, reserve_bytes=0):  # room for a second terminal
        assert is_alive(agent.pid)
    with make_room(runs, max_agents=1, reserve_bytes=1 << 60):
        assert not is_alive(agent.pid)
        assert is_alive(terminal.pid)


async def test_the_run_directory_of_a_living_terminal_is_not_removed(
    runs: Path, terminal: TerminalClient
) -> None:
    remove_dead_runs(runs, older_than_s=0)

    assert terminal.path.exists()
    assert await wait_for_holders(runs, prefix="up", wait_s=0.1) == [terminal.path.parent]
    assert await wait_for_holders(runs, prefix="tty") == []  # terminals that outlive `up`


def test_run_names_distinguish_terminals_from_agents() -> None:
    longest = len("/run/0123456789abcdef/holder.sock")
    for prefix in ("", "up"):
        assert is_terminal(Path(terminal_run_name(prefix)))
        assert not is_terminal(Path(run_name(prefix)))
        path = f"/run/{terminal_run_name(prefix)}/holder.sock"
        assert len(path) <= longest == 107 - MAX_SOCKET_DIR_BYTES
