"""A turn over ACP: the agent's messages and requests, translated."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from remoteclaw.errors import ErrorCategory, classify_error
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AgentUsage,
    DoneEvent,
    ErrorEvent,
    FormEvent,
    PermissionEvent,
    PlanEvent,
    PlanStep,
    SteeredEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.protocols import LOG_LINE, AgentPipes, AgentSpec, Decision
from remoteclaw.runtimes.agent import CliTurn
from remoteclaw.runtimes.jsonrpc import RpcError, RpcMessage, RpcPeer
from remoteclaw.runtimes.model_wait import retry_at_ms
from remoteclaw.runtimes.wire import count, mapping, mappings, text

if TYPE_CHECKING:
    from remoteclaw.runtimes.acp import AcpRuntime

#: The answer to a request that gets no decision.
_CANCELLED = {"outcome": {"outcome": "cancelled"}}
#: The kind of option that carries out a decision: an agent's "always" may be for ever.
_KINDS = {"allow": "allow_once", "deny": "reject_once"}


@dataclass(frozen=True, slots=True)
class LogNote:
    """A line of an agent's log about a turn."""

    session: str | None = None
    """The session that it is about, where it says so."""
    begins: str = ""
    """The id of a message that is begun."""
    is_own: bool = False
    """Whether that message is for the agent itself, such as a summary of the conversation."""
    failure: ErrorEvent | None = None
    """Why a request to the model failed, which the agent repeats."""
    wait_s: float = 0.0
    """The time until it does so, in seconds."""


