"""Limits on calls through all doors: size, number, duration, and files held in memory."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from weakref import WeakValueDictionary

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.auth.principals import Agent, Principal

#: The maximum size of a request, as a WebSocket frame or an HTTP body, in bytes.
MAX_REQUEST_BYTES = 2 * 1024 * 1024
#: The maximum number of calls that run at once, of agents and of operators. The limits are separate
#: so that agents can't lock operators out.
MAX_AGENT_CALLS, MAX_OPERATOR_CALLS = 448, 64
#: The maximum number of calls of one agent or one token that run at once.
MAX_CALLS_PER_CALLER = 32
#: The maximum number of waits at once, of agents and of operators, and of one caller: calls that
#: wait for an answer of others, or for a place among the running calls. Together with the running
#: calls, they are fewer than the connections to Redis of one process (`MAX_CONNECTIONS`).
MAX_WAITS, MAX_WAITS_PER_CALLER = 1000, 500
#: How long a call waits for a place among the running calls, in seconds. Together with the longest
#: wait of a tool, it is shorter than the minute after which agent CLIs abandon a call.
PLACE_S = 5.0
#: The maximum duration of a call, in seconds. Methods that wait have shorter timeouts of their own.
CALL_S = 120.0
#: How long a cancelled call may take to end, in seconds.
CUT_S = 0.2

BUSY = "The gateway has too much to do: ask again later."

#: Returns a context for the part of a call that only waits for others. The call gives up its place
#: among the running calls for good: what follows the wait returns its result. Raises `CallRefused`
#: if too many calls wait.
Waiting = Callable[[], AbstractAsyncContextManager[None]]


class Calls:
    """The running calls, and those that wait."""

    def __init__(self) -> None:
        self._pools = {
            "agents": asyncio.Semaphore(MAX_AGENT_CALLS),
            "operators": asyncio.Semaphore(MAX_OPERATOR_CALLS),
        }
        self._callers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._waits: Counter[str] = Counter()
        """The number of waits of each caller and each pool."""
        self._timeouts: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_cut = False
        """Whether the gateway has cancelled the running calls."""

    @contextlib.asynccontextmanager
    async def limited(self, principal: Principal) -> AsyncIterator[Waiting]:
        """Run the block as a call of `principal`, within the limits on number and duration.

        Yield the function with which the call declares that it only waits. A call beyond the limits
        waits for a place first; each caller's calls begin in order, and one caller can't take all
        places. Raises `CallRefused` if it gets none in time, if the call takes too long, or if the
        gateway ends.
        """
        timeout = asyncio.timeout(CALL_S)
        self._timeouts.add(timeout)
        self._idle.clear()
        try:
            async with timeout, AsyncExitStack() as place:
                await self._take(place, principal)

                @contextlib.asynccontextmanager
                async def waiting() -> AsyncIterator[None]:
                    with self._count_wait(principal):
                        await place.aclose()
                        yield

                yield waiting
        except TimeoutError:
            raise self._refusal() from None
        finally:
            self._timeouts.discard(timeout)
            if not self._timeouts:
                self._idle.set()

    async def _take(self, place: AsyncExitStack, principal: Principal) -> None:
        """Take a place among the running calls, which closing `place` gives back."""
        caller, pool = _caller_and_pool(principal)
        own = self._callers.setdefault(caller, asyncio.Semaphore(MAX_CALLS_PER_CALLER))
        all_calls = self._pools[pool]
        until = asyncio.get_running_loop().time() + PLACE_S
        must_wait = own.locked() or all_calls.locked()
        with self._count_wait(principal) if must_wait else contextlib.nullcontext():
            for calls, refusal in (
                (own, f"{MAX_CALLS_PER_CALLER} of your calls are running: wait until one ends."),
                (all_calls, BUSY),
            ):
                try:
                    async with asyncio.timeout_at(until):
                        await place.enter_async_context(calls)
                except TimeoutError:
                    raise CallRefused("UNAVAILABLE", refusal) from None

    @contextlib.contextmanager
    def _count_wait(self, principal: Principal) -> Iterator[None]:
        caller, pool = _caller_and_pool(principal)
        if self._waits[caller] >= MAX_WAITS_PER_CALLER:
            raise CallRefused(
                "UNAVAILABLE",
                f"{MAX_WAITS_PER_CALLER} of your calls are waiting: wait until one ends.",
            )
        if self._waits[pool] >= MAX_WAITS:
            raise CallRefused("UNAVAILABLE", BUSY)
        self._waits.update((caller, pool))
        try:
            yield
        finally:
            self._waits.subtract((caller, pool))
            if not self._waits[caller]:
                del self._waits[caller]

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


def _caller_and_pool(principal: Principal) -> tuple[str, str]:
    """Return the caller whose calls are counted together, and its pool."""
    if isinstance(principal, Agent):
        return principal.sid, "agents"
    return principal.credential, "operators"


#: The maximum number of files held in memory at once, each of at most 20 MB.
MAX_FILES = 6
#: How long a call waits until it may hold a file, in seconds.
WAIT_S = 10.0
TOO_MANY_FILES = "Too many files are being sent at once: send it again in a moment."


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
        caller, _ = _caller_and_pool(principal)
        own = self._callers.setdefault(caller, asyncio.Lock())
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(WAIT_S):
                    await held.enter_async_context(own)
                    await held.enter_async_context(self._slots)
            except TimeoutError:
                raise CallRefused("UNAVAILABLE", TOO_MANY_FILES) from None
            yield
