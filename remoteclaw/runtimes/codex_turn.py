"""A turn of codex', translated, with its requests."""

import asyncio
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from remoteclaw.errors import ErrorCategory, classify_error
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AgentUsage,
    DoneEvent,
    ErrorEvent,
    PermissionEvent,
    PlanEvent,
    SteeredEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.protocols import AgentPipes, Decision
from remoteclaw.runtimes.jsonrpc import Message, Peer, RpcError, RpcTurn
from remoteclaw.runtimes.prose import Prose
from remoteclaw.runtimes.waits import retry_at_ms
from remoteclaw.runtimes.wire import count, mapping, mappings, text

__all__ = ["CodexTurn", "deny", "only_looks"]

_CATEGORIES = {
    "contextWindowExceeded": ErrorCategory.CONTEXT_OVERFLOW,
    "sessionBudgetExceeded": ErrorCategory.BILLING,
    "usageLimitExceeded": ErrorCategory.USAGE_LIMIT,
    "modelNotFound": ErrorCategory.UNKNOWN_MODEL,
    "rateLimitExceeded": ErrorCategory.RETRYABLE,
    "serverOverloaded": ErrorCategory.RETRYABLE,
    "flexUnavailable": ErrorCategory.RETRYABLE,
    "policyCapacityUnavailable": ErrorCategory.RETRYABLE,
    "internalServerError": ErrorCategory.RETRYABLE,
    "unauthorized": ErrorCategory.AUTH,
}


class CodexTurn(RpcTurn):
    """One turn of codex."""

    name = "codex"

    def __init__(
        self,
        pipes: AgentPipes,
        peer: Peer,
        thread: str,
        request: int,
        used: dict[str, int],
        readable: tuple[Path, ...],
        unasked: frozenset[str] = frozenset(),
    ) -> None:
        """`request` is the id of the request that started it.

        For tools of the servers in `unasked` codex was told to ask nobody.
        """
        super().__init__(pipes, peer)
        self._thread = thread
        self._request = request
        self._started = asyncio.Event()
        self._turn = ""
        self._before = used
        self._readable = readable
        self._unasked = unasked
        self.used = dict(used)
        self._prose = Prose()
        self._saying = ""
        """The item whose text is being said."""
        self._steered: dict[str, str] = {}
        """Messages that codex was given in mid-turn and has not taken up: their keys, by id."""
        self._asked: dict[str, Message] = {}
        """Requests for a permission that were not answered yet."""
        self._denied: list[str] = []
        self._called: dict[str, dict[str, Any]] = {}
        """Calls of servers' tools that codex may yet ask about, by the id of their item."""
        self._limits: dict[str, Any] = {}
        """How much of the plan is used up, as codex told last."""

    # -- what others want of it ----------------------------------------------------------------

    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Have a message join the turn; codex hears of it with its next step."""
        await self._started.wait()
        self._steered[key] = key
        params = {"threadId": self._thread, "expectedTurnId": self._turn, "input": parts}
        try:
            await self._peer.ask("turn/steer", {**params, "clientUserMessageId": key})
        except (RpcError, ConnectionError):
            self._steered.pop(key, None)  # it has ended: the message waits for the next turn

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
        if decision.verdict == "deny":
            self._denied.append(_tool_of(message))
        if message.method == "mcpServer/elicitation/request":
            action = "decline" if decision.verdict == "deny" else "accept"
            await self._peer.respond(message.id, {"action": action, "content": {}})
            return
        verdict = {"allow": "accept", "allow_session": "acceptForSession", "deny": "decline"}
        await self._peer.respond(message.id, {"decision": verdict[decision.verdict]})

    # -- what codex says -----------------------------------------------------------------------

    async def take(self, message: Message) -> list[AgentEvent]:
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
                return [_plan(mappings(params.get("plan")))]
            case "thread/tokenUsage/updated":
                total = mapping(mapping(params.get("tokenUsage")).get("total"))
                self.used = {name: count(value) for name, value in total.items()}
            case "account/rateLimits/updated":
                self._limits = mapping(params.get("rateLimits"))
            case "error" if params.get("willRetry"):
                return await self._wait(self._failure(mapping(params.get("error"))))
            case "turn/completed":
                return self._end(mapping(params.get("turn")))
            case method if method not in _SILENT:
                self.unknown_messages += 1
        return []

    def _take_answer(self, message: Message) -> list[AgentEvent]:
        if message.id != self._request:
            return []
        if message.error:
            why = str(message.error)
            return [ErrorEvent(classify_error(why), why), DoneEvent(self.result())]
        self._turn = text(mapping(message.result.get("turn")).get("id"))
        self._started.set()
        return []

    async def _take_request(self, message: Message) -> list[AgentEvent]:
        if message.method not in _PERMISSIONS:
            await self._peer.refuse(message)
            return []
        if message.id is not None and only_looks(message, self._readable):
            await self._peer.respond(message.id, {"decision": "accept"})
            return []
        if message.method == "mcpServer/elicitation/request" and not self._is_of_codex(message):
            await deny(self._peer, message)
            return []
        permission_id = str(message.id)
        self._asked[permission_id] = message
        server = text(message.params.get("serverName")) or None
        return [PermissionEvent(permission_id, _tool_of(message), _wanted(message), server)]

    def _is_of_codex(self, message: Message) -> bool:
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
        match item.get("type"):
            case "userMessage":
                key = self._steered.pop(text(item.get("clientId")), None)
                return [*self._withdraw(), *([SteeredEvent(key)] if key else [])]
            case "agentMessage":
                return self._withdraw()
            case kind if kind in _TOOLS:
                if kind == "mcpToolCall":
                    self._called[item_id] = item
                name, arguments = _use(item)
                return [ToolUseEvent(name, item_id, arguments)]
        return []

    def _withdraw(self) -> list[AgentEvent]:
        """Take back a text that codex began and never completed: it says it anew."""
        saying, self._saying = self._saying, ""
        return self._prose.take_back() if saying else []

    def _complete(self, item: dict[str, Any]) -> list[AgentEvent]:
        item_id = text(item.get("id"))
        match item.get("type"):
            case "agentMessage":
                self._say(item_id)
                self._saying = ""
                return self._prose.complete(text(item.get("text")))
            case kind if kind in _TOOLS:
                self._called.pop(item_id, None)
                output, is_error = _output(item)
                return [ToolResultEvent(item_id, output, is_error)]
        return []

    def _end(self, turn: dict[str, Any]) -> list[AgentEvent]:
        aborted = turn.get("status") == "interrupted"
        events: list[AgentEvent] = []
        # What was accepted and never taken up would come with the next turn, a second time.
        is_unfit = bool(self._steered) or bool(self._asked)
        if turn.get("status") == "failed":
            events.append(self._failure(mapping(turn.get("error")), ends_agent=is_unfit))
        elif aborted and self._given_up:
            aborted = False
            events.append(replace(self._given_up, ends_agent=is_unfit))
        return [*events, DoneEvent(self.result(aborted=aborted), ends_agent=is_unfit)]

    def _failure(self, error: dict[str, Any], *, ends_agent: bool = False) -> ErrorEvent:
        said = (text(error.get(name)) for name in ("message", "additionalDetails"))
        detail = "; ".join(filter(None, said)) or "codex failed"
        category = _category(error, detail)
        retry_at = None
        if category is ErrorCategory.USAGE_LIMIT:
            retry_at = _limit_ends_at_ms(self._limits) or retry_at_ms(detail)
        elif category is ErrorCategory.RETRYABLE:
            retry_at = retry_at_ms(detail)
        # Of a thread that is too long it makes a shorter one before the next turn.
        is_repaired = category is ErrorCategory.CONTEXT_OVERFLOW
        return ErrorEvent(
            category, detail, ends_agent=ends_agent, is_repaired=is_repaired, retry_at_ms=retry_at
        )

    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return what the turn has come to so far."""
        return AgentRunResult(
            text=self._prose.text,
            session_id=self._thread,
            usage=_usage(self._before, self.used),
            aborted=aborted,
            permission_denials=tuple(self._denied),
        )


