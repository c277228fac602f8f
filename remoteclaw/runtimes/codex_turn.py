"""A turn of codex': its messages and requests, translated."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from remoteclaw.errors import classify_error
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AgentUsage,
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
from remoteclaw.runtimes.codex_failure import failure_of
from remoteclaw.runtimes.codex_items import TOOLS, output_of, plan_of, use_of
from remoteclaw.runtimes.codex_read_only import command_of, only_looks
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.questions import questions_of
from remoteclaw.runtimes.wire import count, mapping, mappings, text

#: The requests for answers to its own questions, and to do more in this turn than its sandbox lets
#: it; the latter is behind a feature of codex' own, `request_permissions_tool`.
_QUESTIONS = "item/tool/requestUserInput"
_WIDER = "item/permissions/requestApproval"
#: The request about a server's tool, and for what a server itself wants of the person.
_OF_SERVERS = "mcpServer/elicitation/request"
#: The tools that requests for a permission are about.
_ASKED_FOR = {
    "item/commandExecution/requestApproval": "shell",
    "item/fileChange/requestApproval": "apply_patch",
    _QUESTIONS: "request_user_input",
    _WIDER: "request_permissions",
}
#: What stands for an answer that nobody has given: the model reads nothing else.
_UNANSWERED = "(No answer, says RemoteClaw: {why})"
_NOT_NOW = "No person can be asked now."
#: Fields of a request by which it is for more than one command, or one change of files.
_MORE = ("additionalPermissions", "networkApprovalContext", "grantRoot")


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
        used: dict[str, int],
        readable: tuple[Path, ...] = (),
        unasked: frozenset[str] = frozenset(),
    ) -> None:
        """`request` is the id of the request that started it, `used` the thread's tokens so far.

        Codex was told to use tools of the servers in `unasked` without a request.
        """
        super().__init__(pipes)
        self._peer = peer
        self._thread = thread
        self._request = request
        self._started = asyncio.Event()
        self._turn = ""
        self.point = ""
        """The turn's id, once it has ended well."""
        self._before = self.used = used
        self._readable = readable
        self._unasked = unasked
        self._saying = ""
        """The item whose text is being said."""
        self._steered: set[str] = set()
        """Messages that codex was given in mid-turn and has not taken up, by their keys."""
        self._steers: dict[int | str | None, str] = {}
        """The keys of messages that codex was asked to take up, by the id of the request."""
        self._called: dict[str, dict[str, Any]] = {}
        """Calls of servers' tools that codex may yet ask about, by the id of their item."""
        self._changes: dict[str, list[dict[str, Any]]] = {}
        """Changes of files that codex may yet ask about, by the id of their item."""
        self._limits: dict[str, Any] = {}
        """The used part of the plan, from codex' last report."""

    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Add a message to the turn; codex hears of it with its next step."""
        await self._started.wait()
        self._steered.add(key)
        params = {"threadId": self._thread, "expectedTurnId": self._turn, "input": parts}
        request = self._peer.reserve()
        self._steers[request] = key
        await self._peer.request("turn/steer", {**params, "clientUserMessageId": key}, request)

    async def interrupt(self) -> None:
        """Stop the turn, and the commands that it has started."""
        if not self._turn:
            return
        thread = {"threadId": self._thread}
        await self._peer.request("turn/interrupt", {**thread, "turnId": self._turn})
        # Without this, a command that runs goes on, and does what it was to do.
        await self._peer.request("thread/backgroundTerminals/clean", thread)

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission."""
        message = self._asked.pop(permission_id, None)
        if message is None or message.id is None:
            return
        if decision.verdict == "deny" and message.method != _QUESTIONS:
            self._denied.append(_tool_of(message))
        await self._peer.respond(message.id, _answer(message, decision))

    # -- what codex says -----------------------------------------------------------------------

    async def take(self, message: RpcMessage) -> list[AgentEvent]:
        """Return what a message means.

        Agents that codex starts itself are threads of their own, and talk to it, not to the person.
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
        match message.method:
            case "item/agentMessage/delta":
                self._say(text(params.get("itemId")))
                return self._prose.add(text(params.get("delta")))
            case "item/started":
                return self._begin(mapping(params.get("item")))
            case "item/completed":
                return self._complete(mapping(params.get("item")))
            case "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta":
                return [ThinkingEvent(text(params.get("delta")))]
            case "turn/plan/updated":
                return [plan_of(mappings(params.get("plan")))]
            case "thread/tokenUsage/updated":
                self.used = tokens_of(params)
                return [UsageEvent(_usage(self._before, self.used))]
            case "account/rateLimits/updated":
                self._limits = mapping(params.get("rateLimits"))
            case "error" if params.get("willRetry"):
                return await self._wait(failure_of(mapping(params.get("error")), self._limits))
            case "turn/completed":
                return self._end(mapping(params.get("turn")))
        return []

    def _take_answer(self, message: RpcMessage) -> list[AgentEvent]:
        if key := self._steers.pop(message.id, None):
            if message.error:  # the turn has ended: the message waits for the next one
                self._steered.discard(key)
            return []
        if message.id != self._request:
            return []
        if message.error:
            why = str(message.error)
            return [ErrorEvent(classify_error(why), why), DoneEvent(self.result())]
        self._turn = text(mapping(message.result.get("turn")).get("id"))
        self._started.set()
        return []

    async def _take_request(self, message: RpcMessage) -> list[AgentEvent]:
        if not _is_permission(message):
            await self._peer.refuse(message)
            return []
        if message.id is not None and only_looks(message, self._readable):
            await self._peer.respond(message.id, {"decision": "accept"})
            return []
        if message.method == _OF_SERVERS and not self._is_of_codex(message):
            return await self._cancel_form(message)
        permission_id = str(message.id)
        self._asked[permission_id] = message
        server = text(message.params.get("serverName")) or None
        tool, intent, wanted = _tool_of(message), self._intent(message), _wanted(message)
        if changes := self._changes.get(text(message.params.get("itemId"))):
            wanted["changes"] = changes
        questions = questions_of(message.params) if message.method == _QUESTIONS else ()
        return [PermissionEvent(permission_id, tool, wanted, server, intent, questions=questions)]

    async def _cancel_form(self, message: RpcMessage) -> list[AgentEvent]:
        if message.id is not None:
            await self._peer.respond(message.id, {"action": "cancel"})
        params = message.params
        return [FormEvent(text(params.get("serverName")), text(params.get("message")))]

    def _intent(self, message: RpcMessage) -> Intent | None:
        """Return what a permission is for, unless codex asks for more than the call itself."""
        params = message.params
        if any(params.get(name) for name in _MORE):
            return None
        match message.method:
            case "item/commandExecution/requestApproval":
                command = command_of(message)
                return Intent("Bash", command, text(params.get("cwd"))) if command else None
            case "item/fileChange/requestApproval":
                changes = self._changes.get(text(params.get("itemId")), [])
                kinds = (mapping(change.get("kind")) for change in changes)
                moved = [text(kind["move_path"]) for kind in kinds if kind.get("move_path")]
                return Intent("Edit", paths=(*(text(each.get("path")) for each in changes), *moved))
        return Intent(_tool_of(message)) if message.method == _OF_SERVERS else None

    def _is_of_codex(self, message: RpcMessage) -> bool:
        """Whether a question in a server's name is codex' own, whether it may use a tool.

        Another is the server's, to the person: to accept it is to answer it in their name. Codex
        passes on whatever a server says with its own, so that has to fit a call which codex has
        begun and not asked about yet.
        """
        meta = mapping(message.params.get("_meta"))
        server = text(message.params.get("serverName"))
        if meta.get("codex_approval_kind") != "mcp_tool_call" or server in self._unasked:
            return False
        asked = (server, meta.get("tool_name"), mapping(meta.get("tool_params")))
        for item_id, item in self._called.items():
            if asked == (item.get("server"), item.get("tool"), mapping(item.get("arguments"))):
                del self._called[item_id]
                return True
        return False

    def _say(self, item: str) -> None:
        if item != self._saying:
            self._prose.begin_block()
            self._saying = item

    def _begin(self, item: dict[str, Any]) -> list[AgentEvent]:
        item_id = text(item.get("id"))
        match text(item.get("type")):
            case "userMessage":
                key = text(item.get("clientId"))
                is_ours = key in self._steered
                self._steered.discard(key)
                return [*self._withdraw(), *([SteeredEvent(key)] if is_ours else [])]
            case "agentMessage":
                return self._withdraw()
            case kind if kind in TOOLS:
                if kind == "mcpToolCall":
                    self._called[item_id] = item
                elif kind == "fileChange":
                    self._changes[item_id] = mappings(item.get("changes"))
                name, arguments = use_of(item)
                return [ToolUseEvent(name, item_id, arguments)]
        return []

    def _withdraw(self) -> list[AgentEvent]:
        """Take back a text that codex began and never completed: it says it again."""
        saying, self._saying = self._saying, ""
        return self._prose.take_back() if saying else []

    def _complete(self, item: dict[str, Any]) -> list[AgentEvent]:
        item_id = text(item.get("id"))
        match text(item.get("type")):
            case "agentMessage":
                self._say(item_id)
                self._saying = ""
                return self._prose.complete(text(item.get("text")))
            case kind if kind in TOOLS:
                self._called.pop(item_id, None)
                self._changes.pop(item_id, None)
                output, is_error = output_of(item)
                return [ToolResultEvent(item_id, output, is_error)]
        return []

    def _end(self, turn: dict[str, Any]) -> list[AgentEvent]:
        aborted = turn.get("status") == "interrupted"
        events: list[AgentEvent] = []
        # What was accepted and never taken up would come with the next turn, a second time.
        is_unfit = bool(self._steered) or bool(self._asked)
        if turn.get("status") == "failed":
            error = mapping(turn.get("error"))
            events.append(failure_of(error, self._limits, ends_agent=is_unfit))
        elif aborted and self._given_up:
            aborted = False
            events.append(replace(self._given_up, ends_agent=is_unfit))
        if not (events or aborted):
            self.point = text(turn.get("id"))
        return [*events, DoneEvent(self.result(aborted=aborted), ends_agent=is_unfit)]

    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return what the turn has come to so far."""
        return AgentRunResult(
            text=self._prose.text,
            session_id=self._thread,
            usage=_usage(self._before, self.used),
            aborted=aborted,
            permission_denials=tuple(self._denied),
        )


