"""Asides during a running turn, tested with the real CLIs and a scripted model.

test_conversation.py has the test of an aside while a permission request is open.
"""

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import AsideFailed
from remoteclaw.events import AgentEvent, DoneEvent, PermissionEvent, ToolUseEvent
from remoteclaw.protocols import AgentProcess, Decision
from remoteclaw.runtimes import CLIS, create_cli_runtime
from remoteclaw.runtimes.acp.runtime import AcpRuntime
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.bridged import deceptive_server
from tests.support.bridges import agent_process
from tests.support.prefixes import added, asked, word
from tests.support.waiting import HANG_S, eventually

#: test_acp_asides.py tests the CLIs over ACP.
ASIDE_CLIS = [name for name in CLIS if not isinstance(create_cli_runtime(name), AcpRuntime)]


class Open(Protocol):
    def __call__(self, **options: Any) -> AbstractAsyncContextManager[AgentProcess]: ...


@pytest.fixture(params=ASIDE_CLIS)
def cli(request: pytest.FixtureRequest, model_server: ModelServerProcess) -> AgentCli:
    """Each of the CLIs that answer asides, in turn."""
    return required(request.param, model_server)


@pytest.fixture
def opened(cli: AgentCli, home: Home) -> Open:
    """A function that starts the CLI, by default with all permissions."""

    @contextlib.asynccontextmanager
    async def open_(**options: Any) -> AsyncIterator[AgentProcess]:
        env = {**create_cli_runtime(cli.name).environment(os.environ), **cli.env}
        given = {"command": cli.command, "env": env, "model": cli.model_name, **options}
        given = {"permissions": "auto", "system_prompt": "You are RemoteClaw.", **given}
        async with asyncio.timeout(HANG_S * 3), agent_process(home, cli.name, **given) as (one, _):
            yield one

    return open_


async def text_of(events: AsyncGenerator[AgentEvent, None]) -> str:
    """Read a turn to its end and return its text."""
    async for event in events:
        if isinstance(event, DoneEvent):
            assert not event.result.aborted
            return event.result.text
    raise AssertionError("the turn has no end")


class Busy:
    """A turn that waits in a tool until the end of the block."""

    def __init__(self, process: AgentProcess, directory: Path) -> None:
        self._go = directory / word("go")
        began = directory / word("began")
        wait = f"touch '{began}'; until test -e '{self._go}'; do sleep 0.05; done; echo worked"
        self.task = asyncio.create_task(self._run(process, f"SHELL:{wait}"))
        self._began = began
        self._uses = 0

    async def _run(self, process: AgentProcess, prompt: str) -> DoneEvent:
        async for event in process.turn(prompt):
            self._uses += isinstance(event, ToolUseEvent)
            if isinstance(event, PermissionEvent):
                await process.answer(event.id, Decision("allow"))
            if isinstance(event, DoneEvent):
                assert self._uses == 1
                return event
        raise AssertionError("the turn has no end")

    async def wait_until_running(self) -> None:
        """Wait until the tool runs and the turn has reported it."""
        await eventually(lambda: self._began.exists() and self._uses)

    async def __aenter__(self) -> "Busy":
        await self.wait_until_running()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._go.touch()
        if exc[0] is None:
            await self.end()

    async def end(self) -> None:
        """Let the turn end, and check that it ends as it would without asides."""
        self._go.touch()
        done = await self.task
        assert done.result.text.startswith("DONE")
        assert "worked" in done.result.text
        assert not done.ends_agent


async def test_asides_are_answered_or_fail_without_affecting_their_turns(
    opened: Open, cli: AgentCli, directory: Path
) -> None:
    """All steps use one conversation; no turn contains anything of an aside."""
    async with opened() as process:
        await is_answered_from_a_first_turn(process, directory)
        await several_are_answered_while_a_tool_runs(process, directory)
        await is_no_command_and_reads_no_file(process, cli, directory)
        if create_cli_runtime(cli.name).capabilities.reports_cost:
            await is_paid_with_its_turn(process, directory)
        await runs_no_tool(process, directory)
        await is_cancelled(process, cli, directory)
        await outlives_the_stop_of_its_turn(process, cli, directory)


async def test_an_aside_has_the_cached_prefix_of_its_conversation(
    opened: Open, cli: AgentCli, directory: Path
) -> None:
    """The provider reads tools, instructions and all finished turns from its cache.

    No MCP tool runs, not even one that needs no permission in a turn.
    """
    log = directory / "log"
    async with opened(mcp_servers={"probe": deceptive_server(log)}) as process:
        await text_of(process.turn("SAY:one"))
        second, beside = word("second"), word("beside")
        await text_of(process.turn(f"{second} SAY:two"))
        async with Busy(process, directory):
            await process.aside(f"{beside} SAY:three")
            with pytest.raises(AsideFailed):
                await process.aside("TOOL:look:{}")
        new = added(asked(cli.model, second), asked(cli.model, beside))
    # In the fork, codex describes the sandbox before the question.
    assert new[0]["role"] == "assistant"
    assert {message["role"] for message in new[1:]} <= {"developer", "user"}
    assert beside in str(new[-1])
    assert "called" not in log.read_text()