#: Items that are tools.
_TOOLS = frozenset(
    ("commandExecution", "fileChange", "mcpToolCall", "dynamicToolCall", "webSearch", "imageView")
)
#: Requests for a permission.
_PERMISSIONS = frozenset(
    (
        "item/commandExecution/requestApproval",
        "item/fileChange/requestApproval",
        "mcpServer/elicitation/request",
    )
)
#: Notifications that say nothing which a person waits for.
_SILENT = frozenset(
    (
        *("thread/started", "thread/status/changed", "thread/readState/changed", "warning"),
        *("thread/name/updated", "thread/settings/updated", "thread/goal/cleared", "error"),
        *(
            "turn/started",
            "turn/diff/updated",
            "item/reasoning/summaryPartAdded",
            "item/plan/delta",
        ),
        *("item/commandExecution/outputDelta", "item/commandExecution/terminalInteraction"),
        *(
            "item/fileChange/outputDelta",
            "item/fileChange/patchUpdated",
            "item/mcpToolCall/progress",
        ),
        *("serverRequest/resolved", "mcpServer/startupStatus/updated", "configWarning"),
        *("account/updated", "remoteControl/status/changed"),
        *("deprecationNotice", "thread/compacted", "skills/changed", "app/list/updated"),
    )
)


async def deny(peer: Peer, message: Message) -> None:
    """Answer a request that nobody decides about."""
    if message.id is None or message.method not in _PERMISSIONS:
        await peer.refuse(message)
    elif message.method == "mcpServer/elicitation/request":
        await peer.respond(message.id, {"action": "decline"})
    else:
        await peer.respond(message.id, {"decision": "decline"})


