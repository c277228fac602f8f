"""What the channel bridge has to do, a named test each; the details are beside this file."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import remoteclaw.bridge
from remoteclaw.bridge import ChannelBridge, FileSessionMap, read_mcp_side_effects
from remoteclaw.bridge.side_effects import FILE_NAME
from remoteclaw.errors import ErrorCategory
from remoteclaw.home import Home
from remoteclaw.messages import (
    AgentDeliveryResult,
    McpServerConfig,
    ReplyPayload,
    SentTarget,
    SessionKey,
    ToolResultEvent,
)
from remoteclaw.protocols import BridgeCallbacks, conversation_name
from tests.support.bridges import demo_bridge, script
from tests.support.stack import message

#: An agent that does what its message says.
AGENT = """
import glob
while True:
    text = turn()['prompt'].split('\\n\\n')[-1]
    if text.startswith('error '):
        say(type='text', text='I try')
        say(type='done', error=text[6:])
        continue
    [run] = glob.glob(os.environ['RUNS'] + '/*')
    with open(run + '/side-effects.ndjson', 'a') as file:
        print(json.dumps(dict(type='cron_added')), file=file)
    say(type='text', text='answered ' + text)
    say(type='done')
"""


async def test_it_takes_a_message_through_an_agent_to_a_result(home: Home) -> None:
    async with demo_bridge(home) as (bridge, _, _):
        result = await bridge.handle(message("hello"))

    assert isinstance(result, AgentDeliveryResult)
    assert "demo agent" in result.payloads[0].text
    assert "demo agent" in result.run.text
    assert (result.error, result.error_category, result.mcp.cron_adds) == (None, None, 0)


async def test_callbacks_are_invoked_during_execution(home: Home) -> None:
    heard: list[str] = []

    async def note(payload: ReplyPayload) -> None:
        heard.append("block" if payload.delivered else "text")

    async def tool(_event: ToolResultEvent) -> None:
        heard.append("tool")

    callbacks = BridgeCallbacks(on_partial_reply=note, on_block_reply=note, on_tool_result=tool)
    async with demo_bridge(home, chunk_limit=400) as (bridge, _, _):
        result = await bridge.handle(message("hello"), callbacks)

    assert heard == ["tool", *["text"] * len(result.payloads)]
    assert len(result.payloads) > 1


async def test_side_effects_are_read_from_the_turns_file(home: Home, directory: Path) -> None:
    env = {"PATH": "/bin", "RUNS": str(home.runs)}
    async with demo_bridge(home, command=script(directory, AGENT), env=env) as (bridge, _, _):
        results = [(await bridge.handle(message(text))).mcp for text in ("one", "two")]

    assert [result.cron_adds for result in results] == [1, 1]


def test_a_side_effects_file_is_read_whatever_is_in_it(directory: Path) -> None:
    file = directory / FILE_NAME
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
    env = {"PATH": "/bin", "RUNS": str(home.runs)}
    async with demo_bridge(home, command=script(directory, AGENT), env=env) as (bridge, _, _):
        result = await bridge.handle(message(f"error {said}"))

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


async def test_mcp_servers_reach_the_runtime(home: Home) -> None:
    """Each runtime hands them on in its own way; another set of them is another agent."""
    servers = {"probe": McpServerConfig(command="probe-server", env={"KEY": "value"})}
    async with demo_bridge(home, mcp_servers=servers) as (bridge, keeper, _):
        await bridge.handle(message("hello"))
        agent = keeper.record()
        bridge._mcp_servers = {}
        await bridge.handle(message("hello"))

        assert agent != keeper.record()


async def test_an_agents_run_directory_is_private_and_goes_with_it(home: Home) -> None:
    async with demo_bridge(home) as (bridge, keeper, _):
        await bridge.handle(message("hello"))
        run_dir = keeper.run_dir
        mode = run_dir.stat().st_mode

    assert mode & 0o077 == 0
    assert not run_dir.exists()


def test_every_public_name_says_what_it_means() -> None:
    for name in remoteclaw.bridge.__all__:
        public: Any = getattr(remoteclaw.bridge, name)
        if callable(public):
            assert inspect.getdoc(public), name
    for name, method in inspect.getmembers(ChannelBridge, inspect.isfunction):
        assert name.startswith("_") or inspect.getdoc(method), name
