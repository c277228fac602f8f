"""A turn of claude's: its messages and requests, translated."""

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AnswerEndEvent,
    DoneEvent,
    ErrorEvent,
    FormEvent,
    Intent,
    PermissionEvent,
    PermissionWithdrawnEvent,
    SteeredEvent,
    TextEvent,
)
from remoteclaw.protocols import AgentPipes, Decision
from remoteclaw.runtimes.agent import CliTurn
from remoteclaw.runtimes.claude_failure import Failures
from remoteclaw.runtimes.claude_progress import Costs, Plan, TokensSoFar, usage_of
from remoteclaw.runtimes.claude_text import AnswerReading
from remoteclaw.runtimes.questions import questions_of
from remoteclaw.runtimes.wire import UUID, Lines, count, mapping, text

#: The last block of text of every message. Claude takes only the last block for a person's typing,
#: in which it replaces `@/any/file` by the file, whatever the agent is allowed to read, and takes
#: `/name` for a command.
CLOSING = "(End of the message.)"
#: The tool by which claude asks a person.
QUESTION = "AskUserQuestion"
#: The tool by which claude shows its plan, to leave plan mode. It enters that mode unasked.
PLAN = "ExitPlanMode"

#: The answer to a request for a permission outside of a turn.
_BETWEEN_TURNS = "No permission can be asked for now: go on without it."

log = logging.getLogger(__name__)


