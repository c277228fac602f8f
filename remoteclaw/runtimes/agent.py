"""Base classes of running CLIs: a process with one conversation, and its turns, one at a time.

Each CLI's module adds the translation of its messages, mainly in `_begin()` and `take()`.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from remoteclaw.errors import AgentUnavailable, AsideFailed, ErrorCategory, classify_end
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AgentUsage,
    AsideAnswer,
    Compacted,
    CompactionEvent,
    ContextSize,
    DoneEvent,
    ErrorEvent,
    NoticeEvent,
    TextEvent,
)
from remoteclaw.messages import Image
from remoteclaw.protocols import AgentPipes, AgentSpec, Decision
from remoteclaw.runtimes.asides import CliAside, SharedMessages
from remoteclaw.runtimes.model_wait import ModelWait
from remoteclaw.runtimes.turn_text import TurnText
from remoteclaw.runtimes.wire import Messages, UnreadableLine

#: The command that has a CLI summarize its conversation.
COMPACT = "/compact"
#: The time limit for stopping an aside, in seconds: a CLI that does not read blocks the request.
STOP_S = 1.0

log = logging.getLogger(__name__)

_M = TypeVar("_M")


class CliTurn(ABC, Generic[_M]):
    """One turn, and the messages that join it."""

    name = "the agent"

    def __init__(self, pipes: AgentPipes) -> None:
        self._pipes = pipes
        self._text = TurnText()
        self._open_requests: dict[str, _M] = {}
        """Requests for a permission that are not answered yet, by their ids."""
        self._denied: list[str] = []
        """The names of the tools that were denied."""
        self._model_wait = ModelWait()
        self._stop_failure: ErrorEvent | None = None
        """The failure for which RemoteClaw stops the turn; None unless it does."""
        self.has_failed = False
        """Whether the turn has reported a failure."""
        self.has_compacted = False
        """Whether a compaction of the conversation has begun in the turn."""

    @property
    def is_answered(self) -> bool:
        """Whether the model's answer is certainly complete, and no message waits for another one.

        The turn is then done, whatever the CLI reports after that: a connection that broke after
        the last word, or a retry of its own.
        """
        return False

    async def events(self, messages: Messages[_M]) -> AsyncGenerator[AgentEvent, None]:
        """Yield events until the turn has ended, with exactly one `DoneEvent`, last."""
        while True:
            try:
                async with asyncio.timeout(self._patience_s):
                    message = await messages.read()
            except TimeoutError:
                for event in await self._lose_patience():
                    yield event
                continue
            except UnreadableLine:
                why = f"{self.name} printed a line that can't be read, or was too long"
                events: Sequence[AgentEvent] = [
                    ErrorEvent(ErrorCategory.FATAL, why, ends_agent=True),
                    DoneEvent(self.result()),
                ]
            else:
                events = self._died() if message is None else await self.take(message)
            for event in self._without_late_failures(events):
                self._model_wait.note(event)
                self.has_failed |= isinstance(event, ErrorEvent)
                self.has_compacted |= isinstance(event, CompactionEvent)
                yield event
                if isinstance(event, DoneEvent):
                    return

    def _died(self) -> list[AgentEvent]:
        errors = self._pipes.last_errors() or "it printed no error"
        error = ErrorEvent(ErrorCategory.DIED, f"{self.name} ended in mid-turn: {errors}")
        return [error, DoneEvent(self.result())]

    def _without_late_failures(self, events: Sequence[AgentEvent]) -> Sequence[AgentEvent]:
        """Return events without the failures behind a complete answer."""
        if not self.is_answered:
            return events
        late = [event for event in events if isinstance(event, ErrorEvent)]
        for failure in late:
            log.info("%s failed after its answer: %s", self.name, failure.category)
        must_end = any(failure.ends_agent for failure in late)
        return [
            replace(event, ends_agent=event.ends_agent or must_end)
            if isinstance(event, DoneEvent)
            else event
            for event in events
            if event not in late
        ]

    @property
    def _patience_s(self) -> float | None:
        """The longest wait for the next message, in seconds; None for any time."""
        return self._model_wait.remaining_s

    async def _lose_patience(self) -> list[AgentEvent]:
        """Return the events when no message has come in `_patience_s`."""
        self._stop_failure = self._model_wait.expire()
        await self.interrupt()
        return []

    async def _wait(self, failure: ErrorEvent, wait_s: float = 0.0) -> list[AgentEvent]:
        """Continue or stop a turn whose failed request the CLI retries in `wait_s` seconds.

        Return a notice if the turn continues.
        """
        if self._stop_failure:
            return []
        if self.is_answered:  # the retry would answer a second time
            self._stop_failure = failure
            await self.interrupt()
            return []
        event = self._model_wait.note_failure(failure, wait_s)
        if isinstance(event, NoticeEvent):
            return [event]
        self._stop_failure = event
        await self.interrupt()
        return []

    @abstractmethod
    async def take(self, message: _M) -> list[AgentEvent]:
        """Return the events of a message; a `DoneEvent` ends the turn."""

    @abstractmethod
    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Send a message into the running turn."""

    @abstractmethod
    async def interrupt(self) -> None:
        """Ask the CLI to stop the turn."""

    @abstractmethod
    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission; ignore an unknown `permission_id`."""

    @abstractmethod
    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return the result of the turn so far."""


