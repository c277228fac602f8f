"""Asides of real CLIs over ACP: the requests to the model, and what they leave behind.

test_conversation.py tests that no aside runs a tool.
"""

import asyncio
import contextlib
import json
import os
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import AsideFailed
from remoteclaw.events import AgentEvent, DoneEvent, ErrorEvent, NoticeEvent, TextEvent
from remoteclaw.protocols import AgentProcess
from remoteclaw.runtimes import create_cli_runtime
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.bridges import agent_process
from tests.support.prefixes import added, asked
from tests.support.waiting import HANG_S, eventually


@pytest.fixture
def opencode(model_server: ModelServerProcess) -> AgentCli:
    return required("opencode", model_server)


@pytest.fixture
def gemini(model_server: ModelServerProcess) -> AgentCli:
    return required("gemini", model_server)


def started(
    home: Home, cli: AgentCli, **options: Any
) -> contextlib.AbstractAsyncContextManager[Any]:
    """Start a CLI, ready for its first turn."""
    env = {**create_cli_runtime(cli.name).environment(os.environ), **cli.env}
    given = {"command": cli.command, "env": env, "model": cli.model_name, **options}
    return agent_process(home, cli.name, **given)


async def events_of(turn: AsyncGenerator[AgentEvent, None]) -> list[AgentEvent]:
    events = [event async for event in turn]
    assert isinstance(events[-1], DoneEvent)
    return events


async def text_of(turn: AsyncGenerator[AgentEvent, None]) -> str:
    return "".join(event.text for event in await events_of(turn) if isinstance(event, TextEvent))


@contextlib.asynccontextmanager
async def busy(process: AgentProcess, work: Path, prompt: str = "busy") -> AsyncIterator[str]:
    """Keep a turn in a command for the block; afterwards, the turn must succeed."""
    began, go_on = (work / name for name in ("began", "go on"))
    unique = f"{prompt} {uuid.uuid4().hex}"
    loop = f"touch '{began}'; until test -e '{go_on}'; do sleep 0.1; done; echo finished"
    turn = asyncio.create_task(events_of(process.turn(f"{unique} SHELL:{loop}")))
    await eventually(began.exists)
    yield unique
    go_on.touch()
    events = await turn
    assert not [event for event in events if isinstance(event, ErrorEvent | NoticeEvent)]
    text = "".join(event.text for event in events if isinstance(event, TextEvent))
    assert "finished" in text
    for file in (began, go_on):
        file.unlink()


@pytest.mark.thorough
async def test_an_opencode_aside_runs_in_a_fork_that_the_provider_has_cached(
    home: Home, opencode: AgentCli
) -> None:
    """Its tools, system prompt and messages are the conversation's, which keeps nothing of it."""
    question = f"how far? {uuid.uuid4().hex}"
    async with (
        asyncio.timeout(HANG_S * 2),
        started(home, opencode, permissions="auto", system_prompt="Be kind.") as (process, _),
    ):
        assert await text_of(process.turn("my colour is green SAY:noted")) == "noted"
        async with busy(process, home.path / "work") as work:
            assert (await process.aside(f"{question} SAY:half")).text == "half"
        after = await text_of(process.turn("RECALL"))

    *copied, last = added(asked(opencode.model, work), asked(opencode.model, question))
    assert [part["role"] for part in copied] == ["assistant", "tool"]
    assert "[Tool execution was interrupted]" in str(copied)  # which the question corrects
    assert "nothing of it was interrupted" in str(last)
    assert "my colour is green" in after
    assert question not in after


async def test_a_gemini_aside_runs_in_a_session_without_tools(
    home: Home, gemini: AgentCli, directory: Path
) -> None:
    """Not even tools that the user allows; none of the user's servers is started for the aside."""
    settings = directory / "user" / ".gemini" / "settings.json"
    settings.parent.mkdir(parents=True)
    started_file = directory / "servers"
    server = ["-c", f"open({str(started_file)!r}, 'a').write('x')"]
    own = {"own": {"command": sys.executable, "args": server, "trust": True}}
    allowed = {"tools": {"allowed": ["run_shell_command"]}, "mcpServers": own}
    settings.write_text(json.dumps(allowed))
    question, marker = f"how far? {uuid.uuid4().hex}", directory / "marker"
    given = {"system_prompt": "Use tools.", "plain_prompt": "Be kind.", "trust_workspace": True}
    given["permissions"] = "auto"  # of the turn
    async with asyncio.timeout(HANG_S * 3), started(home, gemini, **given) as (process, _):
        assert await text_of(process.turn("my colour is green SAY:noted")) == "noted"
        async with busy(process, home.path / "work"):
            before = started_file.read_text()
            assert (await process.aside(f"{question} SAY:half")).text == "half"
            assert "TOOLS []" in (await process.aside("TOOLS")).text
            shell = json.dumps({"command": f"touch {marker}"})
            await process.aside(f"TOOL:run_shell_command:{shell}")
            assert started_file.read_text() == before
        after = await text_of(process.turn("RECALL"))
        await several_and_failures(process)

    body = str(asked(gemini.model, question))
    assert "Be kind." in body
    assert "my colour is green" not in body
    assert not marker.exists()
    assert question not in after
    # No session of an aside is left on disk.
    chats = (directory / "user" / ".gemini" / "tmp").glob("*/chats/*.jsonl")
    kept = [file.read_text() for file in chats]
    assert any("my colour is green" in chat for chat in kept)
    assert not any(text in chat for text in (question, "TOOLS []") for chat in kept)


async def several_and_failures(process: AgentProcess) -> None:
    """The turn reports nothing about its asides, and the agent can be parked afterwards.

    If the model's stream breaks off, gemini returns the part as the answer; callers must check it.
    """
    turn = process.turn("w DRIP:1000:100")
    await anext(turn)
    reading = asyncio.create_task(events_of(turn))
    answers = await asyncio.gather(*(process.aside(f"SAY:{word}") for word in "abc"))
    assert [answer.text for answer in answers] == list("abc")
    for failure in ("HTTP:401", "HTTP:429", "HTTP:529"):
        with pytest.raises(AsideFailed):
            await process.aside(failure)
    cancelled = asyncio.create_task(process.aside("SLEEP:30 SAY:late"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await process.interrupt()
    events = await reading
    assert await text_of(process.turn("SAY:still here")) == "still here"
    assert process.parked_state() is not None
    assert not [event for event in events if isinstance(event, ErrorEvent | NoticeEvent)]
