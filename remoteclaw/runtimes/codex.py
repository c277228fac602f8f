"""Codex, over its app-server: one long-lived thread, with everything it needs over the wire.

No file of the user's is edited: tools, system prompt and permissions are the thread's own.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import os
import re
import tomllib
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.errors import AgentUnavailable, ErrorCategory, classify_error
from remoteclaw.events import AgentEvent, DoneEvent
from remoteclaw.messages import Image, McpServerConfig
from remoteclaw.protocols import (
    FILES,
    SIDE_EFFECTS_FILE,
    AgentPipes,
    AgentProcess,
    AgentSpec,
    Capabilities,
    Launch,
)
from remoteclaw.runtimes.codex_turn import CodexTurn, deny
from remoteclaw.runtimes.environment import inherit
from remoteclaw.runtimes.jsonrpc import Message, Peer, RpcProcess
from remoteclaw.runtimes.programs import find_program
from remoteclaw.runtimes.wire import count, mapping, text

__all__ = ["CodexProcess", "CodexRuntime"]

#: How long codex is waited for until its MCP servers are connected, in seconds.
START_S = 60.0
#: How long codex itself waits for each of them, in seconds.
MCP_START_S = 30
#: How long it waits for a tool of theirs, in seconds: one of ours may wait for another agent.
MCP_CALL_S = 300

#: What an agent may do without being asked, by our permissions: when codex asks, and what its
#: sandbox keeps it from in any case.
_POLICIES = {
    "auto": ("never", "danger-full-access"),
    "ask": ("untrusted", "workspace-write"),
    "deny": ("untrusted", "read-only"),
}
#: Which tools of a server codex asks about. Unless it is told, it believes what a tool says of
#: itself, such as that it only reads.
APPROVAL = "default_tools_approval_mode"
#: What the commands that codex runs don't get of its environment.
_KEYS = '["OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN"]'
#: What a resumed thread is told, which keeps the system prompt that it was started with.
_INSTRUCTIONS = "These instructions replace those from the beginning of the conversation:\n\n{}"

_NOT_SIGNED_IN = "codex did not start: nobody has signed in to it; `codex login` does that"

log = logging.getLogger(__name__)


class CodexRuntime:
    """How to start codex and how to take over a running one."""

    name = "codex"
    command = ("codex",)
    image_types = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
    capabilities = Capabilities(steers=True, explains_denial=False, forks=True, tested="0.169.0")
    natives = ("@openai/codex-linux-*/vendor/*/bin/codex",)

    def find(self, program: str, path: str | None) -> str | None:
        """Return the program to start: the real one, where npm's script would start that."""
        return find_program(program, path=path, natives=self.natives)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return what codex needs of our environment: its own settings and its provider's keys."""
        markers = ("CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID")
        return inherit(inherited, prefixes=("CODEX_", "OPENAI_"), without=markers)

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec as it is."""
        return spec

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line; which thread it is about is said over the wire."""
        options = [
            "check_for_update_on_startup=false",
            f"shell_environment_policy.exclude={_KEYS}",
            # Agents of its own go on working when it is stopped.
            "features.multi_agent=false",
            _trust(spec),
        ]
        if not spec.trust_workspace:
            options.append("project_doc_max_bytes=0")  # the workspace's AGENTS.md
        for name, own in sorted(_own_servers(spec.env).items()):
            if name in spec.mcp_servers:
                continue  # it stands in its place
            if not spec.inherit_mcp:
                options.append(f"mcp_servers.{name}.enabled=false")
            elif spec.permissions == "deny" and APPROVAL not in own:
                options.append(f'mcp_servers.{name}.{APPROVAL}="prompt"')
        argv = [*spec.command, "app-server"]
        for option in options:
            argv += ["-c", option]
        return Launch(argv=tuple(argv), env=spec.env, cwd=spec.workspace, session_id=session_id)

    async def connect(
        self,
        pipes: AgentPipes,
        spec: AgentSpec,
        *,
        session_id: str | None,
        fork: bool,
        parked_state: Mapping[str, Any] | None,
        run_dir: Path,
    ) -> AgentProcess:
        """Return a codex that is ready for a turn; a new one starts or resumes its thread first."""
        # Who may do nothing that needs a permission may not look around with a shell either.
        may_look = spec.permissions != "deny"
        readable = (Path(spec.workspace), run_dir / FILES) if may_look else ()
        # Codex asks nobody about these; under "deny", it asks us.
        unasked = frozenset(spec.server_names) if may_look else frozenset()
        process = CodexProcess(pipes, readable=readable, unasked=unasked)
        if parked_state is not None:
            process.restore(parked_state)
        else:
            await process.greet(spec, session_id, run_dir, fork=fork)
        return process


