"""One conversation with each real CLI: in turns, in a terminal, and in turns again.

A start of a CLI costs one to seven seconds of CPU, so all steps share three starts.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from remoteclaw.bridge.exchange import FORM
from remoteclaw.config.home import Home
from remoteclaw.errors import AsideFailed, ErrorCategory
from remoteclaw.events import PermissionEvent, ToolResultEvent
from remoteclaw.messages import Entry, McpServerConfig, SessionKey, Turn
from remoteclaw.protocols import BridgeCallbacks, Decision, TurnSources
from remoteclaw.runtimes import create_cli_runtime
from tests.support.agents import AgentCli
from tests.support.bridged import (
    Agent,
    Open,
    deceptive_server,
    hostile_settings,
    own_settings,
    said,
)
from tests.support.pictures import png
from tests.support.prefixes import asked, word
from tests.support.processes import is_alive
from tests.support.stack import message
from tests.support.terminal_walks import in_its_terminal
from tests.support.waiting import HANG_S, eventually

#: The rules of an agent that asks for everything else.
ALLOWED = ("Bash(touch one)", "Bash(touch two:*)")


@pytest.mark.thorough("opencode", "gemini")
@pytest.mark.timeout(600)  # each of the three starts has its own limit
async def test_one_conversation_continues_from_turns_to_a_terminal_and_back(
    opened: Open, cli: AgentCli, home: Home, directory: Path
) -> None:
    """It starts with a configured model that is not the CLI's default."""
    model, asked_for = {
        "claude": ("claude-opus-4-8", "claude-opus-4-8"),
        "codex": ("another", "another"),
        "gemini": ("gemini-2.5-pro", "gemini-2.5-pro"),
        "opencode": ("scripted/other", "other"),
    }[cli.name]
    before = len(cli.model.requests())
    broken = McpServerConfig(command=sys.executable, args=("-c", "raise SystemExit(1)"))
    options = {
        "mcp_servers": {"broken": broken, "deceptive": deceptive_server(directory / "deceptive")},
        "inherit_mcp": False,
        "trust_workspace": cli.name == "gemini",  # otherwise it has no servers
    }
    own = own_settings(cli, directory / "mine")
    rules = {"permissions": "ask", "allow": ALLOWED}
    async with opened(model=model, **rules, **options) as agent, asyncio.timeout(HANG_S * 2):
        await uses_a_server(agent)
        await handles_text_thoughts_pictures_and_files(agent)
        await is_parked_and_taken_over(agent)
        await does_what_a_rule_or_a_person_allows(agent)
        await is_stopped(agent)
        await is_killed(agent)
    requests = cli.model.requests()[before:]
    assert {request["model"] for request in requests if not request["is_aside"]} == {asked_for}

    own.unlink()
    await in_its_terminal(home, cli, *agent.session_map.values())
    await continues_in_turns(opened, agent, directory)


# -- turns with permissions that people give ------------------------------------------------------


async def uses_a_server(agent: Agent) -> None:
    """Its tools need no permission and its form is cancelled; the user's own server is absent."""
    tools = await agent.say("TOOLS")
    result = await agent.ask("TOOL:look:{}")
    answer = await agent.say("TOOL:confirm:{}")

    assert "confirm" in tools
    assert "mine" not in tools
    assert "seen" in said(result)
    assert result.run.permission_denials == ()
    (call,) = result.tool_calls
    assert "look" in call.name
    assert not call.is_error
    assert "got" in answer
    assert "accept" not in answer
    if agent.cli.name in ("claude", "codex"):  # the others refuse it themselves
        form = FORM.format(who="The MCP server `deceptive`", message="Really delete everything?")
        assert '{"action": "cancel"}' in answer
        assert answer.endswith(f"\n\n{form}")


async def handles_text_thoughts_pictures_and_files(agent: Agent) -> None:
    """The model gets the system prompt, text, pictures and files; thoughts are reported."""
    thought: list[str] = []
    if agent.cli.instructs_by_prompt:
        assert "You are running inside RemoteClaw" in await agent.say("RECALL\nECHO")
    else:
        assert await agent.say("GREPSYS:You are running inside RemoteClaw") == "GREPSYS true"
    hello = await agent.ask("SAY:hello from the model")
    recalled = await agent.say("RECALL")
    answer = await agent.ask("THINK:pondering\nSAY:an answer", on_thinking=thought.append)
    shown = await agent.ask_with("IMAGES", "red.png", png())
    read = await agent.ask_with("READ", "notes.txt", b"the meeting is on Thursday")

    assert said(hello) == "hello from the model"
    assert hello.run.text == "hello from the model"
    assert (hello.run.usage.input_tokens, hello.run.usage.output_tokens) == (100, 7)
    assert "SAY:hello from the model" in recalled
    assert "pondering" in "".join(thought)
    assert said(answer) == "an answer"
    assert f"image/png {len(png())}" in shown
    assert "the meeting is on Thursday" in read


