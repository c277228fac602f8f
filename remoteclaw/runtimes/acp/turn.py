"""A turn over ACP: translates the agent's messages and requests into events."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    CompactionEvent,
    ContextSize,
    DoneEvent,
    ErrorEvent,
    FormEvent,
    PermissionEvent,
    SteeredEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.protocols import LOG_LINE, AgentPipes, AgentSpec, Decision
from remoteclaw.runtimes.acp.messages import (
    CANCELLED,
    commands_of,
    context_of,
    cost_of,
    deny,
    error_event,
    input_of,
    plan_of,
    usage_of,
)
from remoteclaw.runtimes.acp.usage import SessionUsage
from remoteclaw.runtimes.agent import CliTurn
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.wire import mapping, mappings, text

if TYPE_CHECKING:
    from remoteclaw.runtimes.acp.runtime import AcpRuntime

#: The kind of option for each verdict. An "always" is never chosen: an agent may store it for good.
_KINDS = {"allow": "allow_once", "deny": "reject_once"}
#: The longest wait for the arguments of a call that an agent asks about before it reports them, in
#: seconds. They come within a millisecond. Without them, a person is asked.
ARGUMENTS_S = 2.0


class AcpTurn(CliTurn[RpcMessage]):
    """One turn, and the messages that join it.

    Each message is a separate prompt request. The turn ends with the last answer.
    """

    def __init__(
        self,
        pipes: AgentPipes,
        peer: RpcPeer,
        runtime: "AcpRuntime",
        spec: AgentSpec,
        *,
        session: str,
        cost: float | None = 0.0,
        previous_message_id: str = "",
    ) -> None:
        """`cost` is the cost of the session so far, in US dollars; None if it is not known.

        `previous_message_id` is the last message of an earlier turn, whose late chunks are ignored.
        """
        super().__init__(pipes)
        self.name = runtime.name
        self._peer = peer
        self._runtime = runtime
        self._spec = spec
        self._session = session
        self._usage = SessionUsage(runtime, spec, session, cost)
        self._previous_message_id = self.last_message_id = previous_message_id
        self._message_id: str | None = None
        """The id of the current message, empty if the agent gives none; None before a block."""
        self._prompts: dict[int, str | None] = {}
        """The keys of the prompts without an answer, by request id; None for the turn's first."""
        self._tools: dict[str, dict[str, Any]] = {}
        """The known fields of each tool call, by its id."""
        self._reported_calls: set[str] = set()
        """The ids of the tool calls that were reported."""
        self._early_requests: list[RpcMessage] = []
        """Requests for a permission that have come before the arguments of their calls."""
        self._is_cancelled = False
        self._logged_message = ""
        """The id of the latest message that began, according to the agent's log."""
        self._summaries: set[str] = set()
        """The ids of messages that are summaries of the conversation, not part of the answer."""
        self._summary: str | None = None
        """The text of the summary that the agent writes; None if it writes none."""
        self._has_gone_on = False
        """Whether the agent has begun another message after the summary."""
        self._requests: Counter[str] = Counter()
        """The number of requests for each message, according to the agent's log."""
        self._is_repeated = False
        """Whether the agent asks again for the current message, part of which has arrived."""
        self._wrote_late = False
        """Whether text has arrived after the turn was stopped for a failing model."""
        self.context: ContextSize | None = None
        """The size of the conversation; None if the agent has not reported it."""
        self.commands: tuple[str, ...] = ()
        """The agent's slash commands, if it has announced them during the turn."""
        self.is_command = False
        """Whether the turn's message is a slash command of the agent."""

    @property
    def cost(self) -> float | None:
        """The cost of the session so far, in US dollars; None if it is not known."""
        return self._usage.cost

    @property
    def is_answered(self) -> bool:
        """Whether a summary of the conversation follows the text, and no prompt waits."""
        is_summary = self._logged_message in self._summaries
        return is_summary and self._message_id is not None and len(self._prompts) <= 1

    async def ask(self, parts: list[dict[str, Any]], key: str | None = None) -> None:
        """Send a prompt; with a `key`, it joins the running turn."""
        params = {"sessionId": self._session, "prompt": parts}
        # The request is registered before it is sent, so that the turn can't end in between.
        message_id = self._peer.reserve()
        self._prompts[message_id] = key
        await self._peer.request("session/prompt", params, message_id)

    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Send another prompt: the agent joins it to its work, or answers it afterwards."""
        await self.ask(parts, key)

    async def interrupt(self) -> None:
        """Ask the agent to stop, and deny open requests: some agents wait for their answers."""
        self._is_cancelled = True
        await self._peer.notify("session/cancel", {"sessionId": self._session})
        requests, self._open_requests = self._open_requests, {}
        for message in requests.values():
            await deny(self._peer, message)

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request with the option that matches the decision."""
        message = self._open_requests.pop(permission_id, None)
        if message is None or message.id is None:
            return
        if decision.verdict == "deny":
            self._denied.append(self._tool_of(message))
        options = mappings(message.params.get("options"))
        kind = _KINDS[decision.verdict]
        option_ids = [
            text(option.get("optionId")) for option in options if option.get("kind") == kind
        ]
        if not option_ids:
            await self._peer.respond(message.id, CANCELLED)
            return
        outcome = {"outcome": "selected", "optionId": option_ids[0]}
        await self._peer.respond(message.id, {"outcome": outcome})

    # -- messages of the agent -----------------------------------------------------------------

    async def take(self, message: RpcMessage) -> list[AgentEvent]:
        """Return the events of a message."""
        if message.is_request:
            return await self._take_request(message)
        if not message.method:
            return self._take_answer(message)
        if message.method == LOG_LINE:
            return await self._take_log(text(message.params.get("line")))
        is_ours = message.params.get("sessionId", self._session) == self._session
        if message.method != "session/update" or not is_ours:
            return []
        self._usage.cost = cost_of(message) or self._usage.cost
        self.context = context_of(message) or self.context
        self.commands = commands_of(message) or self.commands
        update = mapping(message.params.get("update"))
        events = self._update(update)
        if update.get("sessionUpdate") in ("tool_call", "tool_call_update"):
            events += self._usage.growth()  # before the next request to the model
        return events

    async def _take_log(self, line: str) -> list[AgentEvent]:
        note = self._runtime.read_log(line)
        if note is None or note.session not in (None, self._session):
            return []
        self._logged_message = note.begun_message or self._logged_message
        if note.begins_request:
            self._requests[self._logged_message] += 1
            is_second = self._requests[self._logged_message] > 1
            self._is_repeated = is_second and self._message_id == self._logged_message
        if note.is_compaction:
            self._summaries.add(self._logged_message)
            self._summary, self._has_gone_on = "", False
            return [CompactionEvent("began", self._trigger)]
        if note.is_compaction is False:
            self._has_gone_on = True  # the summary's last words may still be on their way
        return await self._wait(note.failure, note.wait_s) if note.failure else []

    @property
    def _trigger(self) -> Literal["auto", "manual"]:
        return "manual" if self.is_command else "auto"

    def _end_compaction(self, *, is_cut: bool = False) -> list[AgentEvent]:
        """Return the event for the end of a compaction; none if the agent writes no summary."""
        summary, self._summary = self._summary, None
        if summary is None:
            return []
        # A request to compact succeeds even if the model refuses to write a summary.
        self.context = None  # the last report is about the request for the summary
        if is_cut or not summary.strip():
            return [CompactionEvent("failed", self._trigger)]
        return [CompactionEvent("done", self._trigger, summary=summary)]

    async def _take_request(self, message: RpcMessage) -> list[AgentEvent]:
        is_ours = message.params.get("sessionId", self._session) == self._session
        if message.method == "elicitation/create" and is_ours and message.id is not None:
            await self._peer.respond(message.id, {"action": "cancel"})
            return [FormEvent("", text(message.params.get("message")))]
        if message.method != "session/request_permission" or not is_ours:
            await deny(self._peer, message)
            return []
        self._open_requests[str(message.id)] = message
        if not self._runtime.has_arguments(self._call_of(message)):
            self._early_requests.append(message)
            return []
        return self._report_request(message)

    def _call_of(self, message: RpcMessage) -> dict[str, Any]:
        """Return what was known of a request's call before the request."""
        call = mapping(message.params.get("toolCall"))
        return dict(self._tools.get(text(call.get("toolCallId")), {}))

    def _report_early_requests(self, *, is_late: bool = False) -> list[AgentEvent]:
        """Report the early requests whose arguments are known; all of them if it `is_late`."""
        waiting, self._early_requests = self._early_requests, []
        events: list[AgentEvent] = []
        for message in waiting:
            if str(message.id) not in self._open_requests:
                continue  # the turn was interrupted
            if is_late or self._runtime.has_arguments(self._call_of(message)):
                events += self._report_request(message)
            else:
                self._early_requests.append(message)
        return events

    @property
    def _patience_s(self) -> float | None:
        return ARGUMENTS_S if self._early_requests else super()._patience_s

    async def _lose_patience(self) -> list[AgentEvent]:
        if self._early_requests:
            return self._report_early_requests(is_late=True)
        return await super()._lose_patience()

    def _report_request(self, message: RpcMessage) -> list[AgentEvent]:
        call, before = mapping(message.params.get("toolCall")), self._call_of(message)
        # A request may repeat only some of the arguments, and another one may follow.
        arguments = mapping(before.get("rawInput")) or call.get("rawInput")
        known = self._merge_call({**call, "rawInput": arguments})
        asked = known | {"rawInput": mapping(call.get("rawInput")) or arguments}
        tool = self._tool_of(message)
        server = self._runtime.server_of(known, self._spec)
        intent = self._runtime.intent_of(call, before)
        return [
            *self._report_call(text(call.get("toolCallId"))),
            PermissionEvent(str(message.id), tool, input_of(asked), server, intent),
        ]

    def _tool_of(self, message: RpcMessage) -> str:
        call = mapping(message.params.get("toolCall"))
        return self._runtime.tool_name(self._tools.get(text(call.get("toolCallId")), call))

    def _take_answer(self, message: RpcMessage) -> list[AgentEvent]:
        if message.id not in self._prompts:
            return []
        key = self._prompts.pop(int(message.id))
        events: list[AgentEvent] = [SteeredEvent(key)] if key else []
        is_stopped = self._is_cancelled or message.result.get("stopReason") == "cancelled"
        events += self._end_compaction(is_cut=bool(message.error) or is_stopped)
        # After a failure, the agent would answer the remaining prompts without a turn of ours.
        has_unanswered = bool(self._prompts)
        if self._stop_failure and not self._is_complete(message.result):
            error = replace(self._stop_failure, ends_agent=has_unanswered)
            return [*events, error, DoneEvent(self.result())]
        if message.error and not self._is_cancelled:
            error = error_event(message.error, ends_agent=has_unanswered)
            return [*events, error, DoneEvent(self.result())]
        self._usage.add(message.result)
        if is_stopped and has_unanswered:
            why = "the agent was stopped with a message still waiting"
            error = ErrorEvent(ErrorCategory.ABORTED, why, ends_agent=True)
            return [*events, error, DoneEvent(self.result(aborted=True))]
        if self._prompts:
            return events  # the remaining prompts are being answered, or come next
        if message.result.get("stopReason") == "refusal" and not self._text.text:
            events.append(ErrorEvent(ErrorCategory.FATAL, "the model refused to answer"))
        # With an open request, the agent may still carry out the action.
        return [
            *events,
            DoneEvent(self.result(aborted=is_stopped), ends_agent=bool(self._open_requests)),
        ]

    def _is_complete(self, result: Mapping[str, Any]) -> bool:
        """Whether the model has answered after all, before the agent was stopped.

        A message that was stopped has no usage; opencode gives no other sign.
        """
        has_ended = self._wrote_late and result.get("stopReason") == "end_turn"
        return has_ended and usage_of(result).output_tokens > 0

    def _update(self, update: dict[str, Any]) -> list[AgentEvent]:
        content = mapping(update.get("content"))
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                message_id = text(update.get("messageId"))
                is_next = self._has_gone_on and message_id == self._logged_message
                ended = self._end_compaction() if is_next else []
                return [*ended, *self._add_text(message_id, text(content.get("text")))]
            case "agent_thought_chunk":
                return [ThinkingEvent(text(content.get("text")))]
            case "tool_call":
                self._merge_call(update)
                is_ready = update.get("status") not in (None, "pending")
                return self._report_call(text(update.get("toolCallId"))) if is_ready else []
            case "tool_call_update":
                return self._tool_update(update)
            case "plan":
                return [plan_of(mappings(update.get("entries")))]
        return []

    def _add_text(self, message_id: str, chunk: str) -> list[AgentEvent]:
        if message_id and message_id == self._previous_message_id:
            return []  # a late chunk of an earlier turn's last message
        if message_id in self._summaries:
            if self._summary is not None:
                self._summary += chunk
            return []
        self.last_message_id = message_id or self.last_message_id
        if self._message_id is None or (message_id and message_id != self._message_id):
            self._text.begin_block()
            self._message_id = message_id
        events = self._text.withdraw_block() if self._is_repeated else []
        self._is_repeated = False
        self._wrote_late |= self._stop_failure is not None
        return [*events, *self._text.add(chunk)]

    def _merge_call(self, call: dict[str, Any]) -> dict[str, Any]:
        """Merge the reported fields of a tool call: its first title, and the latest other values.

        The first title is the tool's name.
        """
        known = self._tools.setdefault(text(call.get("toolCallId")), {})
        for name in ("toolCallId", "title", "kind", "rawInput"):
            value = call.get(name)
            if value not in (None, {}, []) and not (name == "title" and "title" in known):
                known[name] = value
        return known

    def _report_call(self, call_id: str) -> list[AgentEvent]:
        if call_id in self._reported_calls or call_id not in self._tools:
            return []
        self._reported_calls.add(call_id)
        self._message_id = None  # text after a tool call begins a new block
        known = self._tools[call_id]
        return [ToolUseEvent(self._runtime.tool_name(known), call_id, input_of(known))]

    def _tool_update(self, update: dict[str, Any]) -> list[AgentEvent]:
        call_id = text(update.get("toolCallId"))
        self._merge_call(update)
        status = update.get("status")
        if status not in ("completed", "failed"):
            events = self._report_call(call_id) if status == "in_progress" else []
            return [*events, *self._report_early_requests()]
        output = "".join(
            text(mapping(part.get("content")).get("text"))
            for part in mappings(update.get("content"))
        )
        raw = mapping(update.get("rawOutput"))
        output = output or text(raw.get("output")) or text(raw.get("error"))
        events = [*self._report_call(call_id), ToolResultEvent(call_id, output, status == "failed")]
        self._tools.pop(call_id, None)
        return events

    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return the result of the turn so far."""
        usage, cost_usd = self._usage.measure()
        return AgentRunResult(
            text=self._text.text,
            session_id=self._session,
            usage=usage,
            aborted=aborted,
            total_cost_usd=cost_usd,
            permission_denials=tuple(self._denied),
        )
