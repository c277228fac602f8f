"""Limits on calls, whichever door they come through: size, number, duration, and files held."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from weakref import WeakValueDictionary

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.principals import Agent, Principal

#: How large a request may be, in bytes: a frame, a body.
MAX_BYTES = 2 * 1024 * 1024
#: How many calls run at once, each of which may hold a connection to Redis: agents' and operators',
#: so that operators get in when agents have taken all of theirs.
MAX_OF_AGENTS, MAX_OF_OPERATORS = 448, 64
#: How many calls of one agent or of one token run at once: the others want some too.
MAX_OF_ONE = 32
#: How long one call may take, in seconds: methods that wait end a little earlier by themselves.
CALL_S = 120.0
#: How long a call may take to end once it is cut off, in seconds.
CUT_S = 0.2


class Calls:
    """The calls that run."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._timeouts: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_cut = False

    @contextlib.asynccontextmanager
    async def one(self, principal: Principal) -> AsyncIterator[None]:
        """Count one call, and bound its duration.

        Raises `CallRefused` if too many run, it takes too long, or the gateway ends.
        """
        timeout = asyncio.timeout(CALL_S)
        with self._counted(principal):
            self._timeouts.add(timeout)
            self._idle.clear()
            try:
                async with timeout:
                    yield
            except TimeoutError:
                raise self._ended() from None
            finally:
                self._timeouts.discard(timeout)
                if not self._timeouts:
                    self._idle.set()

    @contextlib.contextmanager
    def _counted(self, principal: Principal) -> Iterator[None]:
        if isinstance(principal, Agent):
            who, pool, most = principal.sid, "agents", MAX_OF_AGENTS
        else:
            who, pool, most = principal.credential, "operators", MAX_OF_OPERATORS
        if self._running[who] >= MAX_OF_ONE:
            raise CallRefused(
                "UNAVAILABLE", f"{MAX_OF_ONE} of your calls are running: wait until one ends."
            )
        if self._running[pool] >= most:
            raise CallRefused("UNAVAILABLE", "The gateway has too much to do: ask again later.")
        self._running.update((who, pool))
        try:
            yield
        finally:
            self._running.subtract((who, pool))
            if not self._running[who]:
                del self._running[who]

    def _ended(self) -> CallRefused:
        unknown = "Whether it was done is unknown: look before you repeat it."
        if self._is_cut:
            return CallRefused("UNAVAILABLE", f"The gateway ended during the call. {unknown}")
        return CallRefused("TIMEOUT", f"The call took longer than {CALL_S:.0f} s. {unknown}")

    async def finish(self, *, within_s: float) -> None:
        """Wait until no call runs; cut off those that take too long.

        What such a call has begun may be done nevertheless: it can be repeated by its id.
        """
        if not await self._is_idle(within_s):
            self.cut()
            await self._is_idle(CUT_S)

    def cut(self) -> None:
        """End the calls that run; each is answered with an error."""
        self._is_cut = True
        for timeout in self._timeouts:
            with contextlib.suppress(RuntimeError):  # it has expired: its call is ending already
                timeout.reschedule(0)

    async def _is_idle(self, within_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        return self._idle.is_set()


#: How many files are held at once, each of 20 MB at most.
MAX_FILES = 6
#: How long a call waits for its turn, in seconds.
WAIT_S = 10.0
BUSY = "Too many files are being sent at once: send it again in a moment."


class Transfers:
    """Makes calls that send files wait for each other.

    One caller sends one file at a time, so that a slow server can't take the places of all.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MAX_FILES)
        self._callers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def one(self, principal: Principal) -> AsyncIterator[None]:
        """Hold one file; raises `CallRefused` if others are held for too long."""
        who = principal.sid if isinstance(principal, Agent) else principal.credential
        own = self._callers.setdefault(who, asyncio.Lock())
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(WAIT_S):
                    await held.enter_async_context(own)
                    await held.enter_async_context(self._places)
            except TimeoutError:
                raise CallRefused("UNAVAILABLE", BUSY) from None
            yield
