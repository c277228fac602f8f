"""Channel bridges with real agents and without Redis."""

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from remoteclaw.bridge import ChannelBridge, Hooks
from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import FleetConfig
from remoteclaw.messages import Attachment
from remoteclaw.protocols import AgentProcess, AgentSpec, Conversation, Runtime
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.session.agent import AgentKeeper

#: An agent whose turns end once the file `go` is in its workspace.
WAITING = """
while True:
    word = turn()['prompt'].split()[-1]
    say(type='text', text='heard ' + word)
    while not os.path.exists('go'):
        time.sleep(0.005)
    say(type='done')
"""


class MemorySessionMap(dict[str, str]):
    """A session map in memory: the CLIs' ids, which a test may change."""

    def __init__(self) -> None:
        super().__init__()
        self.conversations: dict[str, Conversation] = {}

    async def get(self, name: str) -> Conversation | None:  # type: ignore[override]
        """Return the conversation that is stored under a name."""
        if name not in self:
            return None
        stored = self.conversations.get(name, Conversation(""))
        return replace(stored, id=self[name])

    async def set(self, name: str, conversation: Conversation) -> None:
        """Store a conversation."""
        self[name] = conversation.id
        self.conversations[name] = conversation

    async def delete(self, name: str) -> None:
        """Delete an id."""
        self.pop(name, None)


