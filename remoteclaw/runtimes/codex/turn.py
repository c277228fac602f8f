"""A turn of codex: translates its messages and requests into events."""

import asyncio
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Self

from remoteclaw.errors import classify_error
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AgentUsage,
    CompactionEvent,
    ContextSize,
    DoneEvent,
    ErrorEvent,
    FormEvent,
    Intent,
    PermissionEvent,
    SteeredEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
    UsageEvent,
)
from remoteclaw.protocols import AgentPipes, Decision
from remoteclaw.runtimes.agent import CliTurn
from remoteclaw.runtimes.codex.failure import failure_of
from remoteclaw.runtimes.codex.items import TOOLS, command_of, output_of, plan_of, use_of
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.questions import questions_of
from remoteclaw.runtimes.wire import count, mapping, mappings, text

#: The request for answers to codex's questions.
_QUESTIONS = "item/tool/requestUserInput"
#: The request to exceed the sandbox in this turn, if codex's `request_permissions_tool` is enabled.
_MORE_PERMISSIONS = "item/permissions/requestApproval"
#: The request to use an MCP server's tool, and the server's own request for a form.
_OF_SERVERS = "mcpServer/elicitation/request"
#: The tool name for each request for a permission.
_TOOL_NAMES = {
    "item/commandExecution/requestApproval": "shell",
    "item/fileChange/requestApproval": "apply_patch",
    _QUESTIONS: "request_user_input",
    _MORE_PERMISSIONS: "request_permissions",
}
#: The answer to the model in place of a person's answer.
_UNANSWERED = "(No answer, says RemoteClaw: {why})"
_NOT_NOW = "No person can be asked now."
#: Fields of a request that asks for more than one command or one change of files.
_EXTRA_FIELDS = ("additionalPermissions", "networkApprovalContext", "grantRoot")


@dataclass
class ThreadTokens:
    """The tokens of one thread: its totals, and those of them that are counted already.

    A copied thread begins with the totals of its original, and codex does not report them before
    its first turn.
    """

    counted: AgentUsage | None = None
    """The totals that are counted; None if they are not known yet."""
    total: AgentUsage = field(default_factory=AgentUsage)
    """The totals that codex has reported last."""
    context: ContextSize | None = None
    """The size of the conversation after the last request; None before codex reports it."""
    is_estimated: bool = False
    """Whether `context` is an estimate, as codex makes it for a summary."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Return the tokens from their `state()`."""
        counted = state["counted"]
        context = ContextSize(*state["context"]) if state["context"] else None
        counted = AgentUsage(*counted) if counted else None
        return cls(counted, AgentUsage(*state["total"]), context)

    def state(self) -> dict[str, Any]:
        """Return the tokens as JSON."""
        return {
            "counted": astuple(self.counted) if self.counted else None,
            "total": astuple(self.total),
            "context": astuple(self.context) if self.context else None,
        }

    def read(self, params: Mapping[str, Any], *, has_answer: bool) -> None:
        """Read a report of the totals.

        `has_answer` tells that the model has answered a request since this thread was begun or
        resumed. Codex repeats the last report when a request breaks off.
        """
        usage = mapping(params.get("tokenUsage"))
        self.total = _usage(mapping(usage.get("total")))
        newest = mapping(usage.get("last"))
        used, limit = count(newest.get("totalTokens")), count(usage.get("modelContextWindow"))
        self.context = ContextSize(used, limit) if used and limit else self.context
        self.is_estimated = not _usage(newest).tokens
        if self.counted is None:
            last = _usage(mapping(usage.get("last"))) if has_answer else AgentUsage()
            self.counted = self.total.since(last)

    @property
    def new(self) -> AgentUsage:
        """The tokens that are not counted yet."""
        return self.total.since(self.counted or self.total)

    def settle(self) -> None:
        """Note that all tokens so far are counted."""
        if self.counted is not None:
            self.counted = self.total


