"""Forks of a running conversation: they begin at its last finished turn."""

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.protocols import Conversation
from remoteclaw.runtimes import CLIS, create_cli_runtime
from remoteclaw.session.notices import CONTEXT_LOST
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.cli import refused, run
from tests.support.prefixes import added, asked
from tests.support.stack import Stack, said
from tests.support.waiting import eventually

FORKING = [name for name in CLIS if create_cli_runtime(name).capabilities.forks]


@pytest.fixture(params=FORKING)
def cli(request: pytest.FixtureRequest, model_server: ModelServerProcess) -> AgentCli:
    return required(request.param, model_server)


@pytest.mark.thorough("opencode", "claude")
async def test_a_fork_of_a_running_session_begins_at_its_last_finished_turn(
    cli: AgentCli, stack: Stack, directory: Path
) -> None:
    """The fork lacks the running turn; everything before is identical, byte for byte."""
    stack.configure(cli.config(permissions="auto"))
    await stack.start_worker()
    await stack.start_worker()
    assert await stack.ask("my colour is green SAY:noted") == "noted"
    second = f"my animal is a cat {uuid.uuid4().hex} SAY:noted, too"
    assert await stack.ask(second) == "noted, too"
    began, go_on = directory / "began", directory / "go on"
    busy = await stack.append(
        f"my town is Bern SHELL:touch '{began}'; until test -e '{go_on}'; do sleep 0.1; done"
    )
    await eventually(began.exists)

    forked = await asyncio.to_thread(
        run, stack, "sessions", "fork", str(busy.session), "--thread", "copy"
    )
    assert forked.stdout.strip() == str(replace(busy.session, thread="copy"))
    recall = f"{uuid.uuid4().hex} SAY:recalled"
    assert "recalled" in await stack.ask(recall, thread_id="copy")
    go_on.touch()
    await stack.outcome(busy)

    body = str(asked(cli.model, recall))
    assert "my colour is green" in body
    assert "my animal is a cat" in body
    assert "my town is Bern" not in body
    if cli.name == "claude":
        new = added(asked(cli.model, second), asked(cli.model, recall))
        assert [part["role"] for part in new] == ["assistant", "user"]
    after = said(await stack.outcome(await stack.append("RECALL")))
    assert "my town is Bern" in after


@pytest.mark.thorough("claude", "opencode")
async def test_a_fork_whose_point_is_gone_starts_from_our_record(
    cli: AgentCli, stack: Stack
) -> None:
    """The CLI may have rewritten the conversation; the reply says that the agent has only notes."""
    if not create_cli_runtime(cli.name).capabilities.has_points:
        pytest.skip(f"{cli.name} has no points")
    stack.configure(cli.config())
    await stack.start_worker()
    first = await stack.append("my colour is green SAY:noted")
    await stack.outcome(first)
    fork = "sessions", "fork", str(first.session), "--thread", "copy"
    run(stack, *fork)
    refused(run(stack, *fork), "already")
    itself = str(replace(first.session, thread="copy"))
    unchanged = run(stack, "sessions", "fork", itself, "--thread", "copy")
    refused(unchanged, "give another thread or another user")
    copy = keys.session_map(replace(first.session, thread="copy").sid)
    client: Any = stack.fleet.scripts.client
    ((name, value),) = (await client.hgetall(copy)).items()
    copied = Conversation.decode(value.decode())
    note = f"{copied.note.rpartition(' @')[0]} @{uuid.uuid4()}"
    await client.hset(copy, name, replace(copied, note=note).encode())
    recall = f"{uuid.uuid4().hex} SAY:recalled"
    said_first = await stack.ask(recall, thread_id="copy")

    assert "recalled" in said_first
    assert CONTEXT_LOST in said_first
    assert "my colour is green" in str(asked(cli.model, recall))
