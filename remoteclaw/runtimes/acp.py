"""The Agent Client Protocol: any agent that speaks it, and what gemini and opencode share.

What one of them does in its own way stands in its own file, as a method of its runtime.
"""

import asyncio
import base64
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.errors import AgentUnavailable, ErrorCategory, classify_error
from remoteclaw.messages import (
    AgentEvent,
    AgentRunResult,
    AgentUsage,
    DoneEvent,
    ErrorEvent,
    Image,
    McpServerConfig,
    PermissionEvent,
    PlanEvent,
    SteeredEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.protocols import (
    SIDE_EFFECTS_FILE,
    AgentPipes,
    AgentProcess,
    AgentSpec,
    Capabilities,
    Decision,
    Launch,
)
from remoteclaw.runtimes.environment import inherit
from remoteclaw.runtimes.jsonrpc import Message, Peer, RpcError, RpcProcess, RpcTurn
from remoteclaw.runtimes.programs import find_program
from remoteclaw.runtimes.prose import Prose
from remoteclaw.runtimes.wire import count, mapping, mappings, text

__all__ = ["AcpProcess", "AcpRuntime"]

#: How long a replay of what was said before may take, in seconds.
REPLAY_S = 10.0
#: How an agent says that somebody has to sign in first.
AUTH_REQUIRED = -32000

#: The answer to a question that nobody decides about.
_CANCELLED = {"outcome": {"outcome": "cancelled"}}

log = logging.getLogger(__name__)


class AcpRuntime:
    """How to start an agent that speaks ACP and how to take over a running one."""

    name = "acp"
    command: tuple[str, ...] = ()
    image_types = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
    capabilities = Capabilities(
        steers=False, explains_denial=False, forks=True, resumes="where it can"
    )
    natives: tuple[str, ...] = ()
    #: Whether what is said before comes once more behind the answer to `session/load`.
    replays_late = False

    def find(self, program: str, path: str | None) -> str | None:
        """Return the program to start: the real one, where npm's script would start that."""
        return find_program(program, path=path, natives=self.natives)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the common variables: what else an agent needs, its configuration names."""
        return inherit(inherited)

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line, which is the configured one."""
        return Launch(argv=spec.command, env=spec.env, cwd=spec.workspace, session_id=session_id)

    def may_load(self, spec: AgentSpec, session_id: str) -> bool:
        """Whether a conversation can be gone on with by `session/load`, without harm to it."""
        return True

    def tool_name(self, call: Mapping[str, Any]) -> str:
        """Return the name of a tool that a `tool_call` is about, for people."""
        return text(call.get("title")) or text(call.get("kind"))

    def server_of(self, call: Mapping[str, Any], spec: AgentSpec) -> str | None:
        """Return the MCP server of the configuration that a tool is of, where that is certain."""
        return None

    def instructs_by_prompt(self) -> bool:
        """Whether the system prompt goes with the first message, for want of a better way."""
        return True

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
        """Return an agent that is ready for a turn; a new one gets its session first."""
        process = AcpProcess(pipes, self, spec)
        if parked_state is not None:
            process.restore(parked_state)
        else:
            await process.greet(spec, session_id, run_dir, fork=fork)
        return process


class AcpProcess(RpcProcess["_AcpTurn"]):
    """One agent with one session, between and during turns."""

    def __init__(self, pipes: AgentPipes, runtime: AcpRuntime, spec: AgentSpec) -> None:
        super().__init__(pipes, Peer(pipes))
        self._spec = spec
        self._said = ""
        """The id of the last message of an earlier turn."""
        self._runtime = runtime
        self.name = runtime.name
        self._session = ""
        self._cost = 0.0
        """What the session has cost so far, in US dollars."""
        self._instructions = ""
        """What goes with the first message."""

    @property
    def session_id(self) -> str | None:
        """The agent's id of the session."""
        return self._session or None

    # -- coming and going ----------------------------------------------------------------------

    async def greet(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool = False
    ) -> None:
        """Begin a session, or go on with one or a copy of it; MCP servers connect meanwhile."""
        servers = [_server(name, s, run_dir) for name, s in spec.mcp_servers.items()]
        params = {"cwd": spec.workspace, "mcpServers": servers}
        about = await self._call(
            "initialize",
            {
                "protocolVersion": 1,
                "clientCapabilities": {
                    "fs": {"readTextFile": False, "writeTextFile": False},
                    "terminal": False,
                },
                "clientInfo": {"name": "remoteclaw", "version": "1"},
            },
        )
        if session_id:
            await self._go_on(spec, session_id, params, mapping(about), fork=fork)
        else:
            begun = await self._call("session/new", params)
            self._session = text(begun.get("sessionId"))
        if spec.model:
            await self._choose_model(spec.model)
        if self._runtime.instructs_by_prompt():
            self._instructions = spec.system_prompt

    async def _go_on(
        self,
        spec: AgentSpec,
        session_id: str,
        params: dict[str, Any],
        about: dict[str, Any],
        *,
        fork: bool,
    ) -> None:
        can = mapping(about.get("agentCapabilities"))
        params = {**params, "sessionId": session_id}
        if fork and "fork" in mapping(can.get("sessionCapabilities")):
            begun = await self._call("session/fork", params)
            self._session = text(begun.get("sessionId"))
            return
        if fork:
            raise AgentUnavailable(
                f"{self._runtime.name} can't begin with a copy of a session",
                category=ErrorCategory.SESSION_EXPIRED,
            )
        if "resume" in mapping(can.get("sessionCapabilities")):
            await self._call("session/resume", params)
        elif can.get("loadSession") and self._runtime.may_load(spec, session_id):
            await self._call("session/load", params)
            if self._runtime.replays_late:
                await self._skip_replay()
        else:
            raise AgentUnavailable(
                f"{self._runtime.name} can't go on with a session of an earlier process",
                category=ErrorCategory.SESSION_EXPIRED,
            )
        self._session = session_id

    async def _skip_replay(self) -> None:
        try:
            async with asyncio.timeout(REPLAY_S):
                while True:
                    update = mapping((await self.next_of_start()).params.get("update"))
                    if update.get("sessionUpdate") == "available_commands_update":
                        return
        except TimeoutError:
            log.warning("%s did not end its replay", self._runtime.name)

    async def _choose_model(self, model: str) -> None:
        try:
            await self._call("session/set_model", {"sessionId": self._session, "modelId": model})
        except AgentUnavailable as error:
            log.warning("the model %s could not be chosen: %s", model, error)

    async def _call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request of the start and return its answer; what else is said is dropped."""
        request = await self._peer.request(method, params)
        while True:
            message = await self.next_of_start()
            if message.is_request:
                await self._peer.refuse(message)
            elif not message.method and message.id == request:
                break
        if message.error is None:
            return message.result
        category, detail = _failure(message.error)
        if message.error.code == AUTH_REQUIRED:
            category = ErrorCategory.AUTH
        elif method in ("session/load", "session/resume", "session/fork"):
            category = ErrorCategory.SESSION_EXPIRED
        raise AgentUnavailable(f"{self._runtime.name} did not start: {detail}", category=category)

    def parked_state(self) -> dict[str, Any] | None:
        """Return what the next driver must know; None in a turn, or with a request open."""
        if self._turn is not None:
            return None
        if any(message.is_request for message in self._peer.take_unread()):
            return None
        if not self._pipes.is_clean:
            return None
        return {
            "session": self._session,
            "last_id": self._peer.last_id,
            "cost": self._cost,
            "instructions": self._instructions,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another driver left off."""
        self._session = state["session"]
        self._peer.last_id = state["last_id"]
        self._cost = state["cost"]
        self._instructions = state["instructions"]

    # -- a turn --------------------------------------------------------------------------------

    async def turn(
        self, prompt: str, images: Sequence[Image] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask the agent; yield what it says, with exactly one `DoneEvent`, last."""
        for message in self._peer.take_unread():
            if message.method == "session/request_permission" and message.id is not None:
                await self._peer.respond(message.id, _CANCELLED)  # it belongs to nobody
            elif message.is_request:
                await self._peer.refuse(message)
        instructions, self._instructions = self._instructions, ""
        if instructions:
            prompt = f"{instructions}\n\n{prompt}"
        turn = _AcpTurn(
            self._pipes,
            self._peer,
            functools.partial(self._runtime.server_of, spec=self._spec),
            self._runtime,
            self._session,
            self._cost,
            said_before=self._said,
        )
        await turn.ask(self.parts(prompt, images))
        async with contextlib.aclosing(self.events_of(turn)) as events:
            async for event in events:
                if isinstance(event, ErrorEvent):
                    self._instructions = instructions  # it may not have read them
                if isinstance(event, DoneEvent):
                    self._cost = turn.cost
                    self._said = turn.said
                yield event

    @staticmethod
    def parts(prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message as ACP wants it."""
        parts: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        for image in images:
            data = base64.b64encode(image.data).decode()
            parts.append({"type": "image", "mimeType": image.mime_type, "data": data})
        return parts


class _AcpTurn(RpcTurn):
    """One turn, and the messages that join it."""

    def __init__(
        self,
        pipes: AgentPipes,
        peer: Peer,
        server_of: Callable[[Mapping[str, Any]], str | None],
        runtime: AcpRuntime,
        session: str,
        cost: float,
        *,
        said_before: str = "",
    ) -> None:
        """`said_before` is the message that an earlier turn ended with: more of it is not ours."""
        super().__init__(pipes, peer)
        self.name = runtime.name
        self._runtime = runtime
        self._server_of = server_of
        self._said_before = said_before
        self.said = said_before
        self._session = session
        self._cost_before = self.cost = cost
        self._prose = Prose()
        self._saying: str | None = None
        """The id of the message that is being said, where the agent gives one."""
        self._prompts: dict[int, str | None] = {}
        """Prompts that are not answered yet: the keys of those that joined, by request."""
        self._tools: dict[str, dict[str, Any]] = {}
        """What is known of each tool call, by its id."""
        self._used: set[str] = set()
        """Tool calls that were said to have begun."""
        self._asked: dict[str, Message] = {}
        """Requests for a permission that were not answered yet."""
        self._denied: list[str] = []
        self._usage = AgentUsage()
        self._is_cancelled = False

    async def ask(self, parts: list[dict[str, Any]], key: str | None = None) -> None:
        """Send a prompt; one with a `key` joins those that are being answered."""
        params = {"sessionId": self._session, "prompt": parts}
        # Noted before it is sent, which may take its time: the turn is not over without it.
        message_id = self._peer.reserve()
        self._prompts[message_id] = key
        await self._peer.request("session/prompt", params, message_id)

    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Send another prompt: it joins those that are being answered, or follows them."""
        await self.ask(parts, key)

    async def interrupt(self) -> None:
        """Ask the agent to stop; some wait for open questions to be answered then."""
        self._is_cancelled = True
        await self._peer.notify("session/cancel", {"sessionId": self._session})
        for message in [*self._asked.values()]:
            if message.id is not None:
                await self._peer.respond(message.id, _CANCELLED)
        self._asked.clear()

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Choose the option that fits a decision."""
        message = self._asked.pop(permission_id, None)
        if message is None or message.id is None:
            return
        if decision.verdict == "deny":
            self._denied.append(self._tool_of(message))
        kinds = {
            "allow": ("allow_once", "allow_always"),
            "allow_session": ("allow_always", "allow_once"),
            "deny": ("reject_once", "reject_always"),
        }[decision.verdict]
        options = {
            text(option.get("kind")): text(option.get("optionId"))
            for option in mappings(message.params.get("options"))
        }
        chosen = next((options[kind] for kind in kinds if options.get(kind)), None)
        outcome = (
            {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}
        )
        await self._peer.respond(message.id, {"outcome": outcome})

    # -- what the agent says -------------------------------------------------------------------

    async def take(self, message: Message) -> list[AgentEvent]:
        """Return what a message means."""
        if message.is_request:
            return await self._take_request(message)
        if not message.method:
            return self._take_answer(message)
        if message.method != "session/update":
            self.unknown_messages += 1
            return []
        if message.params.get("sessionId", self._session) != self._session:
            return []
        return self._update(mapping(message.params.get("update")))

    async def _take_request(self, message: Message) -> list[AgentEvent]:
        if message.method != "session/request_permission":
            await self._peer.refuse(message)
            return []
        if message.params.get("sessionId", self._session) != self._session:
            await self._peer.respond(message.id or 0, _CANCELLED)
            return []
        permission_id = str(message.id)
        self._asked[permission_id] = message
        call = mapping(message.params.get("toolCall"))
        known = self._know(call)
        tool = self._tool_of(message)
        return [
            *self._use(text(call.get("toolCallId"))),
            PermissionEvent(permission_id, tool, _input(known), self._server_of(known)),
        ]

    def _tool_of(self, message: Message) -> str:
        call = mapping(message.params.get("toolCall"))
        return self._runtime.tool_name(self._tools.get(text(call.get("toolCallId")), call))

    def _take_answer(self, message: Message) -> list[AgentEvent]:
        if message.id not in self._prompts:
            return []
        key = self._prompts.pop(int(message.id))
        events: list[AgentEvent] = [SteeredEvent(key)] if key else []
        if message.error and not self._is_cancelled:
            category, detail = _failure(message.error)
            # What was to join it would be answered by itself.
            error = ErrorEvent(category, detail, ends_agent=bool(self._prompts))
            return [*events, error, DoneEvent(self.result())]
        self._take_usage(message.result)
        is_aborted = self._is_cancelled or message.result.get("stopReason") == "cancelled"
        if is_aborted and self._prompts:
            why = "the agent was stopped with a message still waiting"
            error = ErrorEvent(ErrorCategory.ABORTED, why, ends_agent=True)
            return [*events, error, DoneEvent(self.result(aborted=True))]
        if self._prompts:
            return events  # what joined is answered with it, or right behind
        if message.result.get("stopReason") == "refusal" and not self._prose.text:
            events.append(ErrorEvent(ErrorCategory.FATAL, "the model refused to answer"))
        # With a question open, it may go on with whatever it asked about.
        return [*events, DoneEvent(self.result(aborted=is_aborted), ends_agent=bool(self._asked))]

    def _take_usage(self, result: Mapping[str, Any]) -> None:
        usage = mapping(result.get("usage"))
        quota = mapping(mapping(mapping(result.get("_meta")).get("quota")).get("token_count"))
        self._usage = AgentUsage(
            input_tokens=count(usage.get("inputTokens")) or count(quota.get("input_tokens")),
            output_tokens=count(usage.get("outputTokens")) or count(quota.get("output_tokens")),
            cache_read_tokens=count(usage.get("cachedReadTokens")),
            cache_write_tokens=count(usage.get("cachedWriteTokens")),
        )

    def _update(self, update: dict[str, Any]) -> list[AgentEvent]:
        content = mapping(update.get("content"))
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return self._say(update.get("messageId"), text(content.get("text")))
            case "agent_thought_chunk":
                return [ThinkingEvent(text(content.get("text")))]
            case "tool_call":
                self._know(update)
                is_ready = update.get("status") not in (None, "pending")
                return self._use(text(update.get("toolCallId"))) if is_ready else []
            case "tool_call_update":
                return self._tool_update(update)
            case "plan":
                return [_plan(mappings(update.get("entries")))]
            case "usage_update":
                amount = mapping(update.get("cost")).get("amount")
                if isinstance(amount, int | float):
                    self.cost = float(amount)
            case kind if kind not in _SILENT:
                self.unknown_messages += 1
        return []

    def _say(self, message_id: Any, words: str) -> list[AgentEvent]:
        if message_id and message_id == self._said_before:
            return []  # the end of what it said in an earlier turn
        self.said = text(message_id) or self.said
        if self._saying is None or (message_id and message_id != self._saying):
            self._prose.begin_block()
            self._saying = text(message_id)
        return self._prose.add(words)

    def _know(self, call: dict[str, Any]) -> dict[str, Any]:
        """Keep what is said of a tool call: the first title is its name, the last input counts."""
        known = self._tools.setdefault(text(call.get("toolCallId")), {})
        for name in ("toolCallId", "title", "kind", "rawInput"):
            value = call.get(name)
            if value not in (None, {}, []) and not (name == "title" and "title" in known):
                known[name] = value
        return known

    def _use(self, call_id: str) -> list[AgentEvent]:
        if call_id in self._used or call_id not in self._tools:
            return []
        self._used.add(call_id)
        self._saying = None  # what it says next is another paragraph
        known = self._tools[call_id]
        return [ToolUseEvent(self._runtime.tool_name(known), call_id, _input(known))]

    def _tool_update(self, update: dict[str, Any]) -> list[AgentEvent]:
        call_id = text(update.get("toolCallId"))
        self._know(update)
        status = update.get("status")
        if status not in ("completed", "failed"):
            return self._use(call_id) if status == "in_progress" else []
        output = "".join(
            text(mapping(part.get("content")).get("text"))
            for part in mappings(update.get("content"))
        )
        raw = mapping(update.get("rawOutput"))
        output = output or text(raw.get("output")) or text(raw.get("error"))
        events = [*self._use(call_id), ToolResultEvent(call_id, output, status == "failed")]
        self._tools.pop(call_id, None)
        return events

    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return what the turn has come to so far."""
        cost = self.cost - self._cost_before
        return AgentRunResult(
            text=self._prose.text,
            session_id=self._session,
            usage=self._usage,
            aborted=aborted,
            total_cost_usd=cost if cost > 0 else None,
            permission_denials=tuple(self._denied),
        )


#: Updates that say nothing which a person waits for.
_SILENT = frozenset(
    (
        *("user_message_chunk", "available_commands_update", "current_mode_update"),
        *("config_option_update", "session_info_update"),
    )
)


def _server(name: str, server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return an MCP server as ACP wants it described."""
    if server.url is not None:
        headers = [{"name": key, "value": value} for key, value in server.headers.items()]
        return {"type": "http", "name": name, "url": server.url, "headers": headers}
    env = {**server.env, "REMOTECLAW_SIDE_EFFECTS_FILE": str(run_dir / SIDE_EFFECTS_FILE)}
    return {
        "name": name,
        "command": server.command,
        "args": list(server.args),
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }


def _input(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a tool was given; some agents say it in words only."""
    if raw := mapping(call.get("rawInput")):
        return raw
    return {"title": text(call.get("title"))}


def _plan(entries: list[dict[str, Any]]) -> PlanEvent:
    return PlanEvent(
        tuple((text(entry.get("content")), entry.get("status") == "completed") for entry in entries)
    )


def _failure(error: RpcError) -> tuple[ErrorCategory, str]:
    """Return what an error means, and what it says."""
    detail = " ".join(filter(None, (str(error), text(error.data.get("details")))))
    status = error.code if 400 <= error.code < 600 else None
    return classify_error(detail, status=status), detail or f"error {error.code}"
