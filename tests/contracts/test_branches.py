"""Branches: copies of a conversation that read and think for it while its turn runs."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.fleet.turns.inbound import Accepted
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.doors import gateway_process
from tests.support.kills import kill_all
from tests.support.prefixes import added, asked, word
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: The CLIs that can copy a conversation during its turn.
COPYING = ("claude", "codex")


@pytest.fixture(params=COPYING)
def cli(request: pytest.FixtureRequest, model_server: ModelServerProcess) -> AgentCli:
    return required(request.param, model_server)


@pytest.fixture
async def served(stack: Stack) -> AsyncIterator[Stack]:
    """A stack with a gateway, so that its agents have tools."""
    async with gateway_process(stack):
        yield stack


def branch(prompt: str) -> str:
    """Return a directive that makes a session start a branch of itself."""
    params = {"prompt": prompt, "knows": "conversation"}
    return f"TOOL:sessions_spawn:{json.dumps(params)}"


async def configure(stack: Stack, cli: AgentCli, directory: Path, **more: Any) -> Path:
    """Start two workers and an agent with all permissions; return its workspace."""
    workspace = directory / "workspace"
    workspace.mkdir()
    sections = {name: more.pop(name) for name in ("queue",) if name in more}
    settings = cli.config(workspace=str(workspace), **{"permissions": "auto", **more})
    stack.configure(settings, channels={"test": {"owners": ["alice"]}}, **sections)
    for _ in range(2):
        await stack.start_worker()
    return workspace


async def results(stack: Stack, accepted: Accepted, count: int) -> list[str]:
    """Return the results of a session's tasks, once it has received `count` of them."""

    async def received() -> list[str]:
        lines = (await stack.fleet.records.of(accepted.session.sid)).splitlines()
        messages = [line for line in map(orjson.loads, lines) if line["role"] == "user"]
        texts = [line["text"] for line in messages if line["from"].startswith("the session ")]
        return texts if len(texts) >= count else []

    texts = await eventually(received)
    await stack.until_idle(accepted)
    assert await received() == texts
    return list(texts)


def request_of_branch(model: ModelServerProcess, text: str) -> dict[str, Any]:
    """Return the first request of the branch whose task contains `text`."""
    lines = model.bodies().splitlines()
    return next(json.loads(line) for line in lines if "branch_of" in line and text in line)


