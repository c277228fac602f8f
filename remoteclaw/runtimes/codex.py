"""Codex, over its app-server: one long-lived thread, with everything it needs over the wire.

No file of the user's is edited: tools, system prompt and permissions are the thread's own.
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.errors import AgentUnavailable, ErrorCategory, classify_error
from remoteclaw.messages import Image
from remoteclaw.protocols import FILES, AgentPipes, AgentSpec, Capabilities, Launch, Remedies
from remoteclaw.runtimes.agent import CliProcess
from remoteclaw.runtimes.base import BaseRuntime, inherit, parted, with_point
from remoteclaw.runtimes.codex_aside import CodexAside
from remoteclaw.runtimes.codex_terminal import CodexTerminal
from remoteclaw.runtimes.codex_thread import (
    INSTRUCTIONS,
    MCP_START_S,
    aside_of,
    common_options,
    limits_of,
    thread_of,
)
from remoteclaw.runtimes.codex_turn import CodexTurn, deny, tokens_of
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.wire import mapping, text

#: The message to a resumed thread, which keeps its first system prompt.
_INSTRUCTIONS = "These instructions replace those from the beginning of the conversation:\n\n{}"

_NOT_SIGNED_IN = "codex did not start: it has no sign-in; run `codex login`"

log = logging.getLogger(__name__)


class CodexRuntime(BaseRuntime):
    """Codex."""

    name = "codex"
    command = ("codex",)
    capabilities = Capabilities(
        steers=True,
        explains_denial=False,
        forks=True,
        has_points=True,
        asides="copy",
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
        """Return what codex needs of our environment: its own settings and its provider's keys."""
        markers = ("CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID")
        return inherit(inherited, prefixes=("CODEX_", "OPENAI_"), without=markers)

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line; which thread it is about is said over the wire."""
        argv = [*spec.command, "app-server", *common_options(spec)]
        return Launch(argv=tuple(argv), env=spec.env, cwd=spec.workspace, session_id=session_id)

    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> "CodexProcess":
        """Return codex before its handshake."""
        # An agent that may do nothing without a permission may not look around with a shell either.
        may_look = spec.permissions != "deny"
        readable = (Path(spec.workspace), run_dir / FILES) if may_look else ()
        # Codex uses these without a request; under "deny", it asks us.
        unasked = frozenset(spec.unasked_servers)
        return CodexProcess(
            pipes,
            readable=readable,
            unasked=unasked,
            limits=limits_of(spec),
            aside=aside_of(spec, run_dir),
        )


class CodexProcess(CliProcess[RpcMessage, CodexTurn]):
    """One codex with one thread, between and during turns."""

    name = "codex"

    def __init__(
        self,
        pipes: AgentPipes,
        *,
        readable: tuple[Path, ...],
        unasked: frozenset[str],
        limits: Mapping[str, Any],
        aside: Mapping[str, Any],
    ) -> None:
        """It may read in the `readable` directories, the first of which is its workspace.

        It uses the tools of the `unasked` servers without a request. `limits` hold in each turn in
        the place of the thread's own. `aside` is what the thread of a question beside a turn is
        like.
        """
        self._limits = limits
        self._peer = RpcPeer(pipes, version=None)
        super().__init__(pipes, self._peer)
        self._readable = readable
        self._unasked = unasked
        self._aside = dict(aside)
        self._thread = ""
        self._account = 0
        """The id of the request about the sign-in."""
        self._used: dict[str, int] = {}
        """Tokens of the whole thread so far."""
        self._prompt = ""
        """The hash of the prompt that the thread began with, if it was told no other one."""
        self._point = ""
        """The id of the last finished turn: a copy begins behind it."""

    @property
    def session_id(self) -> str | None:
        """The thread's id; `codex resume` takes the same."""
        return self._thread or None

    @property
    def note(self) -> str:
        """Which prompt the thread knows, which is not told again, and its point."""
        return with_point(self._prompt, self._point)

    # -- coming and going ----------------------------------------------------------------------

    async def handshake(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
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
        params = thread_of(spec, run_dir)
        known = ""
        if session_id:
            params |= {"threadId": session_id, "excludeTurns": True}
            known, self._point = parted(spec.note)
            if fork and self._point:  # else a thread at work is copied with half a turn
                params["lastTurnId"] = self._point
            way = "thread/fork" if fork else "thread/resume"
            second = await self._peer.request(way, params)
        else:
            params[INSTRUCTIONS] = spec.system_prompt
            second = await self._peer.request("thread/start", params)
        waiting = {first, second, *spec.mcp_servers}
        while second in waiting:
            await self._hear(await self._next_of_start(), waiting)
        try:
            async with asyncio.timeout(MCP_START_S):
                while waiting:
                    await self._hear(await self._next_of_start(), waiting)
        except TimeoutError:
            log.warning("codex's MCP servers were not ready after %d s", MCP_START_S)
        prompt = hashlib.sha256(spec.system_prompt.encode("utf-8", "replace")).hexdigest()[:16]
        if session_id is None or prompt == known:
            self._prompt = prompt
        else:
            await self._instruct(spec.system_prompt)

    async def _hear(self, message: RpcMessage, waiting: set[Any]) -> None:
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
                self.missing_servers[name] = text(message.params.get("error"))
            if status in ("ready", "failed", "cancelled"):
                waiting.discard(name)
        elif message.is_request:
            await deny(self._peer, message)
        elif message.method:
            self._observe(message)
        elif message.id == self._account:
            # It would ask its model for minutes, which refuses each time.
            if message.result.get("requiresOpenaiAuth") and message.result.get("account") is None:
                raise AgentUnavailable(_NOT_SIGNED_IN, category=ErrorCategory.AUTH)
        elif message.id in waiting:
            waiting.discard(message.id)
            self._thread = text(mapping(message.result.get("thread")).get("id")) or self._thread
            if model := text(message.result.get("model")):  # else a copy has codex' own choice
                self._aside["model"] = model

    async def _instruct(self, system_prompt: str) -> None:
        """Tell a resumed thread our system prompt: it began with another one, or was told one."""
        content = [{"type": "input_text", "text": _INSTRUCTIONS.format(system_prompt)}]
        item = {"type": "message", "role": "developer", "content": content}
        await self._peer.request("thread/inject_items", {"threadId": self._thread, "items": [item]})

    def _state(self) -> dict[str, Any]:
        return {
            "thread": self._thread,
            "note": self._prompt,
            "point": self._point,
            "last_id": self._peer.last_id,
            "used": self._used,
            # With keys of MCP servers; only the holder's memory has it.
            "aside": self._aside,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another worker left off."""
        self._thread = state["thread"]
        self._prompt = state["note"]
        self._point = state["point"]
        self._peer.last_id = state["last_id"]
        self._used = dict(state["used"])
        self._aside = dict(state["aside"])

    def _is_request(self, message: RpcMessage) -> bool:
        return message.is_request

    async def _deny(self, message: RpcMessage) -> None:
        await deny(self._peer, message)

    def _observe(self, message: RpcMessage) -> None:
        is_ours = message.params.get("threadId", self._thread) == self._thread
        if is_ours and message.method == "thread/tokenUsage/updated":
            self._used = tokens_of(message.params)

    # -- a turn --------------------------------------------------------------------------------

    async def _begin(self, prompt: str, images: Sequence[Image]) -> CodexTurn:
        params = {"threadId": self._thread, "input": self._parts(prompt, images)}
        request = await self._peer.request("turn/start", {**params, **self._limits})
        return CodexTurn(
            self._pipes,
            self._peer,
            thread=self._thread,
            request=request,
            used=self._used,
            readable=self._readable,
            unasked=self._unasked,
        )

    def _new_aside(self) -> CodexAside:
        if not self._point:  # nothing is finished: there is nothing to copy
            return CodexAside(self._peer, "thread/start", self._aside)
        # The copy's instructions are those of the thread.
        copied = {"threadId": self._thread, "lastTurnId": self._point, "excludeTurns": True}
        params = {name: value for name, value in self._aside.items() if name != INSTRUCTIONS}
        return CodexAside(self._peer, "thread/fork", {**params, **copied})

    def _end(self, turn: CodexTurn) -> None:
        self._used = turn.used
        self._point = turn.point or self._point

    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message as codex wants it."""
        parts: list[dict[str, Any]] = [{"type": "text", "text": prompt, "text_elements": []}]
        for image in images:
            data = base64.b64encode(image.data).decode()
            parts.append({"type": "image", "url": f"data:{image.mime_type};base64,{data}"})
        return parts
