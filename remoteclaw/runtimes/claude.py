"""Claude Code, over its own long-lived protocol: stream-json on standard input and output.

Everything that holds a secret (system prompt, MCP servers) goes over the wire, nothing into argv,
and no file of the user's is edited. What a workspace says about claude is not obeyed.
"""

import asyncio
import base64
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.errors import AgentUnavailable, classify_error
from remoteclaw.messages import Image, McpServerConfig
from remoteclaw.protocols import FILES, AgentPipes, AgentSpec, Capabilities, Launch
from remoteclaw.runtimes.agent import CliProcess
from remoteclaw.runtimes.base import BaseRuntime, inherit, server_environment
from remoteclaw.runtimes.claude_failure import complaint
from remoteclaw.runtimes.claude_peer import ClaudePeer
from remoteclaw.runtimes.claude_turn import ClaudeTurn, Conversation
from remoteclaw.runtimes.wire import mapping

__all__ = ["ClaudeProcess", "ClaudeRuntime"]

#: The longest wait for claude's MCP servers, in seconds. Claude gives each of them 30 s itself, and
#: then goes on without it and says so.
START_S = 60.0
#: The number of retries of a failed request to the model, unless the environment sets it.
#: Its own default of 10 keeps a person waiting for three minutes; 4 take about 8 seconds.
MAX_RETRIES = "4"
#: The names of models that claude is asked for, as it gives them itself: `claude-opus-4-8[1m]`.
_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@-]*(\[\w+\])?")

log = logging.getLogger(__name__)


