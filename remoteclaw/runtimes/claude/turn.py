"""A turn of claude: translates its messages and requests into events."""

import asyncio
import logging
import re
import uuid
from typing import Any

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AnswerEndEvent,
    DoneEvent,
    ErrorEvent,
    FormEvent,
    PermissionWithdrawnEvent,
    SteeredEvent,
    TextEvent,
)
from remoteclaw.protocols import AgentPipes, Decision
from remoteclaw.runtimes.agent import CliTurn
from remoteclaw.runtimes.claude.compaction import Compactions
from remoteclaw.runtimes.claude.failure import Failures
from remoteclaw.runtimes.claude.peer import ClaudePeer
from remoteclaw.runtimes.claude.permission import Permissions, tool_of
from remoteclaw.runtimes.claude.progress import Plan, TokensSoFar, Totals
from remoteclaw.runtimes.claude.text import AnswerReader
from remoteclaw.runtimes.wire import UUID, count, mapping, mappings, text

#: The last text block of every message. Claude interprets the last block as typed by a person: it
#: replaces `@/any/file` by the file, even one that the agent may not read, and runs `/name` as a
#: command. So the last block must not contain foreign text.
CLOSING = "(End of the message.)"

#: The types of lines that claude prints only once the model has begun to answer.
_OF_ANSWER = ("stream_event", "assistant", "control_request", "result")

#: The failures after which a message is asked again, and claude is to have it once.
_REFUSALS = (ErrorCategory.RETRYABLE, ErrorCategory.USAGE_LIMIT, ErrorCategory.UNREACHABLE)

#: A command that fails leaves only this message. With rules that RemoteClaw needs, one fails that
#: runs commands in its text.
_COMMAND_ERROR = re.compile(r"<local-command-stderr>(.*)</local-command-stderr>", re.DOTALL)

log = logging.getLogger(__name__)


class ClaudeConversation:
    """The state of a claude process and its conversation that lasts beyond a turn."""

    def __init__(self, session_id: str | None) -> None:
        self.session_id = session_id
        self.default_model = ""
        """The conversation's default model, with which the next process starts; empty if unknown.

        It is the model that claude reports without a chosen one."""
        self.has_default_model = False
        """Whether the default model answers."""
        self.totals = Totals()
        self.context = 0
        """The number of tokens that the last request has read."""
        self.limit: tuple[str | None, int] = (None, 0)
        """A chosen model, None for the default, and how many tokens it takes; 0 if unknown."""
        self.tells_size = True
        """Whether claude answers the question how long the conversation is."""
        self.is_answering = False
        """Whether a turn runs, whose result will have the totals."""
        self.last_answer: tuple[str, ...] = ()
        """The text of the last finished answer, and its last block."""
        self.is_planning = False
        """Whether claude is in plan mode."""
        self.point = ""
        """The id of the last message of the last finished turn, up to which a fork copies."""
        self.refused = ""
        """The id of our last message if the model could not take it for now; else empty."""
        self.failures = Failures()
        self.plan = Plan()

    def note(self, message: dict[str, Any]) -> None:
        """Update the state from a line."""
        self.failures.note(message)
        is_start = (message.get("type"), message.get("subtype")) == ("system", "init")
        if is_start and self.has_default_model:
            self.default_model = text(message.get("model"))
        if message.get("type") == "system" and (mode := text(message.get("permissionMode"))):
            self.is_planning = mode == "plan"

    def keep_session_id(self, session_id: str) -> None:
        """Store claude's id of the conversation, if it is a valid one."""
        if UUID.fullmatch(session_id):
            self.session_id = session_id
        elif session_id:
            log.warning("claude reported a session id that is no UUID; it is ignored")


