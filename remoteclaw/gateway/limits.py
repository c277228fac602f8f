"""Limits on calls through all doors: size, number, duration, and files held in memory."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from weakref import WeakValueDictionary

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.principals import Agent, Principal

#: The maximum size of a request, as a WebSocket frame or an HTTP body, in bytes.
MAX_REQUEST_BYTES = 2 * 1024 * 1024
#: The maximum number of calls that run at once, of agents and of operators. Each call may hold a
#: connection to Redis. The limits are separate so that agents can't lock operators out.
MAX_AGENT_CALLS, MAX_OPERATOR_CALLS = 448, 64
#: The maximum number of calls of one agent or one token that run at once.
MAX_CALLS_PER_CALLER = 32
#: The maximum duration of a call, in seconds. Methods that wait have shorter timeouts of their own.
CALL_S = 120.0
#: How long a cancelled call may take to end, in seconds.
CUT_S = 0.2


class Calls:
    """The running calls."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._timeouts: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_cut = False
        """Whether the gateway has cancelled the running calls."""

    @contextlib.asynccontextmanager
    async def limited(self, principal: Principal) -> AsyncIterator[None]:
        """Run the block as a call of `principal`, within the limits on number and duration.

        Raises `CallRefused` if too many calls run, the call takes too long, or the gateway ends.
        """
        timeout = asyncio.timeout(CALL_S)
        with self._count(principal):
            self._timeouts.add(timeout)
            self._idle.clear()
            try:
                async with timeout:
                    yield
            except TimeoutError:
                raise self._refusal() from None
            finally:
                self._timeouts.discard(timeout)
                if not self._timeouts:
                    self._idle.set()

    @contextlib.contextmanager
    def _count(self, principal: Principal) -> Iterator[None]:
        if isinstance(principal, Agent):
            caller, pool, max_calls = principal.sid, "agents", MAX_AGENT_CALLS
        else:
            caller, pool, max_calls = principal.credential, "operators", MAX_OPERATOR_CALLS
        if self._running[caller] >= MAX_CALLS_PER_CALLER:
            raise CallRefused(
                "UNAVAILABLE",
                f"{MAX_CALLS_PER_CALLER} of your calls are running: wait until one ends.",
            )
        if self._running[pool] >= max_calls:
            raise CallRefused("UNAVAILABLE", "The gateway has too much to do: ask again later.")
        self._running.update((caller, pool))
        try:
            yield
        finally:
            self._running.subtract((caller, pool))
            if not self._running[caller]:
                del self._running[caller]

    def _refusal(self) -> CallRefused:
        unknown = "Whether it was done is unknown: look before you repeat it."
        if self._is_cut:
            return CallRefused("UNAVAILABLE", f"The gateway ended during the call. {unknown}")
        return CallRefused("TIMEOUT", f"The call took longer than {CALL_S:.0f} s. {unknown}")

    async def finish(self, *, within_s: float) -> None:
        """Wait until no call runs, and cancel those that run longer than `within_s`.

        A cancelled call may have had its effect. It can be repeated by its id.
        """
        if not await self._is_idle(within_s):
            self.cut()
            await self._is_idle(CUT_S)

    def cut(self) -> None:
        """Cancel the running calls. Each caller gets an error."""
        self._is_cut = True
        for timeout in self._timeouts:
            with contextlib.suppress(RuntimeError):  # the timeout has expired: the call is ending
                timeout.reschedule(0)

    async def _is_idle(self, within_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        return self._idle.is_set()


#: The maximum number of files held in memory at once, each of at most 20 MB.
MAX_FILES = 6
#: How long a call waits until it may hold a file, in seconds.
WAIT_S = 10.0
BUSY = "Too many files are being sent at once: send it again in a moment."


class Transfers:
    """Limits how many files are held in memory at once.

    Each caller transfers one file at a time, so that one caller can't take all the slots.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_FILES)
        self._callers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def slot(self, principal: Principal) -> AsyncIterator[None]:
        """Hold one file while the block runs. Raises `CallRefused` after waiting `WAIT_S`."""
        caller = principal.sid if isinstance(principal, Agent) else principal.credential
        own = self._callers.setdefault(caller, asyncio.Lock())
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(WAIT_S):
                    await held.enter_async_context(own)
                    await held.enter_async_context(self._slots)
            except TimeoutError:
                raise CallRefused("UNAVAILABLE", BUSY) from None
            yield