class CodexProcess(RpcProcess["CodexTurn"]):
    """One codex with one thread, between and during turns."""

    name = "codex"

    def __init__(
        self,
        pipes: AgentPipes,
        *,
        readable: tuple[Path, ...],
        unasked: frozenset[str] = frozenset(),
    ) -> None:
        """In the `readable` directories, the first of which it works in, it may look around.

        It uses the tools of the `unasked` servers without a question.
        """
        super().__init__(pipes, Peer(pipes, version=None))
        self._readable = readable
        self._unasked = unasked
        self._thread = ""
        self._account = 0
        """The id of the request that asks whether somebody is signed in."""
        self._used: dict[str, int] = {}
        """Tokens of the whole thread so far, as codex counts them."""

    @property
    def session_id(self) -> str | None:
        """The thread's id; `codex resume` takes the same."""
        return self._thread or None

    # -- coming and going ----------------------------------------------------------------------

    async def greet(
        self, spec: AgentSpec, thread: str | None, run_dir: Path, *, fork: bool = False
    ) -> None:
        """Start, resume or fork the thread; wait for its MCP servers, which tell how they fare.

        The requests go out together: codex reads them one after the other in any case.
        """
        client = {"name": "remoteclaw", "title": "RemoteClaw", "version": "1"}
        first = await self._peer.request(
            "initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}}
        )
        await self._peer.notify("initialized")
        self._account = await self._peer.request("account/read", {"refreshToken": False})
        policy, sandbox = _POLICIES[spec.permissions]
        params: dict[str, Any] = {
            "cwd": spec.workspace,
            "approvalPolicy": policy,
            "sandbox": sandbox,
            "config": {
                f"mcp_servers.{name}": _server(server, spec.permissions, run_dir)
                for name, server in spec.mcp_servers.items()
            },
        }
        if spec.model:
            params["model"] = spec.model
        if thread:
            params |= {"threadId": thread, "excludeTurns": True}
            way = "thread/fork" if fork else "thread/resume"
            second = await self._peer.request(way, params)
        else:
            params["developerInstructions"] = spec.system_prompt
            second = await self._peer.request("thread/start", params)
        waiting = {first, second, *spec.mcp_servers}
        while second in waiting:
            await self._hear(await self.next_of_start(), waiting)
        try:
            async with asyncio.timeout(START_S):
                while waiting:
                    await self._hear(await self.next_of_start(), waiting)
        except TimeoutError:
            log.warning("codex's MCP servers were not ready after %d s", START_S)
        prompt = hashlib.sha256(spec.system_prompt.encode("utf-8", "replace")).hexdigest()[:16]
        # Which prompt the thread began with, as long as it was told no other one.
        self.note = prompt if thread is None or prompt == spec.note else ""
        if not self.note:
            await self._instruct(spec.system_prompt)

    async def _hear(self, message: Message, waiting: set[Any]) -> None:
        """Take notice of a message of the start; raises `AgentUnavailable` if there is none."""
        if message.error and message.id in waiting:
            why = str(message.error)
            raise AgentUnavailable(f"codex did not start: {why}", category=classify_error(why))
        if message.method == "mcpServer/startupStatus/updated":
            name, status = text(message.params.get("name")), message.params.get("status")
            if status == "starting":
                waiting.add(name)  # also the user's own servers, so that the first turn has them
            if status == "failed":
                log.warning("codex could not connect MCP server %s", name)
            if status in ("ready", "failed", "cancelled"):
                waiting.discard(name)
        elif message.is_request:
            await deny(self._peer, message)
        elif message.method:
            self._note(message)
        elif message.id == self._account:
            # It would ask its model for minutes, which refuses each time.
            if message.result.get("requiresOpenaiAuth") and message.result.get("account") is None:
                raise AgentUnavailable(_NOT_SIGNED_IN, category=ErrorCategory.AUTH)
        elif message.id in waiting:
            waiting.discard(message.id)
            self._thread = text(mapping(message.result.get("thread")).get("id")) or self._thread

    async def _instruct(self, system_prompt: str) -> None:
        """Tell a resumed thread our system prompt: it began with another one, or was told one."""
        content = [{"type": "input_text", "text": _INSTRUCTIONS.format(system_prompt)}]
        item = {"type": "message", "role": "developer", "content": content}
        await self._peer.request("thread/inject_items", {"threadId": self._thread, "items": [item]})

    def parked_state(self) -> dict[str, Any] | None:
        """Return what the next driver must know; None in a turn, or with a request open."""
        if self._turn is not None:
            return None
        for message in self._peer.take_unread():
            if message.is_request:
                return None
            self._note(message)
        if not self._pipes.is_clean:
            return None
        return {
            "thread": self._thread,
            "note": self.note,
            "last_id": self._peer.last_id,
            "used": self._used,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another driver left off."""
        self._thread = state["thread"]
        self.note = state["note"]
        self._peer.last_id = state["last_id"]
        self._used = dict(state["used"])

    def _note(self, message: Message) -> None:
        """Take notice of what is said between turns."""
        is_ours = message.params.get("threadId", self._thread) == self._thread
        if is_ours and message.method == "thread/tokenUsage/updated":
            total = mapping(mapping(message.params.get("tokenUsage")).get("total"))
            self._used = {name: count(value) for name, value in total.items()}

    # -- a turn --------------------------------------------------------------------------------

    async def turn(
        self, prompt: str, images: Sequence[Image] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask codex; yield what it says, with exactly one `DoneEvent`, last."""
        for message in self._peer.take_unread():
            if message.is_request:
                await deny(self._peer, message)  # it belongs to nobody
            self._note(message)
        params = {"threadId": self._thread, "input": self.parts(prompt, images)}
        request = await self._peer.request("turn/start", params)
        turn = CodexTurn(
            self._pipes,
            self._peer,
            self._thread,
            request,
            self._used,
            self._readable,
            self._unasked,
        )
        async with contextlib.aclosing(self.events_of(turn)) as events:
            async for event in events:
                if isinstance(event, DoneEvent):
                    self._used = turn.used
                yield event

    def parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message as codex wants it."""
        parts: list[dict[str, Any]] = [{"type": "text", "text": prompt, "text_elements": []}]
        for image in images:
            data = base64.b64encode(image.data).decode()
            parts.append({"type": "image", "url": f"data:{image.mime_type};base64,{data}"})
        return parts


def _trust(spec: AgentSpec) -> str:
    """Return the option that says whether codex obeys the workspace's own configuration.

    Unless it is said, codex trusts the workspace of a thread that may write, for good: it writes
    that into the user's configuration, and starts what `.codex/config.toml` there names.
    """
    level = "trusted" if spec.trust_workspace else "untrusted"
    names = {spec.workspace, os.path.realpath(spec.workspace)}
    if not spec.trust_workspace:  # the root of its repository may have been trusted before
        names |= {str(parent) for name in names for parent in Path(name).parents}
    names_in_toml = (json.dumps(name, ensure_ascii=False) for name in sorted(names))
    projects = (f'{name}={{trust_level="{level}"}}' for name in names_in_toml)
    return f"projects={{{','.join(projects)}}}"


def _own_servers(env: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the MCP servers of codex' own configuration, by name: nothing takes them all out.

    Codex itself starts with no file that can't be read here.
    """
    home = Path(env.get("CODEX_HOME") or Path(env.get("HOME") or "~", ".codex")).expanduser()
    try:
        settings = tomllib.loads((home / "config.toml").read_text())
    except (OSError, ValueError):
        return {}
    servers = mapping(settings.get("mcp_servers")).items()
    return {name: mapping(server) for name, server in servers if re.fullmatch(r"[\w-]+", name)}


def _server(server: McpServerConfig, permissions: str, run_dir: Path) -> dict[str, Any]:
    """Return an MCP server as codex wants it described."""
    common: dict[str, Any] = {
        "startup_timeout_sec": MCP_START_S,
        "tool_timeout_sec": MCP_CALL_S,
        APPROVAL: "prompt" if permissions == "deny" else "approve",
    }
    if server.url is not None:
        return {"url": server.url, "http_headers": server.headers, **common}
    env = {**server.env, "REMOTECLAW_SIDE_EFFECTS_FILE": str(run_dir / SIDE_EFFECTS_FILE)}
    return {"command": server.command, "args": list(server.args), "env": env, **common}
