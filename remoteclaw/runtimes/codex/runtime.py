"""The runtime of Codex, over its app-server: one process with one thread.

No file of the user is edited: tools, system prompt and permissions are parameters of the thread.
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from remoteclaw.errors import AgentUnavailable, ErrorCategory, classify_error
from remoteclaw.events import AgentUsage, ContextSize
from remoteclaw.host.environment import inherit
from remoteclaw.messages import Image
from remoteclaw.protocols import AgentPipes, AgentSpec, Capabilities, Launch, Remedies
from remoteclaw.runtimes.agent import CliProcess
from remoteclaw.runtimes.base import BaseRuntime, json_file
from remoteclaw.runtimes.codex.aside import CodexAside
from remoteclaw.runtimes.codex.rules import allowing_rules
from remoteclaw.runtimes.codex.terminal import CodexTerminal
from remoteclaw.runtimes.codex.thread import (
    INSTRUCTIONS,
    MCP_START_S,
    aside_of,
    codex_home,
    common_options,
    limits_of,
    note_of,
    parts_of,
    thread_of,
)
from remoteclaw.runtimes.codex.turn import CodexTurn, ThreadTokens, deny
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.wire import mapping, mappings, text

#: The message with a new system prompt for a resumed thread, which keeps its first one.
_INSTRUCTIONS = "These instructions replace those from the beginning of the conversation:\n\n{}"

_NOT_SIGNED_IN = "codex did not start: it has no sign-in; run `codex login`"

#: Sends a request with its parameters, and returns the answer.
_Call = Callable[[str, Mapping[str, Any]], Awaitable[RpcMessage]]

log = logging.getLogger(__name__)


class CodexRuntime(BaseRuntime):
    """The runtime of Codex."""

    name = "codex"
    command = ("codex",)
    capabilities = Capabilities(
        steers=True,
        explains_denial=False,
        forks=True,
        has_points=True,
        asides="copy",
        compacts=True,
        compact_at=0.85,
        rules=frozenset(("Bash", "Edit", "mcp")),
        tested="0.169.0",
    )
    remedies = Remedies(
        install="npm install -g @openai/codex",
        sign_in="run `codex login`, or correct the key of its provider",
        models="`codex`, then /model",
    )
    natives = ("@openai/codex-linux-*/vendor/*/bin/codex",)
    terminal = CodexTerminal()

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that codex needs: the common ones, its settings, provider keys."""
        markers = ("CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID")
        return inherit(inherited, prefixes=("CODEX_", "OPENAI_"), without=markers)

    def signed_in(self, env: Mapping[str, str]) -> str:
        """Return the account, or the key, with which codex has signed in."""
        noted = json_file(codex_home(env) / "auth.json")
        return text(mapping(noted.get("tokens")).get("account_id")) or text(
            noted.get("OPENAI_API_KEY")
        )

    def openings(self, spec: AgentSpec) -> list[str]:
        """Return what codex' rules allow."""
        return list(allowing_rules(spec)) if spec.is_limited else []

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line; the thread is chosen in the handshake."""
        argv = [*spec.command, "app-server", *common_options(spec)]
        if spec.permissions != "auto":  # it reads elsewhere; a branch keeps its parent's tools
            argv += ["-c", "features.view_image=false"]
        return Launch(argv=tuple(argv), env=spec.env, cwd=spec.workspace, session_id=session_id)

    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> "CodexProcess":
        """Return the process before its handshake."""
        # Codex uses their tools without a request.
        unasked = frozenset(spec.unasked_servers)
        return CodexProcess(
            pipes,
            workspace=spec.workspace,
            unasked=unasked,
            limits=limits_of(spec),
            aside=aside_of(spec, run_dir),
        )


class CodexProcess(CliProcess[RpcMessage, CodexTurn]):
    """One codex process with one thread, between and during turns."""

    name = "codex"

    def __init__(
        self,
        pipes: AgentPipes,
        *,
        workspace: str,
        unasked: frozenset[str],
        limits: Mapping[str, Any],
        aside: Mapping[str, Any],
    ) -> None:
        """Codex uses the tools of the `unasked` servers without a request.

        `limits` are parameters of each turn that override the thread's. `aside` are the parameters
        of an aside's thread.
        """
        self._workspace = workspace
        self._limits = limits
        self._peer = RpcPeer(pipes, version=None)
        super().__init__(pipes, self._peer)
        self._unasked = unasked
        self._aside = dict(aside)
        self._thread = ""
        self._account = 0
        """The id of the `account/read` request."""
        self._tokens = ThreadTokens()
        self._prompt = ""
        """The hash of the thread's first system prompt; empty if it was replaced by a message."""
        self._default_model = ""
        """The thread's default model, which codex itself forgets; empty if it is not known."""
        self._point = ""
        """The id of the last finished turn, up to which a fork copies."""

    @property
    def session_id(self) -> str | None:
        """The thread's id, as for `codex resume`; None before the thread has begun."""
        return self._thread or None

    @property
    def note(self) -> str:
        """The hash of the system prompt, so that it is not sent again, default model and point."""
        return note_of(self._prompt, self._default_model, self._point)

    # -- start and park ------------------------------------------------------------------------

    async def handshake(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
    ) -> None:
        """Start, resume or fork the thread, and wait until its MCP servers are ready or failed.

        The requests are sent together, because codex handles them in order.
        """
        client = {"name": "remoteclaw", "title": "RemoteClaw", "version": "1"}
        first = await self._peer.request(
            "initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}}
        )
        await self._peer.notify("initialized")
        self._account = await self._peer.request("account/read", {"refreshToken": False})
        params = thread_of(spec, run_dir)
        waiting: set[Any] = {first, *spec.mcp_servers}
        if spec.is_limited:
            off = await self._hooks_off(spec.workspace, waiting)
            params["config"] |= off
            self._aside["config"] |= off
        known_prompt = ""
        if session_id:
            params |= {"threadId": session_id, "excludeTurns": True}
            known_prompt, self._default_model, self._point = parts_of(spec.note)
            if not (fork or spec.model or self._default_model):
                call = partial(self._call_at_start, waiting)
                self._default_model = await self._configured_model(call)
            # Without a model, codex takes the last one of the thread.
            params["model"] = spec.model or self._default_model or None
            if fork and self._point:  # else the copy would include half of a running turn
                params["lastTurnId"] = self._point
            method = "thread/fork" if fork else "thread/resume"
            second = await self._peer.request(method, params)
        else:
            params[INSTRUCTIONS] = spec.system_prompt
            self._tokens.counted = AgentUsage()
            second = await self._peer.request("thread/start", params)
        waiting.add(second)
        while second in waiting:
            await self._take_at_start(await self._read_at_start(), waiting)
        try:
            async with asyncio.timeout(MCP_START_S):
                while waiting:
                    await self._take_at_start(await self._read_at_start(), waiting)
        except TimeoutError:
            log.warning("codex's MCP servers were not ready after %d s", MCP_START_S)
        prompt = hashlib.sha256(spec.system_prompt.encode("utf-8", "replace")).hexdigest()[:16]
        if session_id is None or prompt == known_prompt:
            self._prompt = prompt
        else:
            await self._instruct(spec.system_prompt)

    async def _hooks_off(self, workspace: str, waiting: set[Any]) -> dict[str, Any]:
        """Return the settings without hooks that answer requests in a person's place.

        Hooks that run before a tool may refuse it, and stay. `waiting` is as in `_take_at_start`.
        """
        message = await self._call_at_start(waiting, "hooks/list", {"cwds": [workspace]})
        found = (
            hook
            for listed in mappings(message.result.get("data"))
            for hook in mappings(listed.get("hooks"))
            if hook.get("eventName") == "permissionRequest"
        )
        return {"hooks.state": {text(hook.get("key")): {"enabled": False} for hook in found}}

    async def _call_at_start(
        self, waiting: set[Any], method: str, params: Mapping[str, Any]
    ) -> RpcMessage:
        """Send a request during the start, and return the answer; `waiting` as below."""
        request = await self._peer.request(method, params)
        while not (message := await self._read_at_start()).is_answer_to(request):
            await self._take_at_start(message, waiting)
        return message

    async def _take_at_start(self, message: RpcMessage, waiting: set[Any]) -> None:
        """Handle a message of the start. Raises `AgentUnavailable` if the start has failed.

        Updates `waiting`: the ids of open requests, and the names of MCP servers that start.
        """
        if message.error and message.id in waiting:
            why = str(message.error)
            raise AgentUnavailable(f"codex did not start: {why}", category=classify_error(why))
        if message.method == "mcpServer/startupStatus/updated":
            name, status = text(message.params.get("name")), message.params.get("status")
            if status == "starting":
                waiting.add(name)  # includes the user's own servers, for the first turn
            if status == "failed":
                log.warning("codex could not connect MCP server %s", name)
                self.missing_servers[name] = text(message.params.get("error"))
            if status in ("ready", "failed", "cancelled"):
                waiting.discard(name)
        elif message.is_request:
            await deny(self._peer, message)
        elif message.method:
            self._observe(message)
        elif message.id == self._account:
            # Without a sign-in, codex would retry requests to its model for minutes.
            if message.result.get("requiresOpenaiAuth") and message.result.get("account") is None:
                raise AgentUnavailable(_NOT_SIGNED_IN, category=ErrorCategory.AUTH)
        elif message.id in waiting:
            waiting.discard(message.id)
            self._thread = text(mapping(message.result.get("thread")).get("id")) or self._thread
            if model := text(message.result.get("model")):  # else an aside has the default model
                self._aside["model"] = model
            if self.model is None:
                self._default_model = model or self._default_model

    async def _instruct(self, system_prompt: str) -> None:
        """Send a resumed thread the system prompt, because it knows another one."""
        content = [{"type": "input_text", "text": _INSTRUCTIONS.format(system_prompt)}]
        item = {"type": "message", "role": "developer", "content": content}
        await self._peer.request("thread/inject_items", {"threadId": self._thread, "items": [item]})

    async def _call(self, method: str, params: Mapping[str, Any]) -> RpcMessage:
        """Send a request between turns, and return the answer."""
        request = await self._peer.request(method, params)
        return await self._read_until(lambda message: message.is_answer_to(request))

    async def _choose(self, model: str | None) -> bool:
        name = model or self._default_model or await self._configured_model(self._call)
        update = {"threadId": self._thread, "model": name}
        if not name or (await self._call("thread/settings/update", update)).error:
            return False
        self._aside["model"] = name
        return True

    async def _configured_model(self, call: _Call) -> str:
        """Return the model of codex's configuration, else its own default; empty if unknown."""
        read = await call("config/read", {"cwd": self._workspace})
        if model := text(mapping(read.result.get("config")).get("model")):
            return model
        listed = await call("model/list", {})
        defaults = (each for each in mappings(listed.result.get("data")) if each.get("isDefault"))
        return text(next(defaults, {}).get("model"))

    def _state(self) -> dict[str, Any]:
        return {
            "thread": self._thread,
            "default_model": self._default_model,
            "note": self._prompt,
            "point": self._point,
            "last_id": self._peer.last_id,
            "tokens": self._tokens.state(),
            # It contains keys of MCP servers, so it is kept only in the holder's memory.
            "aside": self._aside,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._thread = state["thread"]
        self._default_model = state["default_model"]
        self._prompt = state["note"]
        self._point = state["point"]
        self._peer.last_id = state["last_id"]
        self._tokens = ThreadTokens.of(state["tokens"])
        self._aside = dict(state["aside"])

    def _is_request(self, message: RpcMessage) -> bool:
        return message.is_request

    async def _deny(self, message: RpcMessage) -> None:
        await deny(self._peer, message)

    def _observe(self, message: RpcMessage) -> None:
        is_ours = message.params.get("threadId", self._thread) == self._thread
        if is_ours and message.method == "thread/tokenUsage/updated":
            self._tokens.read(message.params, has_answer=False)

    # -- a turn --------------------------------------------------------------------------------

    async def _begin(self, prompt: str, images: Sequence[Image]) -> CodexTurn:
        params = {"threadId": self._thread, "input": self._parts(prompt, images)}
        request = await self._peer.request("turn/start", {**params, **self._limits})
        return self._new_turn(request)

    async def _begin_command(self, text: str) -> CodexTurn:
        """Begin a compaction, codex's only command."""
        request = await self._peer.request("thread/compact/start", {"threadId": self._thread})
        return self._new_turn(request, compacts=True)

    async def context_size(self) -> ContextSize | None:
        """Return the size of the conversation after its last request."""
        return self._tokens.context

    def _new_turn(self, request: int, *, compacts: bool = False) -> CodexTurn:
        return CodexTurn(
            self._pipes,
            self._peer,
            thread=self._thread,
            request=request,
            tokens=self._tokens,
            unasked=self._unasked,
            compacts=compacts,
        )

    def _new_aside(self) -> CodexAside:
        if not self._point:  # without a finished turn, there is nothing to copy
            return CodexAside(self._peer, "thread/start", self._aside)
        # A copy keeps the instructions of its thread.
        copied = {"threadId": self._thread, "lastTurnId": self._point, "excludeTurns": True}
        params = {name: value for name, value in self._aside.items() if name != INSTRUCTIONS}
        return CodexAside(self._peer, "thread/fork", {**params, **copied})

    def _carry_over(self, turn: CodexTurn) -> None:
        self._tokens.settle()
        self._point = turn.point or self._point

    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message in codex's format."""
        parts: list[dict[str, Any]] = [{"type": "text", "text": prompt, "text_elements": []}]
        for image in images:
            data = base64.b64encode(image.data).decode()
            parts.append({"type": "image", "url": f"data:{image.mime_type};base64,{data}"})
        return parts