async def is_parked_and_taken_over(agent: Agent) -> None:
    """The parked process continues; the usage of the next turn is that of the turn alone."""
    pid = agent.pid
    agent.keeper.note_finished_turn("1-0")
    await agent.keeper.park()
    second = await agent.ask("RECALL")

    assert agent.pid == pid
    assert "SAY:hello from the model" in said(second)
    assert (second.run.usage.input_tokens, second.run.usage.output_tokens) == (100, 7)


async def does_what_a_rule_or_a_person_allows(agent: Agent) -> None:
    """And nothing else. A person decides about each call; no answer is valid for the next one."""
    asked: list[PermissionEvent] = []

    async def allow(event: PermissionEvent) -> Decision:
        asked.append(event)
        if agent.cli.name in ("claude", "codex"):  # an aside is answered while the request is open
            assert (await agent.process.aside("SAY:beside")).text.strip() == "beside"
        return Decision("allow")

    before = {*agent.workspace.iterdir()}
    result = await agent.ask("SHELL:touch made-by-the-agent")
    allowed = await agent.ask("SHELL:touch five", on_permission=allow)
    assert {*agent.workspace.iterdir()} - before == {agent.workspace / "five"}
    await agent.ask("SHELL:touch five", on_permission=allow)
    exact = await agent.ask("SHELL:touch one")
    longer = await agent.ask("SHELL:touch two three")
    chained = await agent.ask("SHELL:touch two && touch four")

    assert result.run.permission_denials
    assert "permission" in said(result)
    assert 'allow = ["Bash(touch made-by-the-agent)"]' in said(result)
    assert "[agents.main]" in said(result)
    assert ["touch five" in str(event.input) for event in asked] == [True, True]
    assert allowed.run.permission_denials == ()
    assert "beside" not in said(allowed)
    assert exact.run.permission_denials == longer.run.permission_denials == ()
    assert chained.run.permission_denials
    made = {path.name for path in {*agent.workspace.iterdir()} - before}
    assert made == {"one", "two", "three", "five"}


async def is_stopped(agent: Agent) -> None:
    """The stop comes in the middle of a text; the process stays alive."""
    abort = asyncio.Event()
    shown: list[str] = []

    def stop(_index: int, text: str) -> None:
        shown.append(text)
        if "w3" in text:
            abort.set()

    callbacks = BridgeCallbacks(on_live_text=stop)
    result = await agent.bridge.handle(message("DRIP:500:100"), callbacks, abort)
    warm = agent.pid
    after = await agent.ask("RECALL")

    assert agent.pid == warm
    assert result.error_category is ErrorCategory.ABORTED
    assert "w1" in said(result)
    assert shown[0].startswith("w1")
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(shown))
    # gemini keeps nothing of a stopped turn.
    assert ("DRIP:500:100" in said(after)) is (agent.cli.name != "gemini")


async def is_killed(agent: Agent) -> None:
    """Killed in the middle of a text; a new process continues with the next message."""

    def kill(_index: int, text: str) -> None:
        if "w3" in text:
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent.pid, signal.SIGKILL)

    killed = await agent.ask("DRIP:500:50", on_live_text=kill)
    await eventually(lambda: not is_alive(agent.pid))
    assert killed.error_category is ErrorCategory.DIED
    # gemini can't resume in a new process; opencode's continues in the terminal and after it.
    if agent.cli.name in ("claude", "codex"):
        assert await agent.say("SAY:back") == "back"


# -- turns with all permissions -------------------------------------------------------------------


async def continues_in_turns(opened: Open, before: Agent, directory: Path) -> None:
    """It knows the turns and the terminal, and ignores the settings of the workspace."""
    cli, hostile, log = before.cli, directory / "hostile", directory / "log"
    # Slower than any CLI waits by default; the server is still available in the first turn.
    settings, last = own_settings(cli, directory / "mine", delay_s=3), word("last")
    own = settings.read_bytes()
    hostile_settings(cli, before.workspace, hostile)
    here = sorted(before.workspace.rglob("*"))
    given = {"session_map": before.session_map, "mcp_servers": {"probe": deceptive_server(log)}}
    ids = [*before.session_map.values()]
    async with opened(permissions="auto", **given) as agent, asyncio.timeout(HANG_S * 2):
        first = await agent.ask("TOOLS")
        if (
            cli.name == "gemini"
        ):  # its session continues from the record; the workspace isn't trusted
            assert first.error_category is ErrorCategory.SESSION_EXPIRED
        else:
            assert "mine" in said(first)
            assert (await agent.say(f"RECALL {last}")).count("SAY:hello from the model") == 1
            assert "touch x" in str(asked(cli.model, last))
            assert [*agent.session_map.values()] == ids
        await uses_a_tool(agent)
        assert sorted(agent.workspace.rglob("*")) == here
        assert "evil" not in await agent.say("TOOLS")
        if create_cli_runtime(cli.name).capabilities.steers:
            await is_joined(agent)
        await stops_its_command(agent)
        if cli.name in ("gemini", "opencode"):  # test_asides.py tests the others
            await runs_no_tool_in_an_aside(agent, log)
        long = await agent.say("x" * 200_000 + " LEN")
        assert int(long.removeprefix("LEN ")) > 200_000

    assert settings.read_bytes() == own
    assert not hostile.exists()