def as_cached(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request as it is cached, without codex's ids of threads and messages."""
    body.pop("prompt_cache_key", None)
    for item in body.get("input", ()):
        item.pop("id", None)
    return body


@pytest.mark.thorough("claude")
async def test_branches_of_a_running_conversation_can_only_read(
    cli: AgentCli, served: Stack, directory: Path
) -> None:
    """They begin at its last finished turn; up to there, the model gets the same bytes.

    They are launched like their parent, which has all permissions: each call is refused in words.
    """
    stack = served
    workspace = await configure(stack, cli, directory)
    (workspace / "note").write_text("what is written there")
    first, one, two = word("my colour is green"), word("one"), word("two")
    await stack.ask(f"SAY:{first}")
    sending = json.dumps({"target": "test:chat-2", "message": "boo"})
    writes = branch(f"TOOL:message_send:{sending}\nSHELL:touch written {one}")
    reads = branch(f"TOOL:sessions_list:{{}}\nSHELL:cat note {two}")
    wait = "SHELL:touch began; until [ -e go-on ]; do sleep 0.05; done"
    busy = await stack.append(f"{writes} {reads} {wait}")
    await eventually((workspace / "began").exists)
    running = asyncio.create_task(results(stack, busy, 2))

    async def are_done() -> bool:
        views = await stack.fleet.sessions.children(busy.session.sid)
        return len(views) == 2 and all(view.finished_turn for view in views)

    await eventually(are_done)
    (workspace / "go-on").touch()
    result_texts = "\n".join(await running)

    before = as_cached(asked(cli.model, first))
    for text in (one, two):
        new = added(before, as_cached(request_of_branch(cli.model, text)))
        assert "assistant" in new[0]["role"]
        assert "conversation_now" in json.dumps(new[-1])
        assert "go-on" not in json.dumps(new[:-1])
    assert not (workspace / "written").exists()
    assert "what is written there" in result_texts
    bodies = cli.model.bodies()
    assert "A branch may only read: message_send changes something" in bodies
    if cli.name == "claude":
        assert "A branch of a conversation only looks" in bodies
    else:
        assert 'branches = "auto"' in result_texts
    await stack.ask("SHELL:touch written")
    assert (workspace / "written").exists()


async def test_a_branch_whose_worker_is_killed_continues_in_the_same_copy(
    model_server: ModelServerProcess, served: Stack, directory: Path
) -> None:
    """The parent's worker is killed, too. There is still one branch, with one result."""
    stack, cli = served, required("codex", model_server)
    workspace = await configure(stack, cli, directory, branches="auto")
    first = word("my colour is green")
    await stack.ask(f"SAY:{first}")
    wait = "until [ -e go-on ]; do sleep 0.05; done"
    task = f"SHELL:touch branch; {wait}; echo ended\nRECALL"
    busy = await stack.append(f"{branch(task)} SHELL:touch parent; {wait}")
    for name in ("branch", "parent"):
        await eventually((workspace / name).exists)
    await kill_all(stack)
    (workspace / "go-on").touch()
    (result,) = await results(stack, busy, 1)

    assert "DONE" in result
    assert "ended" in result
    assert first in result
    assert len(await stack.fleet.sessions.children(busy.session.sid)) == 1


@pytest.mark.thorough
async def test_a_branch_starts_with_notes_if_the_cli_cannot_copy_a_running_conversation(
    served: Stack, directory: Path, model_server: ModelServerProcess
) -> None:
    stack = served
    cli = required("gemini", model_server)
    workspace = await configure(stack, cli, directory)
    first, one = word("my colour is green"), word("one")
    await stack.ask(f"SAY:{first}")
    busy = await stack.append(f"{branch(f'SHELL:touch written; echo {one}')}")
    (result,) = await results(stack, busy, 1)

    notes = json.dumps(request_of_branch(cli.model, one))
    assert "conversation_before" in notes
    assert first in notes
    assert "It begins with notes of what was said here" in cli.model.bodies()
    assert not (workspace / "written").exists()
    assert "branches" in result or "denied" in result.lower() or "rejected" in result.lower()


@pytest.mark.thorough("claude")
async def test_a_message_moves_to_a_branch_and_is_answered_while_the_agent_works(
    cli: AgentCli, served: Stack, directory: Path
) -> None:
    """The branch knows the conversation, and the answer does not wait for the running turn."""
    stack = served
    workspace = await configure(stack, cli, directory, queue={"mode": "aside", "debounce_ms": 0})
    first, wanted = word("my colour is green"), word("what is in the note?")
    await stack.ask(f"SAY:{first}")
    wait = "touch began; until [ -e go-on ]; do sleep 0.05; done"
    busy = await stack.append(f"SHELL:{wait}")
    await eventually((workspace / "began").exists)
    asking = await stack.append(f"{wanted} SAY:It says hello.\nVERDICT:branch On it.")
    outcome = await stack.outcome(asking)

    assert "It says hello." in "".join(str(part["text"]) for part in outcome.reply)
    assert "moved" in [step.name for step in outcome.steps]
    request = as_cached(request_of_branch(cli.model, wanted))
    assert added(as_cached(asked(cli.model, first)), request)
    assert "to the person who waits for it" in json.dumps(request)
    (workspace / "go-on").touch()
    assert (await stack.outcome(busy)).status == "done"
    later = word("and now?")
    await stack.ask(f"SAY:{later}")
    assert "It says hello." in json.dumps(asked(cli.model, later))