class CodexTurn(CliTurn[RpcMessage]):
    """One turn of codex."""

    name = "codex"

    def __init__(
        self,
        pipes: AgentPipes,
        peer: RpcPeer,
        *,
        thread: str,
        request: int,
        tokens: ThreadTokens,
        unasked: frozenset[str] = frozenset(),
        compacts: bool = False,
    ) -> None:
        """`request` is the id of the turn's request; `tokens` are those of the thread.

        A turn that `compacts` only does that, by request.

        `unasked` is that of `CodexProcess`.
        """
        super().__init__(pipes)
        self._peer = peer
        self._thread = thread
        self._request = request
        self._started = asyncio.Event()
        self._turn = ""
        self.point = ""
        """The turn's id, once it has succeeded."""
        self._tokens = tokens
        self._has_answer = False
        """Whether the model has answered a request of the turn."""
        self._unasked = unasked
        self._message_id = ""
        """The id of the message item in progress; empty between messages."""
        self._is_final = False
        """Whether the last item is a complete message that the model calls its final answer."""
        self._steered: set[str] = set()
        """The keys of messages that were sent during the turn and not taken up yet."""
        self._steer_requests: dict[int | str | None, str] = {}
        """The keys of the messages whose `turn/steer` request is not answered, by request id."""
        self._open_calls: dict[str, dict[str, Any]] = {}
        """MCP tool calls for which codex may still ask permission, by item id."""
        self._changes: dict[str, list[dict[str, Any]]] = {}
        """Changes of files for which codex may still ask permission, by item id."""
        self._compaction = CompactionEvent("began", "manual" if compacts else "auto")
        """What a compaction in this turn is reported as when it begins."""
        self._is_compacting = False
        self._limits: dict[str, Any] = {}
        """Codex's last report of the plan's usage limits."""

    @property
    def is_answered(self) -> bool:
        """Whether the model has completed its final message, and no other one waits."""
        return self._is_final and not self._steered

    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Send a message into the turn; codex reads it before its next step."""
        await self._started.wait()
        self._steered.add(key)
        params = {"threadId": self._thread, "expectedTurnId": self._turn, "input": parts}
        request = self._peer.reserve()
        self._steer_requests[request] = key
        await self._peer.request("turn/steer", {**params, "clientUserMessageId": key}, request)

    async def interrupt(self) -> None:
        """Stop the turn and the commands that it has started."""
        if not self._turn:
            return
        thread = {"threadId": self._thread}
        await self._peer.request("turn/interrupt", {**thread, "turnId": self._turn})
        # Without this, a running command continues.
        await self._peer.request("thread/backgroundTerminals/clean", thread)

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission."""
        message = self._open_requests.pop(permission_id, None)
        if message is None or message.id is None:
            return
        if decision.verdict == "deny" and message.method != _QUESTIONS:
            self._denied.append(_tool_of(message))
        await self._peer.respond(message.id, _result_of(message, decision))

    # -- messages of codex ---------------------------------------------------------------------

    async def take(self, message: RpcMessage) -> list[AgentEvent]:
        """Return the events of a message; none for messages of other threads.

        Codex's own subagents are other threads, and report to codex.
        """
        if message.params.get("threadId", self._thread) != self._thread:
            if message.is_request:
                await deny(self._peer, message)
            return []
        if message.is_request:
            return await self._take_request(message)
        if not message.method:
            return self._take_answer(message)
        params = message.params
        self._has_answer |= is_answer(message)
        match message.method:
            case "item/agentMessage/delta":
                self._begin_message(text(params.get("itemId")))
                return self._text.add(text(params.get("delta")))
            case "item/started":
                return self._begin(mapping(params.get("item")))
            case "item/completed":
                return self._complete(mapping(params.get("item")))
            case "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta":
                return [ThinkingEvent(text(params.get("delta")))]
            case "turn/started" if not self._turn:  # a compaction's request does not return it
                self._begin_turn(text(mapping(params.get("turn")).get("id")))
            case "turn/plan/updated":
                return [plan_of(mappings(params.get("plan")))]
            case "thread/tokenUsage/updated":
                self._tokens.read(params, has_answer=self._has_answer)
                return [UsageEvent(self._tokens.new)]
            case "account/rateLimits/updated":
                self._limits = mapping(params.get("rateLimits"))
            case "error" if params.get("willRetry"):
                return await self._wait(failure_of(mapping(params.get("error")), self._limits))
            case "turn/completed":
                return self._end(mapping(params.get("turn")))
        return []

    def _take_answer(self, message: RpcMessage) -> list[AgentEvent]:
        if key := self._steer_requests.pop(message.id, None):
            if message.error:  # the turn has ended: the message waits for the next turn
                self._steered.discard(key)
            return []
        if message.id != self._request:
            return []
        if message.error:
            why = str(message.error)
            return [ErrorEvent(classify_error(why), why), DoneEvent(self.result())]
        if turn := text(mapping(message.result.get("turn")).get("id")):
            self._begin_turn(turn)
        return []

    def _begin_turn(self, turn: str) -> None:
        self._turn = turn
        self._started.set()

    async def _take_request(self, message: RpcMessage) -> list[AgentEvent]:
        if not _is_permission(message):
            await self._peer.refuse(message)
            return []
        if message.method == _OF_SERVERS and not self._is_of_codex(message):
            return await self._cancel_form(message)
        permission_id = str(message.id)
        self._open_requests[permission_id] = message
        server = text(message.params.get("serverName")) or None
        tool, intent, arguments = _tool_of(message), self._intent(message), _arguments_of(message)
        if changes := self._changes.get(text(message.params.get("itemId"))):
            arguments["changes"] = changes
        questions = questions_of(message.params) if message.method == _QUESTIONS else ()
        return [
            PermissionEvent(permission_id, tool, arguments, server, intent, questions=questions)
        ]

    async def _cancel_form(self, message: RpcMessage) -> list[AgentEvent]:
        if message.id is not None:
            await self._peer.respond(message.id, {"action": "cancel"})
        params = message.params
        return [FormEvent(text(params.get("serverName")), text(params.get("message")))]

    def _intent(self, message: RpcMessage) -> Intent | None:
        """Return the action of a request; None if it asks for more than the call itself."""
        params = message.params
        if any(params.get(name) for name in _EXTRA_FIELDS):
            return None
        is_start = params.get("kind", "command") == "command"  # else input for a running command
        match message.method:
            case "item/commandExecution/requestApproval":
                command = command_of(message)
                cwd = text(params.get("cwd")) or None
                return Intent("Bash", command, cwd) if command and is_start else None
            case "item/fileChange/requestApproval":
                changes = self._changes.get(text(params.get("itemId")), [])
                kinds = (mapping(change.get("kind")) for change in changes)
                moved = [text(kind["move_path"]) for kind in kinds if kind.get("move_path")]
                return Intent(
                    "Edit", paths=(*(text(change.get("path")) for change in changes), *moved)
                )
        return Intent(_tool_of(message)) if message.method == _OF_SERVERS else None

    def _is_of_codex(self, message: RpcMessage) -> bool:
        """Whether a request in a server's name is codex's request to use a tool of the server.

        Any other is a form of the server for the person, and accepting it would answer the form. A
        server could imitate codex's request, because codex passes on all its fields. So the request
        must match a call that codex has begun and not asked about yet.
        """
        meta = mapping(message.params.get("_meta"))
        server = text(message.params.get("serverName"))
        if meta.get("codex_approval_kind") != "mcp_tool_call" or server in self._unasked:
            return False
        request = (server, meta.get("tool_name"), mapping(meta.get("tool_params")))
        for item_id, item in self._open_calls.items():
            if request == (item.get("server"), item.get("tool"), mapping(item.get("arguments"))):
                del self._open_calls[item_id]
                return True
        return False

    def _begin_message(self, item_id: str) -> None:
        self._is_final = False
        if item_id != self._message_id:
            self._text.begin_block()
            self._message_id = item_id

    def _begin(self, item: dict[str, Any]) -> list[AgentEvent]:
        self._is_final = False
        item_id = text(item.get("id"))
        match text(item.get("type")):
            case "userMessage":
                key = text(item.get("clientId"))
                is_ours = key in self._steered
                self._steered.discard(key)
                return [*self._withdraw(), *([SteeredEvent(key)] if is_ours else [])]
            case "agentMessage":
                return self._withdraw()
            case "contextCompaction":
                self._is_compacting = True
                size = self._tokens.context
                self._compaction = replace(self._compaction, before=size.used if size else None)
                return [self._compaction]
            case kind if kind in TOOLS:
                if kind == "mcpToolCall":
                    self._open_calls[item_id] = item
                elif kind == "fileChange":
                    self._changes[item_id] = mappings(item.get("changes"))
                name, arguments = use_of(item)
                return [ToolUseEvent(name, item_id, arguments)]
        return []

    def _withdraw(self) -> list[AgentEvent]:
        """Withdraw a text that codex has begun and not completed, because codex repeats it."""
        message_id, self._message_id = self._message_id, ""
        return self._text.withdraw_block() if message_id else []

    def _complete(self, item: dict[str, Any]) -> list[AgentEvent]:
        item_id = text(item.get("id"))
        match text(item.get("type")):
            case "agentMessage":
                self._begin_message(item_id)
                self._message_id = ""
                self._is_final = item.get("phase") == "final_answer"
                return self._text.complete(text(item.get("text")))
            case "contextCompaction":
                self._is_compacting = False
                size = self._tokens.context if self._tokens.is_estimated else None
                return [replace(self._compaction, phase="done", after=size.used if size else None)]
            case kind if kind in TOOLS:
                self._open_calls.pop(item_id, None)
                self._changes.pop(item_id, None)
                output, is_error = output_of(item)
                return [ToolResultEvent(item_id, output, is_error)]
        return []

    def _end(self, turn: dict[str, Any]) -> list[AgentEvent]:
        aborted = turn.get("status") == "interrupted"
        events: list[AgentEvent] = []
        # Codex would take up the remaining messages in its next turn, where they are sent again.
        ends_agent = bool(self._steered) or bool(self._open_requests)
        if turn.get("status") == "failed":
            error = mapping(turn.get("error"))
            events.append(failure_of(error, self._limits, ends_agent=ends_agent))
        elif aborted and self._stop_failure:
            aborted = False
            events.append(replace(self._stop_failure, ends_agent=ends_agent))
        if not aborted and (self.is_answered or not events):
            self.point = text(turn.get("id"))
        if self._is_compacting:
            events.insert(0, replace(self._compaction, phase="failed"))
        return [*events, DoneEvent(self.result(aborted=aborted), ends_agent=ends_agent)]

    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return the result of the turn so far."""
        return AgentRunResult(
            text=self._text.text,
            session_id=self._thread,
            usage=self._tokens.new,
            aborted=aborted,
            permission_denials=tuple(self._denied),
        )


async def deny(peer: RpcPeer, message: RpcMessage) -> None:
    """Answer a request without a decision: deny a permission, refuse anything else."""
    if message.id is None or not _is_permission(message):
        await peer.refuse(message)
    else:
        await peer.respond(message.id, _result_of(message, Decision("deny", _NOT_NOW)))


def is_answer(message: RpcMessage) -> bool:
    """Whether a message shows that the model has answered: it reports a text or a tool call."""
    kind = mapping(message.params.get("item")).get("type")
    if message.method == "item/started":
        return kind in TOOLS
    return message.method == "item/completed" and kind != "userMessage"


def _is_permission(message: RpcMessage) -> bool:
    return message.method in (*_TOOL_NAMES, _OF_SERVERS)


def _result_of(message: RpcMessage, decision: Decision) -> dict[str, Any]:
    """Return the result that answers a request with a decision."""
    is_denied, params = decision.verdict == "deny", message.params
    if message.method == _OF_SERVERS:
        return {"action": "decline" if is_denied else "accept", "content": {}}
    if message.method == _MORE_PERMISSIONS:  # for this turn
        return {"permissions": {} if is_denied else mapping(params.get("permissions"))}
    if message.method == _QUESTIONS:
        ids = [text(question.get("id")) for question in mappings(params.get("questions"))]
        unanswered = [_UNANSWERED.format(why=decision.message)] * len(ids)
        answers = zip(ids, unanswered if is_denied else decision.answers, strict=True)
        return {"answers": {id_: {"answers": [answer]} for id_, answer in answers}}
    return {"decision": "decline" if is_denied else "accept"}


def _tool_of(message: RpcMessage) -> str:
    if tool := _TOOL_NAMES.get(message.method):
        return tool
    meta = mapping(message.params.get("_meta"))
    return f"mcp__{text(message.params.get('serverName'))}__{text(meta.get('tool_name'))}"


def _arguments_of(message: RpcMessage) -> dict[str, Any]:
    """Return the arguments of the tool that a request for a permission is about."""
    params = message.params
    if message.method == _OF_SERVERS:
        return mapping(mapping(params.get("_meta")).get("tool_params"))
    names = ("command", "cwd", "reason", "grantRoot", "permissions", "questions")
    return {name: params[name] for name in names if params.get(name) is not None}


def _usage(tokens: Mapping[str, Any]) -> AgentUsage:
    """Return codex's token counts in our terms."""
    cached = count(tokens.get("cachedInputTokens"))
    return AgentUsage(
        input_tokens=max(0, count(tokens.get("inputTokens")) - cached),
        output_tokens=count(tokens.get("outputTokens")),
        cache_read_tokens=cached,
        cache_write_tokens=count(tokens.get("cacheWriteInputTokens")),
    )
