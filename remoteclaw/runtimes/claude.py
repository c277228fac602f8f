"""Claude Code, over its own long-lived protocol: stream-json on standard input and output.

Everything that holds a secret (system prompt, MCP servers) goes over the wire, nothing into argv,
and no file of the user's is edited.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.errors import AgentUnavailable, ErrorCategory, classify_error
from remoteclaw.messages import (
    AgentEvent,
    AgentRunResult,
    AgentUsage,
    DoneEvent,
    ErrorEvent,
    McpServerConfig,
    NoticeEvent,
    TextEvent,
    TextResetEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.protocols import AgentPipes, AgentProcess, AgentSpec, Launch
from remoteclaw.runtimes.environment import inherit
from remoteclaw.runtimes.pipes import decode

__all__ = ["ClaudeProcess", "ClaudeRuntime"]

#: How long claude may take until its MCP servers are connected, in seconds. It gives each of them
#: 30 s itself and then goes on without, saying so.
START_S = 60.0
#: How often claude repeats a failed request to its model, unless the environment says otherwise.
#: Its own default of 10 keeps a person waiting for three minutes; 4 take about 8 seconds.
MAX_RETRIES = "4"

#: What claude is told when a tool needs a permission that nobody can give.
_NOBODY_TO_ASK = (
    "This needs a permission, and nobody can be asked for one here. "
    "Say so in your answer, and go on without it."
)
_NOT_ALLOWED = "This agent is not allowed to use tools that need a permission."

log = logging.getLogger(__name__)


class ClaudeRuntime:
    """How to start Claude Code and how to take over a running one."""

    name = "claude"
    command = ("claude",)

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
        return env

    def launch(self, spec: AgentSpec, *, session_id: str | None) -> Launch:
        """Return the command line; a new conversation gets an id of our choice, known from now."""
        fresh_id = str(uuid.uuid4())
        argv = [*spec.command, "-p", "--verbose", "--include-partial-messages"]
        argv += ["--input-format", "stream-json", "--output-format", "stream-json"]
        argv += ["--permission-prompt-tool", "stdio"]
        argv += ["--resume", session_id] if session_id else ["--session-id", fresh_id]
        if spec.model:
            argv += ["--model", spec.model]
        if not spec.inherit_mcp:
            argv.append("--strict-mcp-config")
        if spec.mcp_servers and spec.permissions != "deny":
            argv += ["--allowedTools", ",".join(f"mcp__{name}" for name in spec.mcp_servers)]
        return Launch(
            argv=tuple(argv),
            env=spec.env,
            cwd=spec.workspace,
            session_id=session_id or fresh_id,
        )

    async def connect(
        self,
        pipes: AgentPipes,
        spec: AgentSpec,
        *,
        session_id: str | None,
        parked_state: Mapping[str, Any] | None,
        run_dir: Path,
    ) -> AgentProcess:
        """Return a claude that is ready for a turn; a new one gets its prompt and servers first."""
        process = ClaudeProcess(pipes, permissions=spec.permissions, session_id=session_id)
        if parked_state is not None:
            process.restore(parked_state)
        else:
            await process.greet(spec.system_prompt, spec.mcp_servers, run_dir)
        return process


class ClaudeProcess:
    """One claude, between and during turns."""

    def __init__(self, pipes: AgentPipes, *, permissions: str, session_id: str | None) -> None:
        self._pipes = pipes
        self._permissions = permissions
        self._session_id = session_id
        self._last_request = 0
        self._cost_so_far = 0.0
        self._is_busy = False
        self.unknown_lines = 0
        """Lines of a kind that this version does not know; they are skipped."""

    @property
    def session_id(self) -> str | None:
        """Claude's id of the conversation; `claude --resume` takes the same."""
        return self._session_id

    # -- coming and going ----------------------------------------------------------------------

    async def greet(
        self, system_prompt: str, servers: Mapping[str, McpServerConfig], run_dir: Path
    ) -> None:
        """Send what is fixed for the process's life; wait for MCP servers, for nothing else.

        Claude reads `initialize` before the first message in any case, so its answer, which comes
        after 0.4 s, is not waited for.
        """
        await self._request({"subtype": "initialize", "appendSystemPrompt": system_prompt})
        if not servers:
            return
        request_id = await self._request(
            {
                "subtype": "mcp_set_servers",
                "servers": {name: _server(server, run_dir) for name, server in servers.items()},
            }
        )
        try:
            async with asyncio.timeout(START_S):
                await self._answer(request_id)
        except TimeoutError:
            log.warning("claude's MCP servers were not ready after %d s", START_S)

    async def _answer(self, request_id: str) -> None:
        """Read until a control request is answered; what it says of failed servers is logged."""
        while (line := await self._pipes.read()) is not None:
            message = decode(line)
            response = message.get("response") or {}
            if message.get("type") == "result":
                raise self._refusal(message)
            if response.get("request_id") == request_id:
                for name, why in ((response.get("response") or {}).get("errors") or {}).items():
                    log.warning("claude could not connect MCP server %s: %s", name, why)
                return
        raise AgentUnavailable(
            f"claude ended while it started: {self._pipes.last_errors()}",
            category=classify_error(self._pipes.last_errors()),
        )

    @staticmethod
    def _refusal(message: dict[str, Any]) -> AgentUnavailable:
        """Return why claude gave up at once: for a conversation it doesn't know, mostly."""
        why = "; ".join(message.get("errors") or []) or str(message.get("result"))
        return AgentUnavailable(f"claude did not start: {why}", category=classify_error(why))

    def parked_state(self) -> dict[str, Any] | None:
        """Return what the next driver must know; None in a turn or with something unread."""
        if self._is_busy or not self._pipes.is_clean:
            return None
        return {
            "session_id": self._session_id,
            "last_request": self._last_request,
            "cost_so_far": self._cost_so_far,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another driver left off."""
        self._session_id = state["session_id"]
        self._last_request = state["last_request"]
        self._cost_so_far = state["cost_so_far"]

    # -- a turn --------------------------------------------------------------------------------

    async def turn(self, prompt: str) -> AsyncGenerator[AgentEvent, None]:
        """Ask claude; yield what it says, with exactly one `DoneEvent`, last."""
        self._is_busy = True
        # What claude said since the last turn belongs to nobody: requests are denied, text dropped.
        for stale in self._pipes.take_unread():
            await self._deny_if_request(decode(stale))
        content = [{"type": "text", "text": prompt}]
        await self._send({"type": "user", "message": {"role": "user", "content": content}})
        reading = _TurnReading()
        while (line := await self._pipes.read()) is not None:
            message = decode(line)
            kind = message.get("type")
            if kind == "control_request":
                await self._grant_or_deny(message, reading)
            elif kind == "result":
                for event in self._result(message, reading):
                    if isinstance(event, DoneEvent):
                        self._is_busy = False  # the consumer may stop here
                    yield event
                return
            else:
                known = reading.read(message)
                if known is None:
                    self.unknown_lines += 1
                for event in known or ():
                    yield event
        errors = self._pipes.last_errors()
        yield ErrorEvent(ErrorCategory.DIED, f"claude ended in mid-turn: {errors}")
        yield DoneEvent(AgentRunResult(text=reading.text, session_id=self._session_id))

    async def interrupt(self) -> None:
        """Stop the running turn; claude answers within milliseconds, also while it runs a tool."""
        if self._is_busy:
            await self._request({"subtype": "interrupt"})

    def _result(self, message: dict[str, Any], reading: "_TurnReading") -> Iterator[AgentEvent]:
        """Translate the last line of a turn.

        `subtype` is "success" for most failures, so `is_error` and `terminal_reason` decide.
        """
        aborted = str(message.get("terminal_reason", "")).startswith("aborted")
        text = reading.text
        if message.get("is_error") and not aborted:
            detail = str(message.get("result") or "; ".join(message.get("errors") or []))
            status = message.get("api_error_status")
            yield ErrorEvent(classify_error(detail, status=status), detail or "claude failed")
        elif not text and not aborted and message.get("result"):
            # A local command's answer comes in the result alone.
            text = str(message["result"])
            yield TextEvent(text)
        # A conversation that claude doesn't know is answered under a new id: not the one to keep.
        if not message.get("errors"):
            self._session_id = message.get("session_id") or self._session_id
        usage = message.get("usage") or {}
        cost = message.get("total_cost_usd")
        turn_cost = None
        if isinstance(cost, int | float):
            turn_cost = max(0.0, cost - self._cost_so_far)  # claude reports the process's total
            self._cost_so_far = float(cost)
        yield DoneEvent(
            AgentRunResult(
                text=text,
                session_id=self._session_id,
                duration_ms=int(message.get("duration_ms") or 0),
                usage=AgentUsage(
                    input_tokens=int(usage.get("input_tokens") or 0),
                    output_tokens=int(usage.get("output_tokens") or 0),
                    cache_read_tokens=int(usage.get("cache_read_input_tokens") or 0),
                    cache_write_tokens=int(usage.get("cache_creation_input_tokens") or 0),
                ),
                aborted=aborted,
                total_cost_usd=turn_cost,
                num_turns=message.get("num_turns"),
                stop_reason=message.get("stop_reason"),
                permission_denials=tuple(reading.denied),
            )
        )

    # -- permissions ---------------------------------------------------------------------------

    async def _grant_or_deny(self, message: dict[str, Any], reading: "_TurnReading") -> None:
        request = message.get("request") or {}
        if request.get("subtype") != "can_use_tool":
            await self._refuse_request(message)
            return
        if self._permissions == "auto":
            answer = {"behavior": "allow", "updatedInput": request.get("input") or {}}
        else:
            reading.denied.append(str(request.get("tool_name")))
            why = _NOBODY_TO_ASK if self._permissions == "ask" else _NOT_ALLOWED
            answer = {"behavior": "deny", "message": why}
        await self._respond(message, answer)

    async def _deny_if_request(self, message: dict[str, Any]) -> None:
        if message.get("type") != "control_request":
            return
        if (message.get("request") or {}).get("subtype") == "can_use_tool":
            await self._respond(message, {"behavior": "deny", "message": _NOBODY_TO_ASK})
        else:
            await self._refuse_request(message)

    async def _refuse_request(self, message: dict[str, Any]) -> None:
        """Answer a request that we don't know: claude would wait for ever."""
        response = {
            "subtype": "error",
            "request_id": message.get("request_id"),
            "error": "not supported",
        }
        await self._send({"type": "control_response", "response": response})

    async def _respond(self, message: dict[str, Any], answer: dict[str, Any]) -> None:
        response = {
            "subtype": "success",
            "request_id": message.get("request_id"),
            "response": answer,
        }
        await self._send({"type": "control_response", "response": response})

    # -- the wire ------------------------------------------------------------------------------

    async def _request(self, request: dict[str, Any]) -> str:
        self._last_request += 1
        request_id = f"rc-{self._last_request}"
        await self._send({"type": "control_request", "request_id": request_id, "request": request})
        return request_id

    async def _send(self, message: dict[str, Any]) -> None:
        await self._pipes.write(orjson.dumps(message))


class _TurnReading:
    """What has been read of one turn: claude says everything twice, as deltas and as blocks."""

    def __init__(self) -> None:
        self.text = ""
        self.denied: list[str] = []
        self._unconfirmed = ""
        """Text that came as deltas and whose block has not come yet."""
        self._break_due = False
        """Whether a paragraph has to end before more text: another block has begun."""

    def read(self, message: dict[str, Any]) -> list[AgentEvent] | None:
        """Return what a line means; None for a kind that isn't known."""
        kind = message.get("type")
        if message.get("parent_tool_use_id"):
            return []  # a subagent talks to claude, not to the person
        if kind == "stream_event":
            return self._delta(message.get("event") or {})
        if kind == "assistant":
            return self._assistant(message)
        if kind == "user":
            return self._tool_results(message)
        if kind == "system":
            return self._system(message)
        return [] if kind == "control_response" else None

    def _delta(self, event: dict[str, Any]) -> list[AgentEvent]:
        delta = event.get("delta") or {}
        if event.get("type") == "content_block_start":
            block = event.get("content_block") or {}
            if block.get("type") == "text" and self.text:
                self._break_due = True
        elif delta.get("type") == "text_delta":
            return self._add(str(delta.get("text") or ""))
        elif delta.get("type") == "thinking_delta":
            return [ThinkingEvent(str(delta.get("thinking") or ""))]
        return []

    def _add(self, text: str) -> list[AgentEvent]:
        if not text:
            return []
        self._unconfirmed += text
        if self._break_due:
            self._break_due = False
            text = "\n\n" + text
        self.text += text
        return [TextEvent(text)]

    def _assistant(self, message: dict[str, Any]) -> list[AgentEvent]:
        if message.get("error") or (message.get("message") or {}).get("model") == "<synthetic>":
            return []  # an error as if claude had said it; the result reports it as one
        events: list[AgentEvent] = []
        for block in (message.get("message") or {}).get("content") or []:
            if block.get("type") == "text":
                events += self._confirm(str(block.get("text") or ""))
            elif block.get("type") == "tool_use":
                name, tool_id = str(block.get("name")), str(block.get("id"))
                events.append(ToolUseEvent(name, tool_id, block.get("input") or {}))
        return events

    def _confirm(self, text: str) -> list[AgentEvent]:
        """Compare a whole block with its deltas: after a broken stream they differ."""
        streamed, self._unconfirmed = self._unconfirmed, ""
        if text.startswith(streamed):
            if not streamed and self.text:
                self._break_due = True
            events = self._add(text[len(streamed) :])
            self._unconfirmed = ""
            return events
        self.text = self.text[: len(self.text) - len(streamed)]
        reset = TextResetEvent(len(streamed))
        events = [reset, *self._add(text)]
        self._unconfirmed = ""
        return events

    def _tool_results(self, message: dict[str, Any]) -> list[AgentEvent]:
        content = (message.get("message") or {}).get("content")
        events: list[AgentEvent] = []
        for block in content if isinstance(content, list) else []:
            if block.get("type") == "tool_result":
                output = block.get("content")
                if isinstance(output, list):
                    output = "".join(str(part.get("text", "")) for part in output)
                is_error = bool(block.get("is_error"))
                events.append(
                    ToolResultEvent(str(block.get("tool_use_id")), str(output or ""), is_error)
                )
        return events

    def _system(self, message: dict[str, Any]) -> list[AgentEvent]:
        if message.get("subtype") == "api_retry":
            delay_s = round(float(message.get("retry_delay_ms") or 0) / 1000)
            return [NoticeEvent(f"The model is busy; trying again in {delay_s} s.")]
        return []


def _server(server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return an MCP server as claude wants it described."""
    if server.url is not None:
        return {"type": "http", "url": server.url, "headers": server.headers}
    env = {**server.env, "REMOTECLAW_SIDE_EFFECTS_FILE": str(run_dir / "side-effects.ndjson")}
    return {"type": "stdio", "command": server.command, "args": list(server.args), "env": env}
