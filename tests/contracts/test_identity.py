"""Identity files in the system prompt, whose edit costs no conversation its provider's cache."""

import json
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.runtimes import CLIS
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.cli import run
from tests.support.doors import gateway_process
from tests.support.prefixes import added, asked, word
from tests.support.stack import Stack, message
from tests.support.waiting import eventually

#: Two versions of SOUL.md.
OLD, NEW = "You are called Marvin, the old one.", "You are called Trillian, the new one."


@pytest.fixture(params=CLIS)
def cli(request: pytest.FixtureRequest, model_server: ModelServerProcess) -> AgentCli:
    return required(request.param, model_server)


def write(stack: Stack, text: str, name: str = "SOUL.md") -> Path:
    """Write a file of the agent `main`, as its operator does."""
    file = stack.home.agent_files("main") / name
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)
    return file


async def started(stack: Stack, cli: AgentCli, **agent: Any) -> None:
    stack.configure(cli.config(identity=["SOUL.md"], **agent))
    await stack.start_worker()


def body_with(cli: AgentCli, *texts: str) -> str:
    """Return the first of the last requests that has all of `texts`; empty if none has."""
    bodies = cli.model.bodies().splitlines()
    return next((body for body in bodies if all(text in body for text in texts)), "")


@pytest.mark.thorough("gemini", "opencode")
async def test_an_edit_leaves_the_prompt_of_a_long_conversation_as_it_is(
    cli: AgentCli, stack: Stack
) -> None:
    """The conversation has 100,000 tokens, as the model counts; the same process goes on."""
    write(stack, OLD)
    await started(stack, cli)
    first, second, third = map(word, ("first", "second", "third"))
    await stack.ask(f"{first} USED:100000 SAY:noted")

    write(stack, NEW)
    accepted = await stack.append(f"{second} SAY:still")
    await stack.outcome(accepted)
    how = await stack.reached(accepted, "spawned")
    await stack.until_idle(accepted)
    await stack.ask("/new")
    await stack.ask(f"{third} SAY:new")

    assert how.startswith("warm")
    assert len(added(asked(cli.model, first), asked(cli.model, second))) == 2
    assert OLD in str(asked(cli.model, second))
    assert NEW in (fresh := str(asked(cli.model, third)))
    assert OLD not in fresh


@pytest.mark.parametrize("cli", ["claude"], indirect=True)
async def test_a_fork_and_another_worker_have_the_identity_of_the_conversation(
    cli: AgentCli, stack: Stack
) -> None:
    write(stack, OLD)
    await started(stack, cli, warm_s=0)
    first = await stack.append("SAY:noted")
    await stack.outcome(first)
    await stack.until_idle(first)

    write(stack, NEW)
    await stack.start_worker()
    worker = stack.workers.pop(0)
    worker.kill()
    worker.wait()
    again = await stack.ask(f"GREPSYS:{OLD}")
    run(stack, "sessions", "fork", str(first.session), "--thread", "copy")
    forked = await stack.ask(f"GREPSYS:{OLD}", thread_id="copy")
    forked_again = await stack.ask(f"GREPSYS:{OLD}", thread_id="copy")
    other = await stack.ask(f"GREPSYS:{NEW}", thread_id="other")

    assert {again, forked, forked_again, other} == {"GREPSYS true"}


@pytest.mark.thorough("claude")
@pytest.mark.parametrize("cli", ["claude", "codex"], indirect=True)
async def test_a_branch_and_an_aside_have_the_identity_of_the_conversation(
    cli: AgentCli, stack: Stack, directory: Path
) -> None:
    write(stack, OLD)
    queue = {"mode": "aside", "debounce_ms": 0}
    stack.configure(cli.config(identity=["SOUL.md"], permissions="auto"), queue=queue)
    for _ in range(2):
        await stack.start_worker()
    aside, branch = word("aside"), word("branch")
    began, go_on = directory / "began", directory / "go on"

    async with gateway_process(stack):
        await stack.ask("SAY:noted")
        write(stack, NEW)
        task = json.dumps({"prompt": f"{branch} SAY:done", "knows": "conversation"})
        await stack.ask(f"TOOL:sessions_spawn:{task}")
        work = await stack.append(
            f"SHELL:touch '{began}'; until test -e '{go_on}'; do sleep 0.1; done"
        )
        await eventually(began.exists)
        await stack.outcome(await stack.append(f"{aside} VERDICT:answered yes"))
        go_on.touch()
        await stack.outcome(work)
        of_branch = await eventually(lambda: body_with(cli, branch, "branch_of"))

    for body in (of_branch, body_with(cli, aside)):
        assert OLD in body
        assert NEW not in body


@pytest.mark.parametrize("cli", ["codex"], indirect=True)
async def test_a_compaction_brings_the_edited_file_and_the_memory_at_once(
    cli: AgentCli, stack: Stack
) -> None:
    """The prompt is new then anyway, and the summary may lack the memory."""
    write(stack, OLD)
    write(stack, "Alice likes tea.", "MEMORY.md")
    await started(stack, cli, permissions="auto", memory=True)
    number = len(cli.model.requests())
    await stack.ask("SAY:green", channel_id="alice")
    size = cli.model.requests()[number]["size"]
    await stack.ask("LONG:40000", channel_id="alice")
    write(stack, NEW)
    last = word("last")

    with cli.model.limited(size=size + 20_000):
        answers = [
            await stack.ask(f"{text} GREPSYS:{NEW}", channel_id="alice") for text in ("again", last)
        ]

    assert all("GREPSYS true" in answer for answer in answers)
    body = str(asked(cli.model, last)).partition(last)[0]
    assert body.count("Alice likes tea.") == 2  # codex also keeps the message that began with it
    assert "Alice likes tea." not in body[body.rindex("[remoteclaw ") :]


@pytest.mark.thorough("claude")
@pytest.mark.parametrize("cli", ["claude", "codex"], indirect=True)
async def test_compact_brings_the_edited_file_and_the_memory(cli: AgentCli, stack: Stack) -> None:
    write(stack, OLD)
    await started(stack, cli, memory=True)
    for text in ("SAY:green", "LONG:4000", "SAY:blue"):
        await stack.ask(text, channel_id="alice")
    write(stack, NEW)
    write(stack, "Alice likes tea.", "MEMORY.md")
    again = word("again")

    sent = message("/compact", channel_id="alice")
    await stack.outcome(await stack.fleet.inbound.append(sent, agent="main", is_command=True))
    answer = await stack.ask(f"{again} GREPSYS:{NEW}", channel_id="alice")

    assert "GREPSYS true" in answer
    body = str(asked(cli.model, again)).partition(again)[0]
    assert "Alice likes tea." in body[body.rindex("[remoteclaw ") :]