#: Programs that only read, with the options that they may have, each as a pattern.
_READERS = {
    "cat": r"-n",
    "head": r"-n\d*|-\d+",
    "ls": r"-[1aAhlRrSt]+",
    "pwd": r"(?!)",
    "tail": r"-n\d*|-\d+",
    "wc": r"-[lwc]+",
}
#: How long a command may be that only reads, in characters: splitting takes a second for a MB.
MOST_READ = 10_000
#: What a shell takes for more than a word.
_SHELL = frozenset("|&;<>()$`\\\"'*?[]{}~#!=%\n\r")


def only_looks(message: Message, readable: Sequence[Path]) -> bool:
    """Whether a command does no more than read in some directories, the first of which it is in.

    Codex asks for that as well. Its own summary of a command (`commandActions`) leaves out what
    comes behind a pipe, so the command itself has to be one of a few, of plain words.
    """
    if message.method != "item/commandExecution/requestApproval" or not readable:
        return False
    here, command = readable[0], text(message.params.get("command"))
    if len(command) > MOST_READ:
        return False
    try:
        shell = shlex.split(command)
    except ValueError:
        return False
    if text(message.params.get("cwd")) != str(here) or shell[:2] != ["/bin/bash", "-lc"]:
        return False
    if len(shell) != 3 or _SHELL & set(shell[2]):
        return False
    # To a shell no other space parts words, and a file may have one in its name.
    if not shell[2].isprintable():
        return False
    program, *arguments = shell[2].split(" ")
    options = _READERS.get(program)
    if options is None:
        return False
    for argument in arguments:
        if re.fullmatch(options, argument):
            continue
        where = Path(os.path.realpath(here / argument))
        is_inside = any(where.is_relative_to(root.resolve()) for root in readable)
        if argument.startswith("-") or not is_inside:
            return False
    return True


def _tool_of(message: Message) -> str:
    match message.method:
        case "item/commandExecution/requestApproval":
            return "shell"
        case "item/fileChange/requestApproval":
            return "apply_patch"
    meta = mapping(message.params.get("_meta"))
    return f"mcp__{text(message.params.get('serverName'))}__{text(meta.get('tool_name'))}"


def _wanted(message: Message) -> dict[str, Any]:
    """Return what a request for a permission is about."""
    params = message.params
    if message.method == "mcpServer/elicitation/request":
        return mapping(mapping(params.get("_meta")).get("tool_params"))
    kept = ("command", "cwd", "reason", "grantRoot")
    return {name: params[name] for name in kept if params.get(name) is not None}


def _use(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a tool that codex begins to use, and its arguments."""
    match item.get("type"):
        case "commandExecution":
            return "shell", {"command": text(item.get("command")), "cwd": text(item.get("cwd"))}
        case "fileChange":
            paths = [text(change.get("path")) for change in mappings(item.get("changes"))]
            return "apply_patch", {"paths": paths}
        case "mcpToolCall":
            name = f"mcp__{text(item.get('server'))}__{text(item.get('tool'))}"
            return name, mapping(item.get("arguments"))
        case "dynamicToolCall":
            return text(item.get("tool")), mapping(item.get("arguments"))
        case "webSearch":
            return "web_search", {"query": text(item.get("query"))}
    return "view_image", {"path": text(item.get("path"))}


def _output(item: dict[str, Any]) -> tuple[str, bool]:
    """Return what a tool gave back, and whether it failed."""
    is_error = item.get("status") in ("failed", "declined")
    match item.get("type"):
        case "commandExecution":
            return text(item.get("aggregatedOutput")), is_error or bool(item.get("exitCode"))
        case "mcpToolCall":
            error = text(mapping(item.get("error")).get("message"))
            content = mappings(mapping(item.get("result")).get("content"))
            return error or "".join(text(part.get("text")) for part in content), is_error
        case "dynamicToolCall":
            content = mappings(item.get("contentItems"))
            return "".join(text(part.get("text")) for part in content), is_error
    return "", is_error


def _plan(steps: list[dict[str, Any]]) -> PlanEvent:
    return PlanEvent(
        tuple((text(step.get("step")), text(step.get("status")) == "completed") for step in steps)
    )


def _status(info: Any) -> int | None:
    """Return the HTTP status that an error names."""
    if isinstance(info, dict):
        for value in info.values():
            if status := count(mapping(value).get("httpStatusCode")):
                return status
    return None


def _limit_ends_at_ms(limits: dict[str, Any]) -> int | None:
    """Return when the plan's limits that are reached have ended, in milliseconds since 1970."""
    windows = (mapping(limits.get(name)) for name in ("primary", "secondary"))
    ends = [count(one.get("resetsAt")) for one in windows if count(one.get("usedPercent")) >= 100]
    return max(ends, default=0) * 1000 or None


def _category(error: dict[str, Any], detail: str) -> ErrorCategory:
    info = error.get("codexErrorInfo")
    if isinstance(info, str) and info in _CATEGORIES:
        return _CATEGORIES[info]
    category = classify_error(detail, status=_status(info))
    if isinstance(info, dict) and (category is ErrorCategory.FATAL or _status(info) is None):
        return ErrorCategory.UNREACHABLE  # each of the others is about the connection
    return category


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
