"""One conversation with each real CLI: in turns, in a terminal, and in turns again.

A start of a CLI costs one to seven seconds of CPU: so what each is seen to do is seen in three.
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
from tests.support.bridged import Agent, Open, hostile_settings, own_settings, said, sly_server
from tests.support.pictures import png
from tests.support.prefixes import asked, word
from tests.support.processes import is_alive
from tests.support.stack import message
from tests.support.terminal_walks import in_its_terminal
from tests.support.waiting import HANG_S, eventually

#: The rules of an agent that asks for all else.
ALLOWED = ("Bash(touch one)", "Bash(touch two:*)")


@pytest.mark.timeout(600)  # each of the three has its own limit
async def test_one_conversation_goes_through_turns_a_terminal_and_turns(
    opened: Open, cli: AgentCli, home: Home, directory: Path
) -> None:
    """First with the model that was chosen, which is another than the CLI's own choice."""
    model, asked_for = {
        "claude": ("claude-opus-4-8", "claude-opus-4-8"),
        "codex": ("another", "another"),
        "gemini": ("gemini-2.5-pro", "gemini-2.5-pro"),
        "opencode": ("scripted/other", "other"),
    }[cli.name]
    before = len(cli.model.requests())
    broken = McpServerConfig(command=sys.executable, args=("-c", "raise SystemExit(1)"))
    options = {
        "mcp_servers": {"broken": broken, "sly": sly_server(directory / "sly")},
        "inherit_mcp": False,
        "trust_workspace": cli.name == "gemini",  # else it has no servers
    }
    own = own_settings(cli, directory / "mine")
    rules = {"permissions": "ask", "allow": ALLOWED}
    async with opened(model=model, **rules, **options) as agent, asyncio.timeout(HANG_S * 2):
        await uses_a_server(agent)
        await says_everything(agent)
        await waits_warm(agent)
        await does_what_a_rule_or_a_person_allows(agent)
        await is_stopped(agent)
        await is_killed(agent)
    requests = cli.model.requests()[before:]
    assert {request["model"] for request in requests if not request["is_aside"]} == {asked_for}

    own.unlink()
    await in_its_terminal(home, cli, *agent.session_map.values())
    await goes_on_in_turns(opened, agent, directory)


# -- with permissions that people give ------------------------------------------------------------


async def uses_a_server(agent: Agent) -> None:
    """Its tools need no permission, and what it asks has no answer; the user's is not there."""
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
        told = FORM.format(who="The MCP server `sly`", message="Really delete everything?")
        assert '{"action": "cancel"}' in answer
        assert answer.endswith(f"\n\n{told}")


async def says_everything(agent: Agent) -> None:
    """The system prompt, text, thoughts, pictures and files."""
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


async def waits_warm(agent: Agent) -> None:
    """Parked, it is taken over as it is; its usage is that of the turn."""
    pid = agent.pid
    agent.keeper.finished("1-0")
    await agent.keeper.park()
    second = await agent.ask("RECALL")

    assert agent.pid == pid
    assert "SAY:hello from the model" in said(second)
    assert (second.run.usage.input_tokens, second.run.usage.output_tokens) == (100, 7)


async def does_what_a_rule_or_a_person_allows(agent: Agent) -> None:
    """And nothing else. Who is asked decides about each call: none is allowed for longer."""
    asked: list[PermissionEvent] = []

    async def allow(event: PermissionEvent) -> Decision:
        asked.append(event)
        if agent.cli.name in ("claude", "codex"):  # a question is answered meanwhile
            assert (await agent.process.aside("SAY:beside")).strip() == "beside"
        return Decision("allow")

    before = {*agent.workspace.iterdir()}
    result = await agent.ask("SHELL:touch made-by-the-agent")
    allowed = await agent.ask("SHELL:touch five", on_permission=allow)
    assert {*agent.workspace.iterdir()} - before == {agent.workspace / "five"}
    await agent.ask("SHELL:touch five", on_permission=allow)
    exact = await agent.ask("SHELL:touch one")
    longer = await agent.ask("SHELL:touch two three")
    behind = await agent.ask("SHELL:touch two && touch four")

    assert result.run.permission_denials
    assert "permission" in said(result)
    assert 'allow = ["Bash(touch made-by-the-agent)"]' in said(result)
    assert "[agents.main]" in said(result)
    assert ["touch five" in str(event.input) for event in asked] == [True, True]
    assert allowed.run.permission_denials == ()
    assert "beside" not in said(allowed)
    assert exact.run.permission_denials == longer.run.permission_denials == ()
    assert behind.run.permission_denials
    made = {path.name for path in {*agent.workspace.iterdir()} - before}
    assert made == {"one", "two", "three", "five"}


