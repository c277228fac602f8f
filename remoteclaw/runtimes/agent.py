"""Running CLIs: a process with one conversation, and its turns, one at a time.

A CLI's own file adds the translation of its messages: `_begin()` and `take()` above all.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from remoteclaw.errors import AgentUnavailable, AsideFailed, ErrorCategory, classify_end
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    DoneEvent,
    ErrorEvent,
    NoticeEvent,
    TextEvent,
)
from remoteclaw.messages import Image
from remoteclaw.protocols import AgentPipes, AgentSpec, Decision
from remoteclaw.runtimes.asides import CliAside, SharedMessages
from remoteclaw.runtimes.model_wait import Patience
from remoteclaw.runtimes.turn_text import Prose
from remoteclaw.runtimes.wire import Messages, UnreadableLine

#: Time limit for ending an aside, in seconds: the CLI may not read.
STOP_S = 1.0

_M = TypeVar("_M")


async def next_of_start(name: str, pipes: AgentPipes, messages: Messages[_M]) -> _M:
    """Return the next message of a CLI that starts; raises `AgentUnavailable` without one."""
    try:
        message = await messages.read()
    except UnreadableLine:
        why = f"{name} printed a line that can't be read, or was too long"
        raise AgentUnavailable(why, category=ErrorCategory.FATAL) from None
    if message is None:
        errors = pipes.last_errors()
        why = f"{name} ended while it started: {errors}"
        raise AgentUnavailable(why, category=classify_end(errors))
    return message


class CliTurn(ABC, Generic[_M]):
    """One turn, and the messages that join it."""

    name = "the agent"

    def __init__(self, pipes: AgentPipes) -> None:
        self._pipes = pipes
        self._prose = Prose()
        self._asked: dict[str, _M] = {}
        """Requests for a permission that were not answered yet, by their ids."""
        self._denied: list[str] = []
        """Names of the tools that were denied."""
        self._patience = Patience()
        self._given_up: ErrorEvent | None = None
        """Why the turn is stopped by us."""
        self.has_failed = False
        """Whether the turn has reported a failure."""

    async def events(self, messages: Messages[_M]) -> AsyncGenerator[AgentEvent, None]:
        """Read until the turn has ended; exactly one `DoneEvent`, last."""
        while True:
            try:
                async with asyncio.timeout(self._patience.left_s):
                    message = await messages.read()
            except TimeoutError:
                self._given_up = self._patience.give_up()
                await self.interrupt()
                continue
            except UnreadableLine:
                why = f"{self.name} printed a line that can't be read, or was too long"
                yield ErrorEvent(ErrorCategory.FATAL, why, ends_agent=True)
                break
            if message is None:
                errors = self._pipes.last_errors() or "it said nothing about that"
                yield ErrorEvent(ErrorCategory.DIED, f"{self.name} ended in mid-turn: {errors}")
                break
            for event in await self.take(message):
                self._patience.note(event)
                self.has_failed |= isinstance(event, ErrorEvent)
                yield event
                if isinstance(event, DoneEvent):
                    return
        yield DoneEvent(self.result())

    async def _wait(self, failure: ErrorEvent, wait_s: float = 0.0) -> list[AgentEvent]:
        """Go on with a turn whose request to the model the CLI repeats, or stop it."""
        if self._given_up:
            return []
        event = self._patience.wait(failure, wait_s)
        if isinstance(event, NoticeEvent):
            return [event]
        self._given_up = event
        await self.interrupt()
        return []

    @abstractmethod
    async def take(self, message: _M) -> list[AgentEvent]:
        """Return what a message means; a `DoneEvent` ends the turn."""

    @abstractmethod
    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Add a message to the turn."""

    @abstractmethod
    async def interrupt(self) -> None:
        """Ask the CLI to stop the turn."""

    @abstractmethod
    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission; of one that is unknown, do nothing."""

    @abstractmethod
    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return what the turn has come to so far."""


_T = TypeVar("_T", bound=CliTurn[Any])