_T = TypeVar("_T", bound=CliTurn[Any])


class CliProcess(ABC, Generic[_M, _T]):
    """One running CLI, between and during turns."""

    name = "the agent"

    def __init__(self, pipes: AgentPipes, messages: Messages[_M]) -> None:
        self._pipes = pipes
        self._messages = SharedMessages(
            messages,
            take=self._take_for_aside,
            take_between=self._take_between,
            fail_asides=self._fail_asides,
        )
        self._turn: _T | None = None
        self._is_in_turn = False
        """Whether a turn runs or begins, so that all messages but those of asides belong to it."""
        self._turn_number = 0
        """The number of turns begun so far, which is also the number of the latest turn."""
        self._turn_started = asyncio.Event()
        self._asides: list[CliAside[_M]] = []
        """The asides that wait for an answer."""
        self._abandoned: list[CliAside[_M]] = []
        """Asides that no caller waits for, but that must still receive messages."""
        self._uncounted = AgentRunResult()
        """The usage that no result contains yet; the next result of a turn counts it."""
        self.model: str | None = None
        """The chosen model; None for the CLI's default, empty while it is not certain."""
        self.missing_servers: dict[str, str] = {}
        """MCP servers that the CLI could not connect, each with the reason; empty if unknown."""

    @property
    @abstractmethod
    def session_id(self) -> str | None:
        """The CLI's own id of the conversation."""

    @property
    def note(self) -> str:
        """A line for the next process of the conversation."""
        return ""

    # -- start and park ------------------------------------------------------------------------

    @abstractmethod
    async def handshake(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
    ) -> None:
        """Begin a conversation, or resume the conversation `session_id`, or with `fork` copy it.

        Raises `AgentUnavailable`.
        """

    async def _read_at_start(self) -> _M:
        """Return the next message during the start. Raises `AgentUnavailable` if none arrives."""
        try:
            message = await self._messages.read()
        except UnreadableLine:
            why = f"{self.name} printed a line that can't be read, or was too long"
            raise AgentUnavailable(why, category=ErrorCategory.FATAL) from None
        if message is None:
            errors = self._pipes.last_errors()
            why = f"{self.name} ended while it started: {errors}"
            raise AgentUnavailable(why, category=classify_end(errors))
        return message

    async def set_model(self, model: str | None) -> bool:
        """Have `model` answer from the next turn on; return whether the process can.

        Raises `AgentUnavailable` if the CLI refuses the name.
        """
        if model == self.model:
            return True
        self.model = ""
        try:
            is_set = await self._choose(model)
        except AgentUnavailable as failure:
            if failure.category is ErrorCategory.UNKNOWN_MODEL:
                raise
            return False  # it has ended
        if is_set:
            self.model = model
        return is_set

    async def _choose(self, model: str | None) -> bool:
        """Set the model; return whether the CLI can do that.

        Raises `AgentUnavailable` if it refuses the name.
        """
        return False

    async def _read_until(self, is_answer: Callable[[_M], bool]) -> _M:
        """Return the answer to a request that was sent between turns, and handle what comes first.

        Raises `AgentUnavailable` if none arrives.
        """
        while not is_answer(message := await self._read_at_start()):
            await self._take_between(message)
        return message

    def parked_state(self) -> dict[str, Any] | None:
        """Return the state that the next worker needs; None if the agent can't be parked now.

        It can't be parked in a turn, with an aside or an open request, or with a line half read.
        """
        if self._is_in_turn or self._asides:
            return None
        for message in self._messages.take_unread():
            if self._is_request(message):
                return None
            self._observe(message)
        if not self._pipes.is_clean:
            return None
        usage, cost = self._uncounted.usage, self._uncounted.total_cost_usd
        uncounted = {"usage": astuple(usage), "cost": cost}
        return {**self._state(), "model": self.model, "uncounted": uncounted}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state in which another worker parked the agent."""
        usage, cost = state["uncounted"]["usage"], state["uncounted"]["cost"]
        self._uncounted = AgentRunResult(usage=AgentUsage(*usage), total_cost_usd=cost)
        self.model = state["model"]
        self._restore(state)

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Return the state for `_restore()`."""

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restore the CLI's own state."""

    @abstractmethod
    def _is_request(self, message: _M) -> bool:
        """Whether the CLI waits for an answer to `message`."""

    @abstractmethod
    async def _deny(self, message: _M) -> None:
        """Deny a request that arrives between turns."""

    def _observe(self, message: _M) -> None:
        """Update the state from a message that arrives between turns."""

    # -- a turn --------------------------------------------------------------------------------

    async def turn(
        self, prompt: str, images: Sequence[Image] = (), *, is_command: bool = False
    ) -> AsyncGenerator[AgentEvent, None]:
        """Send `prompt` and yield the turn's events, with exactly one `DoneEvent`, last."""
        for message in self._messages.take_unread():
            await self._take_between(message)
        self._is_in_turn = True
        self._turn_number = number = self._turn_number + 1
        try:
            if is_command and (problem := await self._problem_of(prompt)):
                self._finish(number)
                yield TextEvent(problem)
                yield DoneEvent(AgentRunResult(problem, self.session_id))
                return
            begun = self._begin_command(prompt) if is_command else self._begin(prompt, images)
            turn = self._turn = await begun
            self._turn_started.set()
            async with contextlib.aclosing(turn.events(self._messages)) as events:
                async for event in events:
                    if isinstance(event, DoneEvent):
                        self._carry_over(turn)
                        self._finish(number)  # the consumer may stop after this event
                        yield self._with_uncounted(event)
                    else:
                        yield event
        finally:
            self._finish(number)

    async def compact(self, keep: str = "") -> Compacted:
        """Have the CLI summarize its conversation, and return how that ended."""
        made, command = Compacted(), f"{COMPACT} {keep}".rstrip()
        async with contextlib.aclosing(self.turn(command, is_command=True)) as events:
            async for event in events:
                match event:
                    case CompactionEvent(phase):
                        made = Compacted(event if phase == "done" else None)
                    case ErrorEvent():
                        made = Compacted(failure=event)
                    case DoneEvent(run):
                        made = replace(made, run=run)
        return made

    async def context_size(self) -> ContextSize | None:
        """Return the size of the conversation, as the CLI has told it last."""
        return None

    def _finish(self, number: int) -> None:
        """End turn `number`, unless a later one runs: its generator may be closed late."""
        if number != self._turn_number:
            return
        self._turn = None
        self._is_in_turn = False
        self._turn_started.clear()

    @abstractmethod
    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message in the CLI's format."""

    @abstractmethod
    async def _begin(self, prompt: str, images: Sequence[Image]) -> _T:
        """Send the turn's message, and return the turn."""

    async def _begin_command(self, text: str) -> _T:
        """Send a slash command of the CLI, and return the turn."""
        return await self._begin(text, ())

    async def _problem_of(self, command: str) -> str:
        """Return why the CLI can't run `command`; empty if no reason is known."""
        return ""

    def _carry_over(self, turn: _T) -> None:
        """Keep the state of an ended turn that the next turn needs."""

    async def steer(self, prompt: str, key: str, images: Sequence[Image] = ()) -> None:
        """Send a message during a turn: the agent joins it to its work or answers it afterwards."""
        await self._turn_started.wait()
        if self._turn is not None:
            await self._turn.steer(self._parts(prompt, images), key)

    async def interrupt(self) -> None:
        """Stop the running turn and everything that it has started."""
        if self._turn is not None:
            await self._turn.interrupt()

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission of the running turn."""
        if self._turn is not None:
            await self._turn.answer(permission_id, decision)

    # -- asides --------------------------------------------------------------------------------

    async def aside(self, prompt: str) -> AsideAnswer:
        """Ask a question during the turn and return its answer. Raises `AsideFailed`."""
        return await self._ask(self._new_aside(), prompt)

    async def _ask(self, aside: CliAside[_M], prompt: str) -> AsideAnswer:
        answer = None
        self._asides.append(aside)
        try:
            await aside.ask(prompt)
            answer = await self._messages.answer(aside)
            return answer
        finally:
            self._asides.remove(aside)
            if aside.awaits_message:
                self._abandoned.append(aside)
            elif answer is None:
                self._count_later(aside.usage, aside.cost_usd)
            if not aside.is_over:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STOP_S):
                        await aside.stop()

    def _count_later(self, usage: AgentUsage | None, cost_usd: float | None) -> None:
        """Have the next result of a turn count what belongs to no turn, as an aside that failed."""
        run = AgentRunResult(usage=usage or AgentUsage(), total_cost_usd=cost_usd)
        self._uncounted = self._uncounted.followed_by(run)

    def _with_uncounted(self, done: DoneEvent) -> DoneEvent:
        """Return the end of a turn with the usage that no result contains yet."""
        run, self._uncounted = self._uncounted.followed_by(done.result), AgentRunResult()
        return replace(done, result=run)

    def _new_aside(self) -> CliAside[_M]:
        """Return a new aside. Raises `AsideFailed` if the CLI supports none."""
        raise AsideFailed(f"{self.name} can't answer asides")

    async def _take_for_aside(self, message: _M) -> bool:
        """Pass a message to its aside; return False if it belongs to none."""
        for aside in (*self._asides, *self._abandoned):
            if await aside.take(message):
                if not aside.awaits_message and aside in self._abandoned:
                    self._abandoned.remove(aside)
                    self._count_later(aside.usage, aside.cost_usd)
                return True
        return False

    async def _take_between(self, message: _M) -> bool:
        """Handle a message of an aside, or, between turns, any message; return whether it was."""
        if await self._take_for_aside(message):
            return True
        if self._is_in_turn:
            return False
        if self._is_request(message):
            await self._deny(message)
        self._observe(message)
        return True

    def _fail_asides(self, why: str) -> None:
        """Fail all asides: no further message can be read."""
        for aside in self._abandoned:
            self._count_later(aside.usage, aside.cost_usd)
        self._abandoned.clear()
        for aside in self._asides:
            aside.fail(why)