async def is_answered_from_a_first_turn(process: AgentProcess, directory: Path) -> None:
    """A failing model gives no answer. Claude can't compact the conversation and retry."""
    failures = "HTTP:401", "HTTP:429", "HTTP:529", "HTTP:400:context", "DROP", "OVERLOADED"
    async with Busy(process, directory):
        assert (await process.aside("SAY:beside")).text.strip() == "beside"
        asked = await asyncio.gather(*map(process.aside, failures), return_exceptions=True)
    assert [type(answer) for answer in asked] == [AsideFailed] * len(failures)
    assert "beside" not in await text_of(process.turn("RECALL"))


async def several_are_answered_while_a_tool_runs(process: AgentProcess, directory: Path) -> None:
    """The asides run concurrently, and leave nothing in this turn, in the next one, or on disk."""
    colour = word("green")
    assert await text_of(process.turn(f"my colour is {colour} SAY:noted")) == "noted"
    words = [word("beside") for _ in range(3)]
    async with Busy(process, directory):
        answers = await asyncio.gather(*(process.aside(f"SAY:{each}") for each in words))
        assert [answer.text.strip() for answer in answers] == words
        assert colour in (await process.aside("RECALL")).text
    recalled = await text_of(process.turn("RECALL"))
    assert colour in recalled
    assert process.parked_state() is not None
    kept = [file for file in (directory / "user").rglob("*") if file.is_file()]
    for each in words:
        assert each not in recalled
        assert not [file for file in kept if each.encode() in file.read_bytes()]


async def is_no_command_and_reads_no_file(
    process: AgentProcess, cli: AgentCli, directory: Path
) -> None:
    secret = directory / "secret.txt"
    secret.write_text("TOP-SECRET-4711")
    async with Busy(process, directory):
        for text in (f"@{secret}", "/help", "!ls", "-p"):
            reply = word("beside")
            assert (await process.aside(f"{text} SAY:{reply}")).text.strip() == reply
            assert text in cli.model.bodies()
    assert "TOP-SECRET" not in cli.model.bodies()


async def is_paid_with_its_turn(process: AgentProcess, directory: Path) -> None:
    """Each request of the scripted model costs the same; a turn with a tool has two.

    The next turn pays for an aside that outlasts its turn.
    """

    async def cost(prompt: str) -> float:
        async for event in process.turn(prompt):
            if isinstance(event, DoneEvent):
                return event.result.total_cost_usd or 0.0
        raise AssertionError("the turn has no end")

    once = await cost("SAY:one")
    assert once > 0
    async with Busy(process, directory) as busy:
        await asyncio.gather(*(process.aside(f"SAY:{number}") for number in range(3)))
    done = await busy.task
    assert done.result.total_cost_usd == pytest.approx(5 * once)
    await process.aside("SAY:behind it")
    assert await cost("SAY:three") == pytest.approx(2 * once)


# -- no tool --------------------------------------------------------------------------------------


async def runs_no_tool(process: AgentProcess, directory: Path) -> None:
    """Whatever the permissions: the aside fails, or its answer is the text before the attempt."""
    made = directory / "made"
    tools = (f"SHELL:touch '{made}'", f"SHELL:echo x > '{made}'")
    async with Busy(process, directory):
        for sentence, tool in itertools.product(("", "SAY:let me see\n"), tools):
            try:
                answer = await process.aside(f"{sentence}{tool}")
            except AsideFailed:
                continue
            assert answer.text == "let me see"
            assert sentence
    assert await text_of(process.turn("SAY:again")) == "again"
    assert not made.exists()


# -- no answer ------------------------------------------------------------------------------------


async def is_cancelled(process: AgentProcess, cli: AgentCli, directory: Path) -> None:
    """The model is silent and the caller cancels the aside; the turn continues."""
    silent = word("silent")
    async with Busy(process, directory):
        asking = asyncio.create_task(process.aside(f"{silent} SLEEP:600"))
        await eventually(lambda: silent in cli.model.bodies())
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert await text_of(process.turn("SAY:again")) == "again"
    assert process.parked_state() is not None


# -- after the turn -------------------------------------------------------------------------------


async def outlives_the_stop_of_its_turn(
    process: AgentProcess, cli: AgentCli, directory: Path
) -> None:
    beside = word("beside")
    busy = Busy(process, directory)
    await busy.wait_until_running()
    asking = asyncio.create_task(process.aside(f"SLEEP:1 SAY:{beside}"))
    await eventually(lambda: beside in cli.model.bodies())
    await process.interrupt()
    assert (await busy.task).result.aborted
    assert (await asking).text.strip() == beside
    assert await text_of(process.turn("SAY:again")) == "again"