class AcpTurn(CliTurn[RpcMessage]):
    """One turn, and the messages that join it."""

    def __init__(
        self,
        pipes: AgentPipes,
        peer: RpcPeer,
        runtime: "AcpRuntime",
        spec: AgentSpec,
        *,
        session: str,
        cost: float = 0.0,
        said_before: str = "",
    ) -> None:
        """`cost` is the session's so far, in US dollars.

        `said_before` is the message that an earlier turn ended with: more of it is not ours.
        """
        super().__init__(pipes)
        self.name = runtime.name
        self._peer = peer
        self._runtime = runtime
        self._spec = spec
        self._session = session
        self._cost_before = self.cost = cost
        self._said_before = self.said = said_before
        self._saying: str | None = None
        """The id of the message that is being said, where the agent gives one."""
        self._prompts: dict[int, str | None] = {}
        """Prompts that are not answered yet: the keys of those that joined, by request."""
        self._tools: dict[str, dict[str, Any]] = {}
        """The known fields of each tool call, by its id."""
        self._used: set[str] = set()
        """Tool calls that were said to have begun."""
        self._usage = AgentUsage()
        self._is_cancelled = False
        self._begun = ""
        """The message that the agent's log says is begun."""
        self._own: set[str] = set()
        """Messages that are for the agent itself."""
        self.commands: tuple[str, ...] = ()
        """The agent's own commands, if it has named them meanwhile."""
        self.is_command = False
        """Whether it is a command of the agent's own."""

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
        asked, self._asked = self._asked, {}
        for message in asked.values():
            await deny(self._peer, message)

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Choose the option that fits a decision."""
        message = self._asked.pop(permission_id, None)
        if message is None or message.id is None:
            return
        if decision.verdict == "deny":
            self._denied.append(self._tool_of(message))
        options = mappings(message.params.get("options"))
        kind = _KINDS[decision.verdict]
        fitting = [text(option.get("optionId")) for option in options if option.get("kind") == kind]
        if not fitting:
            await self._peer.respond(message.id, _CANCELLED)
            return
        outcome = {"outcome": "selected", "optionId": fitting[0]}
        await self._peer.respond(message.id, {"outcome": outcome})

    # -- what the agent says -------------------------------------------------------------------

    async def take(self, message: RpcMessage) -> list[AgentEvent]:
        """Return what a message means."""
        if message.is_request:
            return await self._take_request(message)
        if not message.method:
            return self._take_answer(message)
        if message.method == LOG_LINE:
            return await self._take_log(text(message.params.get("line")))
        is_ours = message.params.get("sessionId", self._session) == self._session
        if message.method != "session/update" or not is_ours:
            return []
        self.commands = commands_of(message) or self.commands
        return self._update(mapping(message.params.get("update")))

    async def _take_log(self, line: str) -> list[AgentEvent]:
        note = self._runtime.read_log(line)
        if note is None or note.session not in (None, self._session):
            return []
        self._begun = note.begins or self._begun
        if note.is_own:
            self._own.add(self._begun)
        return await self._wait(note.failure, note.wait_s) if note.failure else []

    async def _take_request(self, message: RpcMessage) -> list[AgentEvent]:
        is_ours = message.params.get("sessionId", self._session) == self._session
        if message.method == "elicitation/create" and is_ours and message.id is not None:
            await self._peer.respond(message.id, {"action": "cancel"})
            return [FormEvent("", text(message.params.get("message")))]
        if message.method != "session/request_permission" or not is_ours:
            await deny(self._peer, message)
            return []
        permission_id = str(message.id)
        self._asked[permission_id] = message
        call = mapping(message.params.get("toolCall"))
        before = dict(self._tools.get(text(call.get("toolCallId")), {}))
        known = self._know(call)
        tool = self._tool_of(message)
        server = self._runtime.server_of(known, self._spec)
        intent = self._runtime.intent_of(call, before)
        return [
            *self._use(text(call.get("toolCallId"))),
            PermissionEvent(permission_id, tool, _input(known), server, intent),
        ]

    def _tool_of(self, message: RpcMessage) -> str:
        call = mapping(message.params.get("toolCall"))
        return self._runtime.tool_name(self._tools.get(text(call.get("toolCallId")), call))

    def _take_answer(self, message: RpcMessage) -> list[AgentEvent]:
        if message.id not in self._prompts:
            return []
        key = self._prompts.pop(int(message.id))
        events: list[AgentEvent] = [SteeredEvent(key)] if key else []
        # What was to join a turn that fails would be answered by itself.
        is_unfit = bool(self._prompts)
        if self._given_up:
            error = replace(self._given_up, ends_agent=is_unfit)
            return [*events, error, DoneEvent(self.result())]
        if message.error and not self._is_cancelled:
            error = _failed(message.error, ends_agent=is_unfit)
            return [*events, error, DoneEvent(self.result())]
        self._take_usage(message.result)
        is_aborted = self._is_cancelled or message.result.get("stopReason") == "cancelled"
        if is_aborted and is_unfit:
            why = "the agent was stopped with a message still waiting"
            error = ErrorEvent(ErrorCategory.ABORTED, why, ends_agent=True)
            return [*events, error, DoneEvent(self.result(aborted=True))]
        if self._prompts:
            return events  # what joined is answered with it, or right behind
        if message.result.get("stopReason") == "refusal" and not self._prose.text:
            events.append(ErrorEvent(ErrorCategory.FATAL, "the model refused to answer"))
        # With a request open, the agent may go on with what it asked for.
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
                return self._say(text(update.get("messageId")), text(content.get("text")))
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
        return []

    def _say(self, message_id: str, words: str) -> list[AgentEvent]:
        if message_id and message_id == self._said_before:
            return []  # the end of what it said in an earlier turn
        if message_id in self._own:
            return []
        self.said = message_id or self.said
        if self._saying is None or (message_id and message_id != self._saying):
            self._prose.begin_block()
            self._saying = message_id
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


async def deny(peer: RpcPeer, message: RpcMessage) -> None:
    """Answer a request that gets no decision."""
    if message.method == "session/request_permission" and message.id is not None:
        await peer.respond(message.id, _CANCELLED)
    else:
        await peer.refuse(message)


def commands_of(message: RpcMessage) -> tuple[str, ...]:
    """Return the commands that the agent names in a message, such as `/init`; mostly none."""
    named = mappings(mapping(message.params.get("update")).get("availableCommands"))
    names = (text(one.get("name")).partition(" ")[0] for one in named)
    return tuple(f"/{name}" for name in dict.fromkeys(names) if name)


def failure(error: RpcError) -> tuple[ErrorCategory, str]:
    """Return what an error means, and what it says."""
    detail = " ".join(filter(None, (str(error), text(error.data.get("details")))))
    status = error.code if 400 <= error.code < 600 else None
    return classify_error(detail, status=status), detail or f"error {error.code}"


def _failed(error: RpcError, *, ends_agent: bool) -> ErrorEvent:
    category, detail = failure(error)
    may_wait = category in (ErrorCategory.USAGE_LIMIT, ErrorCategory.RETRYABLE)
    retry_at = retry_at_ms(detail) if may_wait else None
    return ErrorEvent(category, detail, ends_agent=ends_agent, retry_at_ms=retry_at)


def _input(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a tool was given; some agents say it in words only."""
    if raw := mapping(call.get("rawInput")):
        return raw
    content = mappings(call.get("content"))
    return {"title": text(call.get("title"))} | ({"content": content} if content else {})


def _plan(entries: list[dict[str, Any]]) -> PlanEvent:
    return PlanEvent(
        tuple(PlanStep.of(text(entry.get("content")), entry.get("status")) for entry in entries)
    )
