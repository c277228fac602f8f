"""Asides: questions beside the running turn, and the reading that they share with it."""

import asyncio
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from remoteclaw.errors import AsideFailed
from remoteclaw.runtimes.wire import Messages, UnreadableLine

#: How many messages an aside reads ahead of a turn that doesn't take them: memory is bounded.
MAX_AHEAD = 100

_M = TypeVar("_M")


class CliAside(ABC, Generic[_M]):
    """One question beside the turn, until it is answered."""

    def __init__(self) -> None:
        self._answer: str | AsideFailed | None = None
        self.goes_on = False
        """Whether the CLI has yet to say something of it that it must hear, also once it is over or
        nobody waits for it any more."""

    @property
    def is_over(self) -> bool:
        """Whether it is answered, or has failed."""
        return self._answer is not None

    @property
    def answer(self) -> str:
        """The answer, once it is over; raises `AsideFailed`."""
        assert self._answer is not None, "it is answered first"
        if isinstance(self._answer, AsideFailed):
            raise self._answer
        return self._answer

    @abstractmethod
    async def ask(self, prompt: str) -> None:
        """Send the question."""

    @abstractmethod
    async def take(self, message: _M) -> bool:
        """Take a message, if it is this aside's; a request of it is denied."""

    @abstractmethod
    async def stop(self) -> None:
        """End what goes on, because nobody waits for it any more."""

    def tell(self, answer: str) -> None:
        """Give the answer, unless it is over."""
        if not self.is_over:
            self._answer = answer

    def fail(self, why: str) -> None:
        """Say why there is no answer, unless it is over."""
        if not self.is_over:
            self._answer = AsideFailed(f"No answer beside the turn: {why}.")


class SharedMessages(Generic[_M]):
    """Messages for a turn and its asides: one of them reads for all."""

    def __init__(
        self,
        messages: Messages[_M],
        *,
        take: Callable[[_M], Awaitable[bool]],
        take_between: Callable[[_M], Awaitable[bool]],
        lose: Callable[[str], None],
    ) -> None:
        """`take` takes what is an aside's, and `take_between` what comes while there is no turn.

        `lose` says why nothing more will come.
        """
        self._messages = messages
        self._take = take
        self._take_between = take_between
        self._lose = lose
        self._read: deque[_M | UnreadableLine] = deque()
        """What is the turn's, and was read by an aside."""
        self._is_read = False
        """Whether a task reads."""
        self._has_ended = False
        self._moved = asyncio.Event()

    async def read(self) -> _M | None:
        """Return the turn's next message; None when the CLI has ended. Raises `UnreadableLine`."""
        await self._until(lambda: bool(self._read) or self._has_ended, self._take)
        if not self._read:
            return None
        message = self._read.popleft()
        self._wake()
        if isinstance(message, UnreadableLine):
            raise message
        return message

    async def answer(self, aside: CliAside[_M]) -> str:
        """Return the answer to an aside; raises `AsideFailed`."""
        await self._until(lambda: aside.is_over, self._take_between, most=MAX_AHEAD)
        return aside.answer

    def take_unread(self) -> list[_M]:
        """Return the messages that have arrived, without waiting; damaged lines are left out."""
        read = [message for message in self._read if not isinstance(message, UnreadableLine)]
        self._read.clear()
        self._wake()
        return read + self._messages.take_unread()

    async def _until(
        self,
        is_there: Callable[[], bool],
        take: Callable[[_M], Awaitable[bool]],
        *,
        most: float = math.inf,
    ) -> None:
        """Read, or wait while another one does, until what is waited for has come."""
        while not is_there():
            if self._is_read or len(self._read) >= most:
                await self._moved.wait()
                continue
            self._is_read = True
            try:
                await self._read_one(take)
            finally:
                self._is_read = False
                self._wake()

    async def _read_one(self, take: Callable[[_M], Awaitable[bool]]) -> None:
        try:
            message = await self._messages.read()
        except UnreadableLine as error:
            self._lose("the agent printed a line that can't be read")
            self._read.append(error)
            return
        if message is None:
            self._has_ended = True
            self._lose("the agent has ended")
        elif not await take(message):
            self._read.append(message)

    def _wake(self) -> None:
        """Have all who wait look again."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