async def deny(peer: RpcPeer, message: RpcMessage) -> None:
    """Answer a request that gets no decision."""
    if message.id is None or not _is_permission(message):
        await peer.refuse(message)
    else:
        await peer.respond(message.id, _answer(message, Decision("deny", _NOT_NOW)))


def tokens_of(params: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens of the whole thread so far, as codex counts them."""
    total = mapping(mapping(params.get("tokenUsage")).get("total"))
    return {name: count(value) for name, value in total.items()}


def _is_permission(message: RpcMessage) -> bool:
    return message.method in (*_ASKED_FOR, _OF_SERVERS)


def _answer(message: RpcMessage, decision: Decision) -> dict[str, Any]:
    """Return what answers a request."""
    is_denied, params = decision.verdict == "deny", message.params
    if message.method == _OF_SERVERS:
        return {"action": "decline" if is_denied else "accept", "content": {}}
    if message.method == _WIDER:  # for this turn
        return {"permissions": {} if is_denied else mapping(params.get("permissions"))}
    if message.method == _QUESTIONS:
        ids = [text(asked.get("id")) for asked in mappings(params.get("questions"))]
        nothing = [_UNANSWERED.format(why=decision.message)] * len(ids)
        answers = zip(ids, nothing if is_denied else decision.answers, strict=True)
        return {"answers": {id_: {"answers": [words]} for id_, words in answers}}
    return {"decision": "decline" if is_denied else "accept"}


def _tool_of(message: RpcMessage) -> str:
    if tool := _ASKED_FOR.get(message.method):
        return tool
    meta = mapping(message.params.get("_meta"))
    return f"mcp__{text(message.params.get('serverName'))}__{text(meta.get('tool_name'))}"


def _wanted(message: RpcMessage) -> dict[str, Any]:
    """Return what a request for a permission is about."""
    params = message.params
    if message.method == _OF_SERVERS:
        return mapping(mapping(params.get("_meta")).get("tool_params"))
    kept = ("command", "cwd", "reason", "grantRoot", "permissions", "questions")
    return {name: params[name] for name in kept if params.get(name) is not None}


def _usage(before: Mapping[str, int], after: Mapping[str, int]) -> AgentUsage:
    """Return what was used between two states of the thread's count."""

    def used(name: str) -> int:
        return max(0, after.get(name, 0) - before.get(name, 0))

    cached = used("cachedInputTokens")
    return AgentUsage(
        input_tokens=max(0, used("inputTokens") - cached),
        output_tokens=used("outputTokens"),
        cache_read_tokens=cached,
        cache_write_tokens=used("cacheWriteInputTokens"),
    )
