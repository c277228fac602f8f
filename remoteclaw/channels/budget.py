"""The budget of an account: what may be asked of its platform now.

Replies go first: while one waits for a chat, no live text is written there, and typing is shown
only where neither waits. A chat that is asked too often waits by itself; once several chats fail in
a row the platform is away, and one attempt at a time looks whether it is back.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass

from remoteclaw.clock import boottime
from remoteclaw.errors import AccountRefused, PlatformBusy, RemoteClawError

#: The pauses between attempts, in seconds: the first one, from which each is twice as long as the
#: one before, and the longest.
FIRST_S, MAX_S = 1.0, 30.0
#: How many chats must have failed since the last success so that the whole account waits.
FEW = 3
#: How many replies are being sent at once: each takes a connection to the platform and to Redis.
MAX_AT_ONCE = 32

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Pause:
    """When an attempt is due again, on `boottime()`."""

    until: float = 0.0
    length_s: float = 0.0

    def grow(self) -> None:
        self.length_s = min(MAX_S, max(FIRST_S, self.length_s * 2))
        self.until = boottime() + self.length_s


class Budget:
    """What may be asked of one account's platform."""

    def __init__(self, name: str) -> None:
        self.problem = ""
        """Why nothing is sent at the moment, in a sentence; empty if all is well."""
        self._name = name
        self._account = _Pause()
        self._chats: dict[str, _Pause] = {}
        """The chats that have to wait."""
        self._replies: dict[str, int] = {}
        """By chat, how many topics replies wait for."""
        self._failed: set[str] = set()
        """The chats that have failed since something was done."""
        self._is_tried = False
        """Whether one attempt looks whether the platform is back."""
        self._changed = asyncio.Event()
        self._at_once = asyncio.Semaphore(MAX_AT_ONCE)

    @contextlib.asynccontextmanager
    async def attempt(self, chat: str) -> AsyncGenerator[None, None]:
        """Wait until something may be sent to a chat.

        Then `worked()` or `failed()` says how it went.
        """
        is_trial = False
        try:
            await self._due(chat)
            is_trial = self._is_tried = self._account.length_s > 0
            async with self._at_once:
                yield
        finally:
            if is_trial:
                self._is_tried = False
                self._wake()

    @contextlib.contextmanager
    def replies(self, chat: str) -> Generator[None, None, None]:
        """Have nothing but replies shown in a chat meanwhile."""
        self._replies[chat] = self._replies.get(chat, 0) + 1
        try:
            yield
        finally:
            self._replies[chat] -= 1
            if not self._replies[chat]:
                del self._replies[chat]

    def is_free(self, chat: str) -> bool:
        """Whether something may be shown in a chat that is no reply."""
        until = max(self._account.until, self._chats.get(chat, self._account).until)
        return not self._replies.get(chat) and not self._account.length_s and until <= boottime()

    def worked(self, chat: str) -> None:
        """Note that the platform has done what a chat asked for, or won't ever."""
        self._chats.pop(chat, None)
        self._failed.clear()
        if self._account.length_s:
            self._account = _Pause()
            self._wake()
        if self.problem:
            log.warning("%s: it works again", self._name)
            self.problem = ""

    def failed(self, chat: str, error: BaseException) -> None:
        """Note that the platform has not done what a chat asked for."""
        pause = self._chats.setdefault(chat, _Pause())
        match error:
            case AccountRefused():
                self._account = _Pause(boottime() + MAX_S, MAX_S)
            case PlatformBusy(after_s=after_s, is_account=True):
                self._account.until = max(self._account.until, boottime() + after_s)
                return
            case PlatformBusy(after_s=after_s):
                pause.until = boottime() + after_s
                return
            case _:
                pause.grow()
                self._failed.add(chat)
                # Attempts that were on their way together count once.
                if len(self._failed) >= FEW and self._account.until <= boottime():
                    self._account.grow()
        why = str(error) if isinstance(error, RemoteClawError) else type(error).__name__
        # A person can fix a refused account; an outage before it ends by itself.
        is_worse = isinstance(error, AccountRefused) and why != self.problem
        if not self.problem or is_worse:
            log.warning("%s: replies wait: %s", self._name, why)
            self.problem = why

    async def _due(self, chat: str) -> None:
        while True:
            left_s = max(self._account.until, self._chats.get(chat, _Pause()).until) - boottime()
            if left_s <= 0 and not (self._account.length_s and self._is_tried):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s if left_s > 0 else None):
                    await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