class ClaudeRuntime(BaseRuntime):
    """Claude Code."""

    name = "claude"
    command = ("claude",)
    capabilities = Capabilities(
        steers=True, explains_denial=True, reports_cost=True, forks=True, tested="2.1.197"
    )
    natives = ("@anthropic-ai/claude-code-linux-*/claude",)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return what claude needs of our environment: its own settings and its provider's keys."""
        prefixes = ["ANTHROPIC_", "CLAUDE_", "DISABLE_", "MCP_"]
        if inherited.get("CLAUDE_CODE_USE_BEDROCK"):
            prefixes.append("AWS_")
        if inherited.get("CLAUDE_CODE_USE_VERTEX"):
            prefixes += ["GOOGLE_", "VERTEX_", "CLOUD_ML_"]
        # Set by a claude for the shells it starts; another claude would take itself for nested.
        markers = ("CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID")
        env = inherit(inherited, prefixes=prefixes, without=markers)
        env.setdefault("CLAUDE_CODE_MAX_RETRIES", MAX_RETRIES)
        # Nothing reads what claude says when a timer of its own goes off, so it has none.
        env.setdefault("CLAUDE_CODE_DISABLE_CRON", "1")
        # The first turn has the user's own MCP servers: claude waits for them, 5 s at most.
        env.setdefault("MCP_CONNECTION_NONBLOCKING", "0")
        # Else each process begins its prompt with the workspace's git status of that moment.
        env.setdefault("CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS", "1")
        return env

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line; a new conversation gets an id of our choice, known from now."""
        fresh_id = str(uuid.uuid4())
        argv = [*spec.command, "-p", "--verbose", "--include-partial-messages"]
        argv += ["--input-format", "stream-json", "--output-format", "stream-json"]
        argv += ["--permission-prompt-tool", "stdio", "--replay-user-messages"]
        # The workspace's only if it is trusted: its hooks run whatever the agent may do.
        argv += [f"--setting-sources={'user,project,local' if spec.trust_workspace else 'user'}"]
        if session_id:
            argv.append(f"--resume={session_id}")
        if fork:
            argv.append("--fork-session")
        if fork or not session_id:
            argv.append(f"--session-id={fresh_id}")
        # A resumed claude takes the model's plain name from its transcript, without its context.
        if model := spec.model or (spec.note if _MODEL.fullmatch(spec.note) else ""):
            argv += ["--model", model]
        if not spec.inherit_mcp:
            argv.append("--strict-mcp-config")
        allowed = _reading(run_dir / FILES)
        if spec.permissions != "deny":
            allowed += [f"mcp__{name}" for name in spec.mcp_servers]
        argv += ["--allowedTools", ",".join(allowed)]
        return Launch(
            argv=tuple(argv),
            env=spec.env,
            cwd=spec.workspace,
            session_id=fresh_id if fork or not session_id else session_id,
        )

    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> "ClaudeProcess":
        """Return claude before its handshake."""
        return ClaudeProcess(pipes, session_id)


class ClaudeProcess(CliProcess[dict[str, Any], ClaudeTurn]):
    """One claude, between and during turns."""

    name = "claude"

    def __init__(self, pipes: AgentPipes, session_id: str | None) -> None:
        self._peer = ClaudePeer(pipes)
        super().__init__(pipes, self._peer)
        self._conversation = Conversation(session_id)

    @property
    def session_id(self) -> str | None:
        """Claude's id of the conversation; `claude --resume` takes the same."""
        return self._conversation.session_id

    @property
    def note(self) -> str:
        """The model that claude has named: another process asks for the same."""
        return self._conversation.model

    # -- coming and going ----------------------------------------------------------------------

    async def greet(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
    ) -> None:
        """Send the settings of the process; wait for its MCP servers, for nothing else.

        Claude reads `initialize` before the first message in any case, so its answer, which comes
        after 0.4 s, is not waited for.
        """
        await self._peer.request("initialize", appendSystemPrompt=spec.system_prompt)
        if not spec.mcp_servers:
            return
        servers = {name: _server(server, run_dir) for name, server in spec.mcp_servers.items()}
        request_id = await self._peer.request("mcp_set_servers", servers=servers)
        try:
            async with asyncio.timeout(START_S):
                await self._answer(request_id)
        except TimeoutError:
            log.warning("claude's MCP servers were not ready after %d s", START_S)

    async def _answer(self, request_id: str) -> None:
        """Read until a control request is answered; what it says of failed servers is logged."""
        while True:
            message = await self._next_of_start()
            if message.get("type") == "result":  # for a conversation that it doesn't know, mostly
                why = complaint(message)
                category = classify_error(why)
                raise AgentUnavailable(f"claude did not start: {why}", category=category)
            response = mapping(message.get("response"))
            if response.get("request_id") == request_id:
                for name, why in mapping(mapping(response.get("response")).get("errors")).items():
                    log.warning("claude could not connect MCP server %s: %s", name, why)
                return

    def _state(self) -> dict[str, Any] | None:
        """Return what the next driver must know; None if claude may take a turn by itself.

        With nothing to read it, to answer its questions and to hold its session's lease, claude
        must not take one: while a background task of it runs, it can't be parked.
        """
        if self._conversation.activity.may_speak:
            return None
        return {
            "session_id": self._conversation.session_id,
            "model": self._conversation.model,
            "last_request": self._peer.last_id,
            "cost_so_far": self._conversation.cost,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another driver left off."""
        self._conversation.session_id = state["session_id"]
        self._conversation.model = state["model"]
        self._peer.last_id = state["last_request"]
        self._conversation.cost = state["cost_so_far"]

    def _is_request(self, message: dict[str, Any]) -> bool:
        return message.get("type") == "control_request"

    async def _deny(self, message: dict[str, Any]) -> None:
        await self._peer.deny(message)

    def _note(self, message: dict[str, Any]) -> None:
        self._conversation.note(message)

    # -- a turn --------------------------------------------------------------------------------

    async def _begin(self, prompt: str, images: Sequence[Image]) -> ClaudeTurn:
        turn = ClaudeTurn(self._pipes, self._peer, self._conversation)
        await turn.ask(self._parts(prompt, images))
        return turn

    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message as claude wants it."""
        return [*map(_image_block, images), {"type": "text", "text": prompt}]


def _image_block(image: Image) -> dict[str, Any]:
    data = base64.b64encode(image.data).decode()
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": image.mime_type, "data": data},
    }


def _reading(directory: Path) -> list[str]:
    """Return the rules that let claude read in a directory, whatever links lead there.

    With `--add-dir` it could as well, but would name the directory in its system prompt, and no
    other process' prompt would be like it.
    """
    return [f"Read(/{path}/**)" for path in dict.fromkeys((directory, directory.resolve()))]


def _server(server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return an MCP server as claude wants it described."""
    if server.url is not None:
        return {"type": "http", "url": server.url, "headers": server.headers}
    env = server_environment(server, run_dir)
    return {"type": "stdio", "command": server.command, "args": list(server.args), "env": env}
