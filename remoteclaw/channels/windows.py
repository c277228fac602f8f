"""The calls that count for a rate of a platform, and what the platform says that it still allows.

A call counts from its beginning until `per_s` after its end. It reaches the platform in between, so
at no time has the platform more than `most` calls within `per_s`, however long each of them takes.
"""

import contextlib
import math
from collections import deque
from collections.abc import Generator

from remoteclaw.clock import boottime
from remoteclaw.protocols import Rate


class Window:
    """The calls that count for one rate, of one chat or of the account."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._ends = deque[float]()
        """By finished call, oldest first, when it ceases to count, as a time of `boottime()`."""
        self._running = 0

    @contextlib.contextmanager
    def call(self) -> Generator[None, None, None]:
        """Count a call, which is made while the context is open."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._ends.append(boottime() + self._rate.per_s)

    def free_at(self, share: float = 1.0) -> float:
        """Return when a call is allowed that leaves the rest of the rate beyond `share` to others.

        `math.inf` if that depends on a call that is not finished.
        """
        self._forget()
        most = max(1, int(self._rate.most * share))
        excess = self._running + len(self._ends) - most
        if excess < 0:
            return -math.inf
        return self._ends[excess] if excess < len(self._ends) else math.inf

    @property
    def is_empty(self) -> bool:
        """Whether no call counts any more."""
        self._forget()
        return not (self._running or self._ends)

    def _forget(self) -> None:
        now = boottime()
        while self._ends and self._ends[0] <= now:
            self._ends.popleft()
