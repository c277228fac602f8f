"""The time of a workspace, which tests move."""

import asyncio
import contextlib
import time


class Clock:
    """A clock that goes as the machine's does, ahead by what a test has let pass."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._speed, self._hurried_at = 1.0, time.time()
        self._moved = asyncio.Event()

    def now(self) -> float:
        """Return the Unix time, in seconds."""
        now = time.time()
        return now + self._ahead_s + (now - self._hurried_at) * (self._speed - 1)

    def hurry(self, speed: float) -> None:
        """Go so many times as fast as the machine's clock."""
        self._ahead_s = self.now() - time.time()
        self._speed, self._hurried_at = speed, time.time()

    def advance(self, seconds: float) -> None:
        """Let time pass at once."""
        self._ahead_s += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def until(self, at: float) -> None:
        """Wait for a time."""
        while (left_s := at - self.now()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), left_s / self._speed)