class ClaudeTurn(CliTurn[dict[str, Any]]):
    """One turn: our message, the messages that join it, and one or more answers.

    Claude answers a message that arrives too late to join an answer in a separate turn, which
    counts as a part of this one.
    """

    name = "claude"

    def __init__(
        self,
        pipes: AgentPipes,
        peer: ClaudePeer,
        conversation: ClaudeConversation,
        unasked: tuple[str, ...] = (),
    ) -> None:
        """`unasked` are the MCP servers whose tools need no permission."""
        super().__init__(pipes)
        self._peer = peer
        self._permissions = Permissions(peer, unasked)
        self._conversation = conversation
        conversation.is_answering = True
        conversation.failures.begin()
        conversation.plan.begin()
        self._tokens = TokensSoFar()
        self._compactions = Compactions()
        self._answer = AnswerReader(str(uuid.uuid4()))
        self._earlier_answers: AgentRunResult | None = None
        """The merged result of the earlier answers of this turn; None before the first ends."""
        self._steered: dict[str, str] = {}
        """The keys of the joining messages that claude has not taken up yet, by message id."""
        self.has_answer = asyncio.Event()
        """Set once the model has begun to answer, claude summarizes, or the turn is over."""
        self._command_error = ""
        """Why claude's own command has failed."""
        self._last_message_id = conversation.point
        """The id of claude's last message."""

    @property
    def is_answered(self) -> bool:
        """Whether the model has ended its answer, and no message waits for another one."""
        return self._answer.has_ended and not self._steered

    async def ask(self, parts: list[dict[str, Any]]) -> None:
        """Send the turn's message."""
        await self._send(self._answer.message_id, parts)

    async def command(self, text: str) -> None:
        """Send a slash command of claude."""
        # Claude does not repeat a command, or repeats it in another form.
        self._answer.is_confirmed = True
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        message_id = self._answer.message_id
        await self._peer.send({"type": "user", "uuid": message_id, "message": message})

    async def _send(self, message_id: str, parts: list[dict[str, Any]]) -> None:
        message = {"role": "user", "content": [*parts, {"type": "text", "text": CLOSING}]}
        await self._peer.send({"type": "user", "uuid": message_id, "message": message})

    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Send a message into the running turn.

        During a tool call, claude reads the message with the tool's result. While claude writes,
        the message has to wait, and gets a separate answer after the current one.
        """
        message_id = str(uuid.uuid4())
        self._steered[message_id] = key
        await self._send(message_id, parts)

    async def interrupt(self) -> None:
        """Stop the turn; claude reacts within milliseconds, even during a tool call."""
        await self._peer.request("interrupt")

    # -- permissions ---------------------------------------------------------------------------

    async def _take_request(self, message: dict[str, Any]) -> list[AgentEvent]:
        request = mapping(message.get("request"))
        if request.get("subtype") == "elicitation":
            await self._peer.respond(message, {"action": "cancel"})
            return [FormEvent(text(request.get("mcp_server_name")), text(request.get("message")))]
        event = await self._permissions.take(message)
        if event is None:
            return []
        self._open_requests[event.id] = message
        return [event]

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission; ignore one that claude has withdrawn."""
        if message := self._open_requests.pop(permission_id, None):
            if decision.verdict == "deny":
                self._denied.append(tool_of(message))
            await self._permissions.answer(message, decision)

    # -- messages of claude --------------------------------------------------------------------

    async def take(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return the events of a line."""
        self._conversation.note(message)
        events = self._steered_events(text(message.get("uuid")))
        events += [*self._tokens.read(message), *self._conversation.plan.read(message)]
        events += (compactions := self._compactions.read(message))
        if compactions or message.get("type") in _OF_ANSWER:
            self.has_answer.set()
        self._conversation.context = self._tokens.context or self._conversation.context
        if compactions and compactions[-1].phase == "done":
            self._conversation.context = compactions[-1].after or 0
        match message.get("type"):
            case "control_request":
                events += await self._take_request(message)
            case "control_cancel_request":
                withdrawn = text(message.get("request_id"))
                if self._open_requests.pop(withdrawn, None):
                    events.append(PermissionWithdrawnEvent(withdrawn))
            case "result":
                events += self._take_result(message)
            case _:
                content = mapping(message.get("message")).get("content")
                if failed := _COMMAND_ERROR.fullmatch(text(content)):
                    self._command_error = failed[1]
                for block in mappings(content):
                    self._permissions.end(text(block.get("tool_use_id")))
                if message.get("type") == "assistant" and not message.get("parent_tool_use_id"):
                    self._last_message_id = text(message.get("uuid"))
                if answer_events := self._answer.read(message):
                    # Claude repeats a joining message only after the beginning of its answer.
                    events += [*self._steered_events(self._answer.message_id), *answer_events]
        return events

    def _steered_events(self, message_id: str) -> list[AgentEvent]:
        key = self._steered.pop(message_id, None)
        return [SteeredEvent(key)] if key else []

    def _take_result(self, message: dict[str, Any]) -> list[AgentEvent]:
        # Claude does not repeat a message that never reached the model: one refused by a hook of
        # the user, or one for an unknown conversation. Then `num_turns` is 0.
        if not self._answer.is_confirmed and message.get("num_turns") != 0:
            log.info("claude began a turn on its own, whose answer is dropped")
            return self._answer.withdraw()
        events = self._steered_events(self._answer.message_id)
        aborted = text(message.get("terminal_reason")).startswith("aborted")
        failure, answer = self._failure(message, aborted), self._answer.text
        if not aborted and (self.is_answered or not failure):
            self._conversation.point = self._last_message_id
        if failure:
            events.append(failure)
        elif (
            not aborted
            and not answer
            and (answer := text(message.get("result")) or self._command_error)
        ):
            events.append(TextEvent(answer))  # a reply of claude itself, without the model
        if not (failure or aborted):
            said = tuple(filter(None, (answer, self._answer.last_text)))
            self._conversation.last_answer = said or self._conversation.last_answer
        is_refused = failure is not None and failure.category in _REFUSALS and not answer
        self._conversation.refused = self._answer.message_id if is_refused else ""
        run = self._run(message, answer, aborted)
        if failure or not self._steered:
            self._conversation.is_answering = False
            # With an open request, claude may still carry out the action. A refused message stays
            # in the memory of the process.
            ends_agent = bool(self._open_requests) or is_refused
            return [*events, DoneEvent(run, ends_agent=ends_agent)]
        # A message that arrived after the last tool call gets a separate answer, which comes next.
        self._earlier_answers = run
        self._tokens = TokensSoFar(run.usage)
        self._answer = AnswerReader(next(iter(self._steered)))
        return [*events, AnswerEndEvent()]

    def _failure(self, message: dict[str, Any], aborted: bool) -> ErrorEvent | None:
        """Return the failure of an answer; None if it succeeded.

        `subtype` is "success" for most failures, so `is_error` and `terminal_reason` decide. With a
        message still waiting, the process must end: claude would answer the message on its own.
        """
        if message.get("is_error") and not aborted:
            return self._conversation.failures.of(message, ends_agent=bool(self._steered))
        if aborted and self._steered:
            why = "claude was stopped with a message still waiting"
            return ErrorEvent(ErrorCategory.ABORTED, why, ends_agent=True)
        return None

    def _run(self, message: dict[str, Any], answer: str, aborted: bool) -> AgentRunResult:
        # For an unknown conversation, claude reports an error under a new id, which is not kept.
        if not message.get("errors"):
            self._conversation.keep_session_id(text(message.get("session_id")))
        usage, cost_usd = self._conversation.totals.growth(message)
        if aborted:  # the totals lack the request that was stopped
            usage += self._tokens.unfinished
        run = AgentRunResult(
            text=answer,
            session_id=self._conversation.session_id,
            duration_ms=count(message.get("duration_ms")),
            usage=usage,
            aborted=aborted,
            total_cost_usd=cost_usd,
            num_turns=count(message.get("num_turns")),
            stop_reason=text(message.get("stop_reason")) or None,
            permission_denials=tuple(self._denied),
        )
        return self._earlier_answers.followed_by(run) if self._earlier_answers else run

    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return the result of the turn so far."""
        run = AgentRunResult(
            text=self._answer.text,
            session_id=self._conversation.session_id,
            usage=self._tokens.of_answer,
            aborted=aborted,
        )
        return self._earlier_answers.followed_by(run) if self._earlier_answers else run