class OneFile:
    """A store with one file, for a message that names it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def load(self, _attachment: Attachment) -> bytes:
        return self._content

    async def store(self, name: str, content: bytes) -> Attachment:
        raise AssertionError("nothing is sent")


Bridge = tuple[ChannelBridge, AgentKeeper, MemorySessionMap]


def demo_bridge(
    home: Home, *, hooks: Hooks | None = None, **options: Any
) -> contextlib.AbstractAsyncContextManager[Bridge]:
    """Open a bridge to the demo agent, and end the agent at exit."""
    return agent_bridge(home, "demo", hooks=hooks, **options)


@contextlib.asynccontextmanager
async def agent_bridge(
    home: Home, name: str, *, hooks: Hooks | None = None, **options: Any
) -> AsyncIterator[Bridge]:
    """Open a bridge to an agent of a runtime, and end the agent at exit.

    `options` are fields of its `AgentSpec`, or parts of the bridge.
    """
    runtime = options.pop("runtime", None) or create_cli_runtime(name)
    keeper = _keeper(home)
    session_map = options.pop("session_map", MemorySessionMap())
    names = {field.name for field in fields(AgentSpec)}
    of_agent = {key: options.pop(key) for key in names & options.keys()}
    spec = _spec(home, runtime, of_agent)
    parts = {"runtime": runtime, "agents": keeper, "session_map": session_map, "hooks": hooks}
    bridge = ChannelBridge(spec, **{**parts, **options})
    try:
        yield bridge, keeper, session_map
    finally:
        await keeper.discard()


@contextlib.asynccontextmanager
async def agent_process(
    home: Home, name: str, session_id: str | None = None, **of_agent: Any
) -> AsyncIterator[tuple[AgentProcess, AgentKeeper]]:
    """Start an agent of a runtime without a bridge, to test its process alone."""
    keeper = _keeper(home)
    spec = _spec(home, create_cli_runtime(name), of_agent)
    try:
        yield await keeper.obtain(spec, session_id=session_id), keeper
    finally:
        await keeper.discard()


def _keeper(home: Home) -> AgentKeeper:
    return AgentKeeper(
        home,
        epoch=1,
        kill_at=lambda: boottime() + 600,
        warm_s=600,
        budget=FleetConfig(),
        parked=None,
        finished_turn=None,
    )


def _spec(home: Home, runtime: Runtime, of_agent: dict[str, Any]) -> AgentSpec:
    workspace = home.path / "work"
    workspace.mkdir(exist_ok=True)
    return AgentSpec(
        **{
            "runtime": runtime.name,
            "command": runtime.command,
            "workspace": str(workspace),
            "env": runtime.environment(os.environ),
            **of_agent,
        }
    )


def script(directory: Path, body: str) -> tuple[str, ...]:
    """Return the command of an agent that speaks the demo agent's protocol, scripted by `body`.

    `body` can use `turn`, a function that returns the next message, and `say`.
    """
    file = directory / "agent.py"
    file.write_text(
        "import json, sys, time, os\n"
        "def turn():\n"
        "    line = sys.stdin.readline()\n"
        "    if not line: sys.exit()\n"
        "    return json.loads(line)\n"
        "def say(**message): print(json.dumps(message), flush=True)\n" + body
    )
    return (sys.executable, "-I", "-S", str(file))


def claude_script(directory: Path, body: str) -> tuple[str, ...]:
    """Return the command of a program that speaks claude's protocol, scripted by `body`.

    `body` can use `heard`, which returns our next line of a type, `answer_host`, which accepts MCP
    servers and models and tells the `size` of the conversation, as `heard` does, `chosen`, the list
    of these models, `echo`, which repeats our message as claude does, `asks`, which sends the
    request of the hook before a tool, and `result`.
    """
    words = (
        "chosen, size = [], None\n"
        "def answer_host(message):\n"
        "    request = message.get('request', {})\n"
        "    if request.get('subtype') == 'set_model': chosen.append(request['model'])\n"
        "    if request.get('subtype') in ('mcp_set_servers', 'set_model', 'get_settings'):\n"
        "        say(type='control_response', response=dict(subtype='success',\n"
        "            request_id=message['request_id'], response={}))\n"
        "    if request.get('subtype') == 'get_context_usage':\n"
        "        say(type='control_response', response=dict(subtype='success',\n"
        "            request_id=message['request_id'],\n"
        "            response=dict(totalTokens=size, maxTokens=200_000)))\n"
        "def heard(kind='user'):\n"
        "    for line in sys.stdin:\n"
        "        if (message := json.loads(line))['type'] == kind: return message\n"
        "        answer_host(message)\n"
        "    sys.exit()\n"
        "def echo(message): say(**message, isReplay=True)\n"
        "def asks(id, tool, given): say(type='control_request', request_id=id, request=dict(\n"
        "    subtype='hook_callback', input=dict(\n"
        "        tool_name=tool, tool_use_id=id, tool_input=given, cwd=os.getcwd())))\n"
        "def result(text, **more):\n"
        "    say(**{'type': 'result', 'num_turns': 1, 'result': text, **more})\n"
        "def delta(text): say(type='stream_event', event=dict(\n"
        "    type='content_block_delta', delta=dict(type='text_delta', text=text)))\n"
    )
    return script(directory, words + body)


def acp_script(directory: Path, body: str) -> tuple[str, ...]:
    """Return the command of a program that speaks the Agent Client Protocol, scripted by `body`.

    `body` can use `asked`, which returns our next line for a method, `answer`, `update`, and
    `begin`, which does the handshake before the first prompt and returns that prompt.
    """
    words = (
        "def asked(method=None):\n"
        "    for line in sys.stdin:\n"
        "        message = json.loads(line)\n"
        "        if method is None or message.get('method') == method: return message\n"
        "    sys.exit()\n"
        "def answer(message, **result): say(jsonrpc='2.0', id=message['id'], result=result)\n"
        "def fail(message, code, text):\n"
        "    say(jsonrpc='2.0', id=message['id'], error=dict(code=code, message=text))\n"
        "def update(kind, /, **more):\n"
        "    say(jsonrpc='2.0', method='session/update',\n"
        "        params=dict(sessionId='s', update=dict(sessionUpdate=kind, **more)))\n"
        "def text(words): update('agent_message_chunk', content=dict(type='text', text=words))\n"
        "def begin(**can):\n"
        "    answer(asked('initialize'), protocolVersion=1, agentCapabilities=can)\n"
        "    answer(asked('session/new'), sessionId='s')\n"
        "    return asked('session/prompt')\n"
    )
    return script(directory, words + body)
