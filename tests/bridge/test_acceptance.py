"""What the channel bridge has to do, a named test each; the details are beside this file."""

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

#: An agent that fails as its message says. It reads that first: what it says before a turn belongs
#: to no turn.
AGENT = """
told = turn()['prompt'].split('\\n\\n')[-1]
say(type='text', text='I try')
say(type='done', error=told)
"""


async def test_it_takes_a_message_through_an_agent_to_a_result(home: Home) -> None:
    async with demo_bridge(home) as (bridge, _, _):
        result = await bridge.handle(message("hello"))

    assert isinstance(result, AgentDeliveryResult)
    assert "demo agent" in result.payloads[0].text
    assert "demo agent" in result.run.text
    assert (result.error, result.error_category, result.mcp.cron_adds) == (None, None, 0)


async def test_callbacks_are_invoked_during_execution(home: Home, directory: Path) -> None:
    heard: list[str] = []

    async def partial(payload: ReplyPayload) -> None:
        heard.append(f"partial {payload.index}")

    async def block(payload: ReplyPayload) -> None:
        heard.append(f"block {payload.index}")

    async def tool(event: ToolResultEvent) -> None:
        heard.append(f"tool {event.output}")

    async def phase(name: str, _detail: str) -> None:
        heard.append(name)

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
        on_thinking=lambda text: heard.append(f"thinking {text}"),
        on_phase=phase,
    )
    command = script(directory, body)
    async with demo_bridge(home, command=command, channel=ChannelConfig(chunk_limit=100)) as (
        bridge,
        _,
        _,
    ):
        result = await bridge.handle(message("hello"), callbacks)

    assert heard[:4] == ["spawned", "tool", "tool seen", "thinking hm"]
    assert heard[4:] == ["output", "partial 0", "block 1"]
    assert [payload.delivered for payload in result.payloads] == [True, True]


def test_a_side_effects_file_is_read_whatever_is_in_it(directory: Path) -> None:
    file = directory / SIDE_EFFECTS_FILE
    sent = {"type": "message_sent", "tool": "message_send", "provider": "slack", "accountId": "w"}
    sent |= {"to": "C1", "text": "hi", "mediaUrl": "https://example.org/a.png"}
    lines = [json.dumps(sent), "{broken", "[1]", '{"type": "of the future"}', json.dumps({})]
    file.write_text("\n".join([*lines, json.dumps({"type": "cron_added"}), '{"type": "half']))

    found = read_mcp_side_effects(file)

    assert found.sent_texts == ("hi",)
    assert found.sent_media_urls == ("https://example.org/a.png",)
    assert found.sent_targets == (SentTarget("message_send", "slack", "w", "C1"),)
    assert found.cron_adds == 1
    assert read_mcp_side_effects(directory / "not there").sent_texts == ()


@pytest.mark.parametrize(
    ("said", "category", "subtype"),
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
    home: Home, directory: Path, said: str, category: ErrorCategory, subtype: str
) -> None:
    """Also one that a CLI reports as an event; and it is not tried again here."""
    async with demo_bridge(home, command=script(directory, AGENT)) as (bridge, _, _):
        result = await bridge.handle(message(said))

    assert (result.error_category, result.run.error_subtype) == (category, subtype)
    assert [payload.is_error for payload in result.payloads] == [False, True]
    assert said not in result.payloads[1].text


async def test_sessions_are_looked_up_and_updated(home: Home) -> None:
    key = SessionKey.of(message("hello"), agent="main")
    sessions = FileSessionMap(home.path, key)
    async with demo_bridge(home, session_map=sessions) as (bridge, keeper, _):
        first = await bridge.handle(message("hello"))
        await keeper.discard()
        second = await bridge.handle(message("memory"))

    name = conversation_name("demo", str(home.path / "work"))
    assert await sessions.get(name) == first.run.session_id == second.run.session_id
    assert "- hello" in second.payloads[0].text


async def test_mcp_servers_reach_the_runtime_with_their_environment(home: Home) -> None:
    """Each runtime hands them on in its own way."""
    specs: list[AgentSpec] = []
    servers = {"probe": McpServerConfig(command="probe-server", env={"KEY": "value"})}
    async with demo_bridge(home, mcp_servers=servers) as (bridge, keeper, _):
        obtain = keeper.obtain

        async def note(spec: AgentSpec, **more: Any) -> Any:
            specs.append(spec)
            return await obtain(spec, **more)

        keeper.obtain = note  # type: ignore[method-assign]
        await bridge.handle(message("hello"))

    assert [spec.mcp_servers for spec in specs] == [servers]


def test_the_bridge_alone_asks_agents() -> None:
    """`handle()` is the one way in: nobody else begins a turn."""
    package = Path(remoteclaw.bridge.__file__).parents[1]
    callers = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"\b_?agent\.(turn|steer|answer)\(", file.read_text())
    }

    assert callers == {"bridge/exchange.py", "bridge/conduct.py"}


async def test_an_agents_run_directory_is_private_and_goes_with_it(home: Home) -> None:
    async with demo_bridge(home) as (bridge, keeper, _):
        await bridge.handle(message("hello"))
        run_dir = keeper.run_dir
        mode = run_dir.stat().st_mode

    assert mode & 0o077 == 0
    assert not run_dir.exists()


def test_every_name_of_the_page_is_there() -> None:
    page = Path(__file__).parents[2] / "docs" / "bridge.md"
    names = re.findall(r"^\| .* \| `([\w.]+)(?:\(\))?` \|$", page.read_text(), re.MULTILINE)

    assert len(names) > 10
    for name in names:
        module, *path = name.split(".")
        found: Any = importlib.import_module(f"remoteclaw.{module}")
        for part in path:
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields[part] if part in fields else getattr(found, part)


def test_every_public_name_says_what_it_means() -> None:
    for name in remoteclaw.bridge.__all__:
        public: Any = getattr(remoteclaw.bridge, name)
        if callable(public):
            assert inspect.getdoc(public), name
    for name, method in inspect.getmembers(ChannelBridge, inspect.isfunction):
        assert name.startswith("_") or inspect.getdoc(method), name