async def uses_a_tool(agent: Agent) -> None:
    """The call and its result are reported, and so is a failure."""
    results: list[ToolResultEvent] = []

    async def note(event: ToolResultEvent) -> None:
        results.append(event)

    result = await agent.ask("SHELL:echo from-the-shell", on_tool_result=note)
    failed = await agent.ask("SHELL:cat /not/there")

    assert "from-the-shell" in said(result)
    assert len(result.tool_calls) == len(results) == 1
    assert not results[0].is_error
    assert "echo from-the-shell" in result.tool_calls[0].input
    (call,) = failed.tool_calls
    assert "/not/there" in call.input
    assert call.is_error or "No such file" in said(failed)
    environment = await agent.say("SHELL:env")
    assert "GH_TOKEN=of-a-person" in environment
    if agent.cli.name == "codex":  # the others pass their whole environment on (docs/agents.md)
        assert "nobody's key" not in environment


async def is_joined(agent: Agent) -> None:
    """A message that arrives while a tool runs is answered in the same turn."""
    key = SessionKey.of(message("x"), agent="main")
    joined = Entry("2-0", message("SAY:and this as well"))
    is_running = asyncio.Event()

    async def newcomers() -> AsyncGenerator[Entry, None]:
        await is_running.wait()
        yield joined
        await asyncio.Event().wait()

    async def begun(phase: str, _detail: str) -> None:
        if phase == "tool":
            is_running.set()

    turn = Turn(key, (Entry("1-0", message("SHELL:sleep 2; echo shell-is-done")),))
    result = await agent.bridge.handle(
        turn,
        BridgeCallbacks(on_phase=begun),
        sources=TurnSources(newcomers=newcomers),
    )
    recalled = await agent.say("RECALL")

    assert result.steered == ("2-0",)
    assert "and this as well" in said(result) or "shell-is-done" in said(result)
    assert recalled.count("SAY:and this as well") >= 1 or agent.cli.name == "claude"


async def stops_its_command(agent: Agent) -> None:
    """A stop of the turn also ends the command that it runs."""
    abort = asyncio.Event()

    async def stop() -> None:
        await eventually((agent.workspace / "begun").exists)
        await asyncio.sleep(0.7)  # earlier, codex ends a command with its turn in any case
        abort.set()

    stopping = asyncio.create_task(stop())
    done = f"done-{uuid.uuid4().hex}"
    text = f"SHELL:touch begun; sleep {2 * HANG_S:.0f}; touch {done}"
    result = await agent.bridge.handle(message(text), BridgeCallbacks(), abort)
    await stopping
    await eventually(lambda: not shells_of(done))

    assert result.error_category is ErrorCategory.ABORTED


def shells_of(command: str) -> list[str]:
    """Return the command lines of running processes that contain `command`."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_text(errors="replace"))
    return [line for line in found if command in line]


async def runs_no_tool_in_an_aside(agent: Agent, log: Path) -> None:
    """Neither its own tools nor an MCP server's run, not even where the session has them."""
    marker, note = agent.workspace / "marker", agent.workspace / "note.txt"
    note.write_text("a secret of the workspace")
    is_copy = agent.cli.name == "opencode"  # gemini gets notes, and its asides have no servers
    shell = json.dumps({"command": f"touch {marker}", "description": "x"})
    read = json.dumps({"file_path": str(note)})
    tools = (f"TOOL:run_shell_command:{shell}", f"TOOL:read_file:{read}")
    if is_copy:
        tools = (f"TOOL:bash:{shell}", "TOOL:probe_look:{}")
    abort, is_shown = asyncio.Event(), asyncio.Event()
    callbacks = BridgeCallbacks(on_live_text=lambda *_: is_shown.set())
    turn = asyncio.create_task(agent.bridge.handle(message("w DRIP:1000:100"), callbacks, abort))
    await is_shown.wait()
    recalled = await agent.process.aside("RECALL")
    for tool in tools:
        with pytest.raises(AsideFailed, match=r"tool|permission"):
            await agent.process.aside(tool)
    abort.set()
    await turn

    assert ("SAY:hello from the model" in recalled.text) is is_copy
    assert not marker.exists()
    assert "a secret of the workspace" not in agent.cli.model.bodies()
    assert not log.exists() or log.read_text() == "started\n"
