"""The request budget of an account: decides when its platform may be called.

Replies have priority: while one waits for a chat, no live text and no typing indicator is shown
there. A chat that its platform throttles waits alone. After failures in several chats, the platform
counts as away, and a single attempt at a time probes whether it is back.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass

from remoteclaw.clock import boottime
from remoteclaw.errors import AccountRefused, PlatformBusy, RemoteClawError

#: The first and the longest pause between attempts, in seconds. Pauses double after each failure.
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
#: The whole account waits once this many chats have failed since the last success.
MIN_FAILED_CHATS = 3
#: At most this many replies are sent at once: each takes a connection to the platform and to Redis.
MAX_AT_ONCE = 32

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Pause:
    """A pause until the next attempt; `until` is a time of `boottime()`."""

    until: float = 0.0
    length_s: float = 0.0

    def grow(self) -> None:
        self.length_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, self.length_s * 2))
        self.until = boottime() + self.length_s


class Budget:
    """Schedules the calls to one account's platform."""

    def __init__(self, name: str) -> None:
        self.problem = ""
        """A sentence that says why replies wait; empty while they are sent."""
        self._name = name
        self._account = _Pause()
        self._chats: dict[str, _Pause] = {}
        """The pauses by chat, for chats that have to wait."""
        self._busy_topics: dict[str, int] = {}
        """By chat, the number of its topics in which replies wait."""
        self._failed: set[str] = set()
        """The chats that have failed since the last success."""
        self._is_probing = False
        """Whether an attempt is probing if the platform is back."""
        self._changed = asyncio.Event()
        self._at_once = asyncio.Semaphore(MAX_AT_ONCE)

    @contextlib.asynccontextmanager
    async def attempt(self, chat: str) -> AsyncGenerator[None, None]:
        """Wait until something may be sent to `chat`, then hold one of the sending slots.

        The caller then reports the result with `worked()` or `failed()`.
        """
        is_probe = False
        try:
            await self._due(chat)
            is_probe = self._is_probing = self._account.length_s > 0
            async with self._at_once:
                yield
        finally:
            if is_probe:
                self._is_probing = False
                self._wake()

    @contextlib.contextmanager
    def replies(self, chat: str) -> Generator[None, None, None]:
        """Give replies priority in `chat`: while the context is open, `is_free(chat)` is false."""
        self._busy_topics[chat] = self._busy_topics.get(chat, 0) + 1
        try:
            yield
        finally:
            self._busy_topics[chat] -= 1
            if not self._busy_topics[chat]:
                del self._busy_topics[chat]

    def is_free(self, chat: str) -> bool:
        """Whether live text or typing may be shown in `chat`."""
        if self._busy_topics.get(chat) or self._account.length_s:
            return False
        return max(self._account.until, self._chats.get(chat, self._account).until) <= boottime()

    def worked(self, chat: str) -> None:
        """Record that a call for `chat` succeeded, or was refused for good."""
        self._chats.pop(chat, None)
        self._failed.clear()
        if self._account.length_s:
            self._account = _Pause()
            self._wake()
        if self.problem:
            log.warning("%s: replies are sent again", self._name)
            self.problem = ""

    def failed(self, chat: str, error: BaseException) -> None:
        """Record that a call for `chat` failed with `error`, and pause the chat or the account."""
        pause = self._chats.setdefault(chat, _Pause())
        match error:
            case AccountRefused():
                self._account = _Pause(boottime() + MAX_PAUSE_S, MAX_PAUSE_S)
            case PlatformBusy(after_s=after_s, is_account=True):
                self._account.until = max(self._account.until, boottime() + after_s)
                return
            case PlatformBusy(after_s=after_s):
                pause.until = boottime() + after_s
                return
            case _:
                pause.grow()
                self._failed.add(chat)
                # Attempts that were under way at the same time lengthen the pause only once.
                if len(self._failed) >= MIN_FAILED_CHATS and self._account.until <= boottime():
                    self._account.grow()
        why = str(error) if isinstance(error, RemoteClawError) else type(error).__name__
        # A refused account replaces the reported outage, because a person has to fix it.
        is_worse = isinstance(error, AccountRefused) and why != self.problem
        if not self.problem or is_worse:
            log.warning("%s: replies wait: %s", self._name, why)
            self.problem = why

    async def _due(self, chat: str) -> None:
        while True:
            left_s = max(self._account.until, self._chats.get(chat, _Pause()).until) - boottime()
            if left_s <= 0 and not (self._account.length_s and self._is_probing):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s if left_s > 0 else None):
                    await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