async def is_stopped(agent: Agent) -> None:
    """In the middle of a text; the process goes on."""
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
    # gemini keeps nothing of a turn that was stopped.
    assert ("DRIP:500:100" in said(after)) is (agent.cli.name != "gemini")


async def is_killed(agent: Agent) -> None:
    """In the middle of a text; another one comes for the next message, and goes on there."""

    def kill(_index: int, text: str) -> None:
        if "w3" in text:
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent.pid, signal.SIGKILL)

    killed = await agent.ask("DRIP:500:50", on_live_text=kill)
    await eventually(lambda: not is_alive(agent.pid))
    assert killed.error_category is ErrorCategory.DIED
    # A new process of gemini has no way back; opencode's goes on in the terminal and behind it.
    if agent.cli.name in ("claude", "codex"):
        assert await agent.say("SAY:back") == "back"


# -- again, with all that it may do ---------------------------------------------------------------


async def goes_on_in_turns(opened: Open, before: Agent, directory: Path) -> None:
    """With what was said in turns and in the terminal, and nothing that the workspace asks for."""
    cli, hostile, log = before.cli, directory / "hostile", directory / "log"
    # Slower than any of them waits by itself; it is there at the first turn.
    settings, last = own_settings(cli, directory / "mine", delay_s=3), word("last")
    own = settings.read_bytes()
    hostile_settings(cli, before.workspace, hostile)
    here = sorted(before.workspace.rglob("*"))
    given = {"session_map": before.session_map, "mcp_servers": {"probe": sly_server(log)}}
    ids = [*before.session_map.values()]
    async with opened(permissions="auto", **given) as agent, asyncio.timeout(HANG_S * 2):
        first = await agent.ask("TOOLS")
        if cli.name == "gemini":  # so the session goes on from its record, and it isn't trusted
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
        if cli.name in ("gemini", "opencode"):  # test_asides.py has the others
            await runs_no_tool_beside_a_turn(agent, log)
        long = await agent.say("x" * 200_000 + " LEN")
        assert int(long.removeprefix("LEN ")) > 200_000

    assert settings.read_bytes() == own
    assert not hostile.exists()


async def uses_a_tool(agent: Agent) -> None:
    """The call and its result are told; so is its failure."""
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
    if agent.cli.name == "codex":  # the others hand their whole environment on (docs/agents.md)
        environment = await agent.say("SHELL:env")
        assert "PATH=" in environment
        assert "nobody's key" not in environment


async def is_joined(agent: Agent) -> None:
    """A message that comes while a tool runs is taken up in the same turn."""
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
    """With the turn; what it would have done is not done."""
    abort = asyncio.Event()

    async def stop() -> None:
        await eventually((agent.workspace / "begun").exists)
        await asyncio.sleep(0.7)  # at first, codex ends it with the turn in any case
        abort.set()

    stopping = asyncio.create_task(stop())
    done = f"done-{uuid.uuid4().hex}"
    text = f"SHELL:touch begun; sleep {2 * HANG_S:.0f}; touch {done}"
    result = await agent.bridge.handle(message(text), BridgeCallbacks(), abort)
    await stopping
    await eventually(lambda: not shells_of(done))

    assert result.error_category is ErrorCategory.ABORTED


def shells_of(command: str) -> list[str]:
    """Return the command lines that run now and have this in them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_text(errors="replace"))
    return [line for line in found if command in line]


async def runs_no_tool_beside_a_turn(agent: Agent, log: Path) -> None:
    """None of its own and none of a server's, also where it isn't trusted and keeps its tools."""
    marker, note = agent.workspace / "marker", agent.workspace / "note.txt"
    note.write_text("a secret of the workspace")
    is_copy = agent.cli.name == "opencode"  # gemini is told notes, and has no servers there
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

    assert ("SAY:hello from the model" in recalled) is is_copy
    assert not marker.exists()
    assert "a secret of the workspace" not in agent.cli.model.bodies()
    assert not log.exists() or log.read_text() == "started\n"
