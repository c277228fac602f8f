"""Acceptance tests of the channel bridge, one per requirement; the other files test details."""

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import remoteclaw.bridge
from remoteclaw.bridge import ChannelBridge, FileSessionMap, read_mcp_side_effects
from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import ToolResultEvent
from remoteclaw.messages import (
    AgentDeliveryResult,
    McpServerConfig,
    ReplyPayload,
    SentTarget,
    SessionKey,
)
from remoteclaw.protocols import SIDE_EFFECTS_FILE, AgentSpec, BridgeCallbacks, conversation_name
from tests.support.bridges import demo_bridge, script
from tests.support.stack import message

#: An agent that fails with its message as the error. It reads the message first, because output
#: before a turn belongs to no turn.
AGENT = """
error = turn()['prompt'].split('\\n\\n')[-1]
say(type='text', text='I try')
say(type='done', error=error)
"""


async def test_the_bridge_runs_a_message_through_an_agent_to_a_result(home: Home) -> None:
    async with demo_bridge(home) as (bridge, _, _):
        result = await bridge.handle(message("hello"))

    assert isinstance(result, AgentDeliveryResult)
    assert "demo agent" in result.payloads[0].text
    assert "demo agent" in result.run.text
    assert (result.error, result.error_category, result.mcp.cron_adds) == (None, None, 0)


async def test_callbacks_are_invoked_during_execution(home: Home, directory: Path) -> None:
    called: list[str] = []

    async def partial(payload: ReplyPayload) -> None:
        called.append(f"partial {payload.index}")

    async def block(payload: ReplyPayload) -> None:
        called.append(f"block {payload.index}")

    async def tool(event: ToolResultEvent) -> None:
        called.append(f"tool {event.output}")

    async def phase(name: str, _detail: str) -> None:
        called.append(name)

    body = (
        "turn()\n"
        "say(type='tool_use', id='1', name='look', input={})\n"
        "say(type='tool_result', id='1', output='seen')\n"
        "say(type='thinking', text='hm')\n"
        "say(type='text', text='one ' * 40)\n"
        "say(type='done')\n"
    )
    callbacks = BridgeCallbacks(
        on_partial_reply=partial,
        on_block_reply=block,
        on_tool_result=tool,
        on_thinking=lambda text: called.append(f"thinking {text}"),
        on_phase=phase,
    )
    command = script(directory, body)
    async with demo_bridge(home, command=command, channel=ChannelConfig(chunk_limit=100)) as (
        bridge,
        _,
        _,
    ):
        result = await bridge.handle(message("hello"), callbacks)

    assert called[:4] == ["spawned", "tool", "tool seen", "thinking hm"]
    assert called[4:] == ["output", "partial 0", "block 1"]
    assert [payload.delivered for payload in result.payloads] == [True, True]


def test_a_side_effects_file_with_invalid_lines_is_read(directory: Path) -> None:
    file = directory / SIDE_EFFECTS_FILE
    sent = {"type": "message_sent", "tool": "message_send", "provider": "slack", "accountId": "w"}
    sent |= {"to": "C1", "text": "hi", "mediaUrl": "https://example.org/a.png"}
    lines = [json.dumps(sent), "{broken", "[1]", '{"type": "of the future"}', json.dumps({})]
    file.write_text("\n".join([*lines, json.dumps({"type": "cron_added"}), '{"type": "half']))

    effects = read_mcp_side_effects(file)

    assert effects.sent_texts == ("hi",)
    assert effects.sent_media_urls == ("https://example.org/a.png",)
    assert effects.sent_targets == (SentTarget("message_send", "slack", "w", "C1"),)
    assert effects.cron_adds == 1
    assert read_mcp_side_effects(directory / "not there").sent_texts == ()