class ClaudePeer(Lines):
    """Our end of the line."""

    last_id = 0
    """The number of the last request."""

    def reserve(self) -> str:
        """Return an id for a request that is sent next."""
        self.last_id += 1
        return f"rc-{self.last_id}"

    async def request(self, subtype: str, request_id: str = "", **fields: Any) -> str:
        """Send a request; return the id under which its answer will come."""
        request_id = request_id or self.reserve()
        request = {"subtype": subtype, **fields}
        await self.send({"type": "control_request", "request_id": request_id, "request": request})
        return request_id

    async def set_mode(self, mode: str) -> None:
        """Set claude's own permission mode."""
        await self.request("set_permission_mode", mode=mode)

    async def respond(self, message: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Answer a request of claude's."""
        await self._respond(message, subtype="success", response=answer)

    async def deny(self, message: Mapping[str, Any]) -> None:
        """Answer a request that gets no decision."""
        if mapping(message.get("request")).get("subtype") == "can_use_tool":
            await self.respond(message, {"behavior": "deny", "message": _BETWEEN_TURNS})
        else:
            await self.refuse(message)

    async def refuse(self, message: Mapping[str, Any]) -> None:
        """Answer a request that we don't know: claude would wait for ever."""
        await self._respond(message, subtype="error", error="not supported")

    async def _respond(self, message: Mapping[str, Any], **fields: Any) -> None:
        response = {"request_id": text(message.get("request_id")), **fields}
        await self.send({"type": "control_response", "response": response})


class Conversation:
    """The state of claude and its conversation from one turn to the next."""

    def __init__(self, session_id: str | None) -> None:
        self.session_id = session_id
        self.model = ""
        """The model that claude has named: another process asks for the same."""
        self.costs = Costs()
        self.is_planning = False
        """Whether claude is in plan mode."""
        self.point = ""
        """The id of the last message of the last finished turn: a copy begins there."""
        self.failures = Failures()
        self.plan = Plan()

    def note(self, message: dict[str, Any]) -> None:
        """Take notice of a line."""
        self.failures.note(message)
        if (message.get("type"), message.get("subtype")) == ("system", "init"):
            self.model = text(message.get("model"))
        if message.get("type") == "system" and (mode := text(message.get("permissionMode"))):
            self.is_planning = mode == "plan"

    def keep_session_id(self, session_id: str) -> None:
        """Keep the id that claude gives the conversation."""
        if UUID.fullmatch(session_id):
            self.session_id = session_id
        elif session_id:
            log.warning("claude named a conversation in a way that is no id, and is not believed")


class ClaudeTurn(CliTurn[dict[str, Any]]):
    """One turn: our message, those that join it, and an answer to each that claude takes apart."""

    name = "claude"

    def __init__(self, pipes: AgentPipes, peer: ClaudePeer, conversation: Conversation) -> None:
        super().__init__(pipes)
        self._peer = peer
        self._conversation = conversation
        conversation.failures.begin()
        conversation.plan.begin()
        self._tokens = TokensSoFar()
        self._answer = AnswerReading(str(uuid.uuid4()))
        self._before: AgentRunResult | None = None
        """The result of the earlier answers of this turn."""
        self._steered: dict[str, str] = {}
        """Messages that joined and were not taken up yet: their keys, by id."""
        self._last = conversation.point
        """The id of the last message that claude has written."""

    async def ask(self, parts: list[dict[str, Any]]) -> None:
        """Send the turn's message."""
        await self._say(self._answer.message_id, parts)

    async def command(self, text: str) -> None:
        """Send a command of claude's own, which claude repeats in other words, or not at all."""
        self._answer.is_ours = True
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        uuid_ = self._answer.message_id
        await self._peer.send({"type": "user", "uuid": uuid_, "message": message})

    async def _say(self, message_id: str, parts: list[dict[str, Any]]) -> None:
        message = {"role": "user", "content": [*parts, {"type": "text", "text": CLOSING}]}
        await self._peer.send({"type": "user", "uuid": message_id, "message": message})

    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Add a message to the turn.

        While claude uses a tool, it hears of the message with the tool's result; while it writes,
        it answers it in a turn of its own right behind, which counts as a part of ours.
        """
        message_id = str(uuid.uuid4())
        self._steered[message_id] = key
        await self._say(message_id, parts)

    async def interrupt(self) -> None:
        """Stop the turn; claude answers within milliseconds, also while it runs a tool."""
        await self._peer.request("interrupt")

    # -- permissions ---------------------------------------------------------------------------

    async def _take_request(self, message: dict[str, Any]) -> list[AgentEvent]:
        request = mapping(message.get("request"))
        if request.get("subtype") == "elicitation":
            await self._peer.respond(message, {"action": "cancel"})
            return [FormEvent(text(request.get("mcp_server_name")), text(request.get("message")))]
        if request.get("subtype") != "can_use_tool":
            await self._peer.refuse(message)
            return []
        request_id = text(message.get("request_id"))
        self._asked[request_id] = message
        tool = text(request.get("tool_name"))
        asked = mapping(request.get("input"))
        questions = questions_of(asked) if tool == QUESTION else ()
        plan = text(asked.get("plan")) if tool == PLAN else None
        intent = intent_of(tool, asked)
        return [
            PermissionEvent(request_id, tool, asked, intent=intent, questions=questions, plan=plan)
        ]

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission; one that claude took back is not answered."""
        message = self._asked.pop(permission_id, None)
        if message is None:
            return
        request = mapping(message.get("request"))
        if decision.verdict == "deny":
            self._denied.append(text(request.get("tool_name")))
            if decision.ends_planning:
                await self._peer.set_mode("default")
            denial = {"behavior": "deny", "message": decision.message}
            await self._peer.respond(message, denial)
            return
        asked = mapping(request.get("input"))
        if decision.answers:
            texts = (question.text for question in questions_of(asked))
            asked = {**asked, "answers": dict(zip(texts, decision.answers, strict=True))}
        await self._peer.respond(message, {"behavior": "allow", "updatedInput": asked})

    # -- what claude says ----------------------------------------------------------------------

    async def take(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return what a line means."""
        self._conversation.note(message)
        events = self._taken_up(text(message.get("uuid")))
        events += [*self._tokens.read(message), *self._conversation.plan.read(message)]
        match message.get("type"):
            case "control_request":
                events += await self._take_request(message)
            case "control_cancel_request":
                withdrawn = text(message.get("request_id"))
                if self._asked.pop(withdrawn, None):
                    events.append(PermissionWithdrawnEvent(withdrawn))
            case "result":
                events += self._take_result(message)
            case _:
                if message.get("type") == "assistant" and not message.get("parent_tool_use_id"):
                    self._last = text(message.get("uuid"))
                if said := self._answer.read(message):
                    # A message that joined is repeated only behind what answers it.
                    events += [*self._taken_up(self._answer.message_id), *said]
        return events

    def _taken_up(self, message_id: str) -> list[AgentEvent]:
        key = self._steered.pop(message_id, None)
        return [SteeredEvent(key)] if key else []

    def _take_result(self, message: dict[str, Any]) -> list[AgentEvent]:
        # A message that no model was asked about is not repeated: one that a hook of the user's
        # refused, or one for a conversation that claude doesn't know.
        if not self._answer.is_ours and message.get("num_turns") != 0:
            log.info("claude took a turn of its own, and what it said is dropped")
            return self._answer.take_back()
        events = self._taken_up(self._answer.message_id)
        aborted = text(message.get("terminal_reason")).startswith("aborted")
        failure, answer = self._failure(message, aborted), self._answer.text
        if not (failure or aborted):
            self._conversation.point = self._last
        if failure:
            events.append(failure)
        elif not answer and not aborted and (answer := text(message.get("result"))):
            events.append(TextEvent(answer))  # what claude says without a model
        run = self._run(message, answer, aborted)
        if failure or not self._steered:
            # With a request open, claude may go on with what it asked for.
            return [*events, DoneEvent(run, ends_agent=bool(self._asked))]
        # What came after the last tool gets an answer of its own, right behind this one.
        self._before = run
        self._answer = AnswerReading(next(iter(self._steered)))
        return [*events, AnswerEndEvent()]

    def _failure(self, message: dict[str, Any], aborted: bool) -> ErrorEvent | None:
        """Return why an answer failed.

        `subtype` is "success" for most failures, so `is_error` and `terminal_reason` decide.
        A claude that failed with a message still waiting would take that up by itself.
        """
        if message.get("is_error") and not aborted:
            return self._conversation.failures.of(message, ends_agent=bool(self._steered))
        if aborted and self._steered:
            why = "claude was stopped with a message still waiting"
            return ErrorEvent(ErrorCategory.ABORTED, why, ends_agent=True)
        return None

    def _run(self, message: dict[str, Any], answer: str, aborted: bool) -> AgentRunResult:
        # A conversation that claude doesn't know is answered under a new id: not the one to keep.
        if not message.get("errors"):
            self._conversation.keep_session_id(text(message.get("session_id")))
        run = AgentRunResult(
            text=answer,
            session_id=self._conversation.session_id,
            duration_ms=count(message.get("duration_ms")),
            usage=usage_of(mapping(message.get("usage"))),
            aborted=aborted,
            total_cost_usd=self._conversation.costs.of_turn(message),
            num_turns=count(message.get("num_turns")),
            stop_reason=text(message.get("stop_reason")) or None,
            permission_denials=tuple(self._denied),
        )
        return self._before.followed_by(run) if self._before else run

    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return what the turn has come to so far."""
        run = AgentRunResult(
            text=self._answer.text,
            session_id=self._conversation.session_id,
            aborted=aborted,
        )
        return self._before.followed_by(run) if self._before else run


def intent_of(tool: str, asked: Mapping[str, Any]) -> Intent | None:
    """Return what a tool is asked to do; an answer repeats it, so claude does nothing else."""
    match tool:
        case "Bash":
            return Intent("Bash", command=text(asked.get("command")))
        case "Edit" | "MultiEdit" | "Write":
            return Intent("Edit", paths=(text(asked.get("file_path")),))
        case "NotebookEdit":
            return Intent("Edit", paths=(text(asked.get("notebook_path")),))
        case "Read":
            return Intent("Read", paths=(text(asked.get("file_path")),))
        case "Glob" | "Grep":
            return Intent("Read", paths=(text(asked.get("path")) or ".",))
        case "WebFetch":
            return Intent("WebFetch", url=text(asked.get("url")))
        case "WebSearch":
            return Intent("WebSearch")
    return Intent(tool) if tool.startswith("mcp__") else None
