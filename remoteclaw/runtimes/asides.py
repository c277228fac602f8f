"""Asides: questions to a CLI during a turn, and the message stream they share with the turn."""

import asyncio
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from remoteclaw.errors import AsideFailed
from remoteclaw.events import AgentUsage, AsideAnswer
from remoteclaw.runtimes.wire import Messages, UnreadableLine

#: An aside reads at most this many messages ahead of a turn that doesn't consume them, so that
#: memory is bounded.
MAX_MESSAGES_AHEAD = 100

_M = TypeVar("_M")


class CliAside(ABC, Generic[_M]):
    """One question during a turn, until it is answered."""

    def __init__(self) -> None:
        self._answer: str | AsideFailed | None = None
        self.awaits_message = False
        """Whether the aside must still receive a message of the CLI, even if it is over or
        abandoned."""
        self.usage: AgentUsage | None = None
        """The tokens that the aside has used so far; None if the CLI does not report them."""
        self.cost_usd: float | None = None
        """Their cost in US dollars; None if the CLI does not report it."""
        self.is_estimated = False
        """Whether `usage` is an estimate."""

    @property
    def is_over(self) -> bool:
        """Whether the aside is answered or has failed."""
        return self._answer is not None

    @property
    def answer(self) -> AsideAnswer:
        """The answer of an aside that is over. Raises `AsideFailed` if it has failed."""
        assert self._answer is not None, "the aside is over"
        if isinstance(self._answer, AsideFailed):
            raise self._answer
        return AsideAnswer(self._answer, self.usage, self.cost_usd, self.is_estimated)

    @abstractmethod
    async def ask(self, prompt: str) -> None:
        """Send the question."""

    @abstractmethod
    async def take(self, message: _M) -> bool:
        """Handle a message if it belongs to this aside, and return whether it does.

        A request for a permission is denied.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Stop the CLI's work on the question, because no caller waits for the answer."""

    def succeed(self, answer: str) -> None:
        """Set the answer, unless the aside is over."""
        if not self.is_over:
            self._answer = answer

    def fail(self, why: str) -> None:
        """Fail with a reason, unless the aside is over."""
        if not self.is_over:
            self._answer = AsideFailed(f"No answer to the aside: {why}.")


class SharedMessages(Generic[_M]):
    """Messages for a turn and its asides: one task reads at a time, for all of them."""

    def __init__(
        self,
        messages: Messages[_M],
        *,
        take: Callable[[_M], Awaitable[bool]],
        take_between: Callable[[_M], Awaitable[bool]],
        fail_asides: Callable[[str], None],
    ) -> None:
        """`take` handles messages of asides, `take_between` also those that arrive between turns.

        Both return whether they handled the message. `fail_asides` takes the reason.
        """
        self._messages = messages
        self._take = take
        self._take_between = take_between
        self._fail_asides = fail_asides
        self._read_ahead: deque[_M | UnreadableLine] = deque()
        """Messages of the turn that an aside has read."""
        self._is_reading = False
        """Whether a task is reading."""
        self._has_ended = False
        self._progressed = asyncio.Event()

    async def read(self) -> _M | None:
        """Return the turn's next message; None once the CLI has ended. Raises `UnreadableLine`."""
        await self._read_until(lambda: bool(self._read_ahead) or self._has_ended, self._take)
        if not self._read_ahead:
            return None
        message = self._read_ahead.popleft()
        self._wake()
        if isinstance(message, UnreadableLine):
            raise message
        return message

    async def answer(self, aside: CliAside[_M]) -> AsideAnswer:
        """Wait for the answer to `aside` and return it. Raises `AsideFailed`."""
        await self._read_until(lambda: aside.is_over, self._take_between, limit=MAX_MESSAGES_AHEAD)
        return aside.answer

    def take_unread(self) -> list[_M]:
        """Return the messages that have arrived, without waiting; unreadable lines are skipped."""
        read = [message for message in self._read_ahead if not isinstance(message, UnreadableLine)]
        self._read_ahead.clear()
        self._wake()
        return read + self._messages.take_unread()

    async def _read_until(
        self,
        is_done: Callable[[], bool],
        take: Callable[[_M], Awaitable[bool]],
        *,
        limit: float = math.inf,
    ) -> None:
        """Read until `is_done()`; while another task reads, wait for it.

        With `limit` messages read ahead, wait until the turn consumes one.
        """
        while not is_done():
            if self._is_reading or len(self._read_ahead) >= limit:
                await self._progressed.wait()
                continue
            self._is_reading = True
            try:
                await self._read_one(take)
            finally:
                self._is_reading = False
                self._wake()

    async def _read_one(self, take: Callable[[_M], Awaitable[bool]]) -> None:
        try:
            message = await self._messages.read()
        except UnreadableLine as error:
            self._fail_asides("the agent printed a line that can't be read")
            self._read_ahead.append(error)
            return
        if message is None:
            self._has_ended = True
            self._fail_asides("the agent has ended")
        elif not await take(message):
            self._read_ahead.append(message)

    def _wake(self) -> None:
        """Make all waiting tasks check their condition again."""
        progressed, self._progressed = self._progressed, asyncio.Event()
        progressed.set()