@pytest.mark.parametrize(
    ("error", "category", "subtype"),
    [
        ("429 rate limit", ErrorCategory.RETRYABLE, "retryable"),
        ("prompt is too long", ErrorCategory.CONTEXT_OVERFLOW, "context_window"),
        ("401 unauthorized", ErrorCategory.AUTH, "auth"),
        ("request timed out", ErrorCategory.TIMEOUT, "timeout"),
        ("credit balance is too low", ErrorCategory.BILLING, "billing"),
        ("no such thing", ErrorCategory.FATAL, "fatal"),
    ],
)
async def test_an_error_sets_its_subtype(
    home: Home, directory: Path, error: str, category: ErrorCategory, subtype: str
) -> None:
    """This holds for an error that a CLI reports as an event; the bridge does not retry it."""
    async with demo_bridge(home, command=script(directory, AGENT)) as (bridge, _, _):
        result = await bridge.handle(message(error))

    assert (result.error_category, result.run.error_subtype) == (category, subtype)
    assert [payload.is_error for payload in result.payloads] == [False, True]
    assert error not in result.payloads[1].text


async def test_sessions_are_looked_up_and_updated(home: Home) -> None:
    key = SessionKey.of(message("hello"), agent="main")
    sessions = FileSessionMap(home.path, key)
    async with demo_bridge(home, session_map=sessions) as (bridge, keeper, _):
        first = await bridge.handle(message("hello"))
        await keeper.discard()
        second = await bridge.handle(message("memory"))

    name = conversation_name("main", "demo", str(home.path / "work"))
    stored = await sessions.get(name)
    assert stored is not None
    assert stored.id == first.run.session_id == second.run.session_id
    assert "- hello" in second.payloads[0].text


async def test_mcp_servers_reach_the_runtime_with_their_environment(home: Home) -> None:
    """Each runtime passes them to its CLI in its own way."""
    specs: list[AgentSpec] = []
    servers = {"probe": McpServerConfig(command="probe-server", env={"KEY": "value"})}
    async with demo_bridge(home, mcp_servers=servers) as (bridge, keeper, _):
        obtain = keeper.obtain

        async def obtain_and_note(spec: AgentSpec, **more: Any) -> Any:
            specs.append(spec)
            return await obtain(spec, **more)

        keeper.obtain = obtain_and_note  # type: ignore[method-assign]
        await bridge.handle(message("hello"))

    assert [spec.mcp_servers for spec in specs] == [servers]


def test_only_the_bridge_begins_turns_of_agents() -> None:
    """`handle()` is the only entry point: no other module begins, steers or answers a turn."""
    package = Path(remoteclaw.bridge.__file__).parents[1]
    callers = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"\b_?agent\.(turn|steer|answer)\(", file.read_text())
    }

    assert callers == {"bridge/exchange.py", "bridge/conduct.py"}


async def test_the_run_directory_of_an_agent_is_private_and_removed_with_it(home: Home) -> None:
    async with demo_bridge(home) as (bridge, keeper, _):
        await bridge.handle(message("hello"))
        run_dir = keeper.run_dir
        mode = run_dir.stat().st_mode

    assert mode & 0o077 == 0
    assert not run_dir.exists()


def test_every_name_in_the_bridge_documentation_exists() -> None:
    page = Path(__file__).parents[2] / "docs" / "bridge.md"
    names = re.findall(r"^\| .* \| `([\w.]+)(?:\(\))?` \|$", page.read_text(), re.MULTILINE)

    assert len(names) > 10
    for name in names:
        module, *path = name.split(".")
        target: Any = importlib.import_module(f"remoteclaw.{module}")
        for part in path:
            fields = getattr(target, "__dataclass_fields__", {})
            target = fields[part] if part in fields else getattr(target, part)


def test_every_public_name_of_the_bridge_has_a_docstring() -> None:
    for name in remoteclaw.bridge.__all__:
        public: Any = getattr(remoteclaw.bridge, name)
        if callable(public):
            assert inspect.getdoc(public), name
    for name, method in inspect.getmembers(ChannelBridge, inspect.isfunction):
        assert name.startswith("_") or inspect.getdoc(method), name