class CliProcess(ABC, Generic[_M, _T]):
    """One running CLI, between and during turns."""

    name = "the agent"

    def __init__(self, pipes: AgentPipes, messages: Messages[_M]) -> None:
        self._pipes = pipes
        self._messages = SharedMessages(
            messages,
            take=self._take_beside,
            take_between=self._take_between,
            lose=self._lose_asides,
        )
        self._turn: _T | None = None
        self._is_in_turn = False
        """Whether a turn runs or begins: what is not an aside's is the turn's then."""
        self._turns = 0
        self._is_asked = asyncio.Event()
        self._asides: list[CliAside[_M]] = []
        """The questions beside the turn that wait for an answer."""
        self._dropped: list[CliAside[_M]] = []
        """Those for whose answer nobody waits, and that have not ended yet."""
        self.missing_servers: dict[str, str] = {}
        """MCP servers that it could not connect, each with the reason as far as it is known."""

    @property
    @abstractmethod
    def session_id(self) -> str | None:
        """The CLI's own id of the conversation."""

    @property
    def note(self) -> str:
        """A line for the next process of the conversation."""
        return ""

    # -- coming and going ----------------------------------------------------------------------

    @abstractmethod
    async def handshake(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
    ) -> None:
        """Begin a conversation, or go on with one or a copy of it."""

    async def _next_of_start(self) -> _M:
        return await next_of_start(self.name, self._pipes, self._messages)

    def parked_state(self) -> dict[str, Any] | None:
        """Return what the next worker must know; None in a turn, or with a request open."""
        if self._is_in_turn or self._asides:
            return None
        for message in self._messages.take_unread():
            if self._is_request(message):
                return None
            self._observe(message)
        return self._state() if self._pipes.is_clean else None

    @abstractmethod
    def _state(self) -> dict[str, Any] | None:
        """Return what `restore()` needs; None if the CLI may speak by itself."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another worker left off."""

    @abstractmethod
    def _is_request(self, message: _M) -> bool:
        """Whether the CLI waits for an answer to it."""

    @abstractmethod
    async def _deny(self, message: _M) -> None:
        """Answer a request that came between turns."""

    def _observe(self, message: _M) -> None:
        """Take notice of a message between turns."""

    # -- a turn --------------------------------------------------------------------------------

    async def turn(
        self, prompt: str, images: Sequence[Image] = (), *, is_command: bool = False
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask the agent; yield what it says, with exactly one `DoneEvent`, last."""
        for message in self._messages.take_unread():
            await self._take_between(message)
        self._is_in_turn = True
        self._turns = number = self._turns + 1
        try:
            if is_command and (problem := await self._problem_of(prompt)):
                self._leave(number)
                yield TextEvent(problem)
                yield DoneEvent(AgentRunResult(problem, self.session_id))
                return
            begun = self._begin_command(prompt) if is_command else self._begin(prompt, images)
            turn = self._turn = await begun
            self._is_asked.set()
            async with contextlib.aclosing(turn.events(self._messages)) as events:
                async for event in events:
                    if isinstance(event, DoneEvent):
                        self._end(turn)
                        self._leave(number)  # the consumer may stop here
                    yield event
        finally:
            self._leave(number)

    def _leave(self, number: int) -> None:
        """End a turn; one that is closed late, when another runs already, has ended before."""
        if number != self._turns:
            return
        self._turn = None
        self._is_in_turn = False
        self._is_asked.clear()

    @abstractmethod
    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message as the CLI wants it."""

    @abstractmethod
    async def _begin(self, prompt: str, images: Sequence[Image]) -> _T:
        """Send the turn's message."""

    async def _begin_command(self, text: str) -> _T:
        """Send a command of the CLI's own."""
        return await self._begin(text, ())

    async def _problem_of(self, command: str) -> str:
        """Return why a command can't be one of the CLI's own, where that is known."""
        return ""

    def _end(self, turn: _T) -> None:
        """Keep what the next turn has to know of this one."""

    async def steer(self, prompt: str, key: str, images: Sequence[Image] = ()) -> None:
        """Give the agent a message while it works: it joins what it does, or follows it."""
        await self._is_asked.wait()
        if self._turn is not None:
            await self._turn.steer(self._parts(prompt, images), key)

    async def interrupt(self) -> None:
        """Stop the running turn, and what it has started."""
        if self._turn is not None:
            await self._turn.interrupt()

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission of the running turn."""
        if self._turn is not None:
            await self._turn.answer(permission_id, decision)

    # -- beside a turn -------------------------------------------------------------------------

    async def aside(self, prompt: str) -> str:
        """Return the answer to a question beside the turn; raises `AsideFailed` without one."""
        aside = self._new_aside()
        self._asides.append(aside)
        try:
            await aside.ask(prompt)
            return await self._messages.answer(aside)
        finally:
            self._asides.remove(aside)
            if aside.goes_on:
                self._dropped.append(aside)
            if not aside.is_over:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STOP_S):
                        await aside.stop()

    def _new_aside(self) -> CliAside[_M]:
        """Return a question that is to be asked; raises `AsideFailed` where it can't be."""
        raise AsideFailed(f"{self.name} answers nothing beside a turn")

    async def _take_beside(self, message: _M) -> bool:
        """Take a message of an aside."""
        for aside in (*self._asides, *self._dropped):
            if await aside.take(message):
                if not aside.goes_on and aside in self._dropped:
                    self._dropped.remove(aside)
                return True
        return False

    async def _take_between(self, message: _M) -> bool:
        """Take a message of an aside, or any other while there is no turn whose it could be."""
        if await self._take_beside(message):
            return True
        if self._is_in_turn:
            return False
        if self._is_request(message):
            await self._deny(message)
        self._observe(message)
        return True

    def _lose_asides(self, why: str) -> None:
        self._dropped.clear()
        for aside in self._asides:
            aside.fail(why)
