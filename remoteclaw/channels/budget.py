"""The request budget of an account: decides when its platform may be called.

The rates of the platform's profile are kept, and what its responses allow. Replies may use all of
that; states, previews and the typing indicator leave more and more of it to the others, and running
turns share what is left for previews. While a reply waits for a chat, nothing else is shown there.
A chat that reaches its limit waits alone. After failures in several chats, the platform counts as
away, and a single attempt at a time probes whether it is back.
"""

import asyncio
import contextlib
import logging
import math
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass

from remoteclaw.channels.windows import Window
from remoteclaw.clock import boottime
from remoteclaw.errors import AccountRefused, PlatformBusy, RemoteClawError
from remoteclaw.protocols import Allowance, ChannelProfile, Method, Rate

#: The first and the longest pause between attempts, in seconds. Pauses double after each failure.
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
#: The whole account waits once this many chats have failed since the last success.
MIN_FAILED_CHATS = 3
#: At most this many replies are sent at once: each takes a connection to the platform and to Redis.
MAX_AT_ONCE = 32
#: The part of a rate that calls may use that are no replies: previews and their removal, the typing
#: indicator, and states. With more for previews, replies to busy chats would wait. States are few,
#: and previews always use their whole part: with no more than that, states would never be shown.
SHARES: Mapping[Method, float] = {
    **dict.fromkeys(("send", "edit", "delete", "pin", "read"), 0.75),
    "typing": 0.5,
    "react": 0.8,
}
#: The windows and allowances of chats that are over are dropped once there are this many.
MAX_KEPT = 1000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Pause:
    """A pause until the next attempt; `until` is a time of `boottime()`."""

    until: float = 0.0
    length_s: float = 0.0

    def grow(self) -> None:
        self.length_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, self.length_s * 2))
        self.until = boottime() + self.length_s


@dataclass(slots=True)
class _Left:
    """What a response has allowed, less the calls since; `until` is a time of `boottime()`."""

    calls: int
    until: float


class Budget:
    """Schedules the calls to one account's platform."""

    def __init__(self, name: str, profile: ChannelProfile | None = None) -> None:
        self.problem = ""
        """A sentence that says why replies wait; empty while they are sent."""
        self._name = name
        self._profile = profile or ChannelProfile()
        self._account = _Pause()
        self._chats: dict[str, _Pause] = {}
        """The pauses by chat, for chats that have to wait."""
        self._busy_topics: dict[str, int] = {}
        """By chat, the number of its topics in which replies wait."""
        self._failed: set[str] = set()
        """The chats that have failed since the last success."""
        self._is_probing = False
        """Whether an attempt is probing if the platform is back."""
        self._windows: dict[tuple[Rate, str | None], Window] = {}
        """The calls that count, by rate and chat; the chat is None for rates of the account."""
        self._left: dict[tuple[Method, str | None], _Left] = {}
        """What the platform has allowed, by method and chat; None for what holds for all chats."""
        self._lines = defaultdict[Method, asyncio.Lock](asyncio.Lock)
        """By method, the line of the replies that wait for a rate of the account."""
        self._blocked = 0
        """The number of replies that wait for the end of a call."""
        self._max_windows = MAX_KEPT
        self._wanting: dict[object, str] = {}
        """The chats of the previews that are to be edited, by preview."""
        self._changed = asyncio.Event()
        self._at_once = asyncio.Semaphore(MAX_AT_ONCE)

    @contextlib.asynccontextmanager
    async def attempt(self, chat: str, method: Method = "send") -> AsyncGenerator[None, None]:
        """Wait until a reply's call for `chat` may be made, then hold one of the sending slots.

        The caller then reports the result with `worked()` or `failed()`.
        """
        is_probe = False
        try:
            call = await self._due(chat, method)
            with call:
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

    @contextlib.contextmanager
    def call(self, chat: str, method: Method) -> Generator[None, None, None]:
        """Count a call, which is made while the context is open."""
        with contextlib.ExitStack() as stack:
            for scope in (chat, None):
                for window in self._windows_of(method, scope):
                    stack.enter_context(window.call())
                if left := self._left_of(method, scope):
                    left.calls -= 1
            stack.callback(self._unblock)
            yield

    def is_free(self, chat: str, method: Method) -> bool:
        """Whether a call that is no reply may be made for `chat` now, in a `call()`."""
        if self._busy_topics.get(chat) or self._account.length_s:
            return False
        allowed_at = self._allowed_at(method, chat, None, is_reply=False)
        return max(self._paused_until(chat), allowed_at) <= boottime()

    def has_room(self, chat: str, method: Method) -> bool:
        """Whether the rates allow a reply's call for `chat` now."""
        return self._allowed_at(method, chat, None) <= boottime()

    def want_edits(self, preview: object, chat: str | None) -> None:
        """Count `preview` among those that share the rates of edits; without a chat, no longer."""
        if chat is None:
            self._wanting.pop(preview, None)
        else:
            self._wanting[preview] = chat

    def pace_s(self, chat: str) -> float:
        """Return the time between two edits of a preview in `chat` that the rates allow, if all
        previews that are to be edited get the same."""
        counts = {chat: 0, None: 0}
        for each in self._wanting.values():
            counts[None] += 1
            counts[chat] += each == chat
        return max(
            (
                max(count, 1) * rate.per_s / max(1, int(rate.most * SHARES["edit"]))
                for scope, count in counts.items()
                for rate in self._rates("edit", scope)
            ),
            default=0.0,
        )

    def allow(self, allowance: Allowance) -> None:
        """Record what the platform still allows. It replaces what is known of these calls."""
        if len(self._left) > MAX_KEPT:
            now = boottime()
            self._left = {key: left for key, left in self._left.items() if left.until > now}
        left = _Left(allowance.left, boottime() + allowance.after_s)
        for method in allowance.methods:
            self._left[method, allowance.chat] = left
        self._wake()

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

    def failed(self, chat: str, error: BaseException, method: Method = "send") -> None:
        """Record that a call for `chat` failed with `error`, and pause the chat or the account.

        If the platform is busy, only `method` waits, and what is counted together with it; without
        a known rate of messages or edits, everything.
        """
        pause = self._chats.setdefault(chat, _Pause())
        match error:
            case AccountRefused():
                self._account = _Pause(boottime() + MAX_PAUSE_S, MAX_PAUSE_S)
            case PlatformBusy(after_s=after_s, is_account=is_account) if methods := (
                self._counted_with(method, None if is_account else chat)
            ):
                self.allow(Allowance(methods, 0, after_s, None if is_account else chat))
                return
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

    async def _due(self, chat: str, method: Method) -> contextlib.ExitStack:
        """Wait until a reply's call may be made; return the context that counts it, begun."""
        while True:
            await self._wait(lambda: self._due_at(chat, method))
            # Of the chats that have reached no limit of their own, the one that came first is next.
            async with self._lines[method]:
                await self._wait(lambda: self._allowed_at(method, None))
                if self._due_at(chat, method) <= boottime():
                    begun = contextlib.ExitStack()
                    begun.enter_context(self.call(chat, method))
                    return begun

    async def _wait(self, until: Callable[[], float]) -> None:
        """Wait until the time that `until` returns, which may change meanwhile."""
        while (left_s := until() - boottime()) > 0:
            is_blocked = left_s == math.inf
            self._blocked += is_blocked
            try:
                async with asyncio.timeout(None if is_blocked else left_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
            finally:
                self._blocked -= is_blocked

    def _due_at(self, chat: str, method: Method) -> float:
        """Return when a reply's call is allowed, apart from the rates of the account."""
        if self._account.length_s and self._is_probing:
            return math.inf
        return max(self._paused_until(chat), self._allowed_at(method, chat))

    def _paused_until(self, chat: str) -> float:
        return max(self._account.until, self._chats.get(chat, self._account).until)

    def _allowed_at(self, method: Method, *scopes: str | None, is_reply: bool = True) -> float:
        """Return when the rates of `scopes` allow a call, and what responses have allowed.

        A scope is a chat, or None for the account. `math.inf` if that depends on a call under way.
        """
        share, least = (1.0, 1) if is_reply else (SHARES[method], 2)
        at = -math.inf
        for scope in scopes:
            for window in self._windows_of(method, scope):
                at = max(at, window.free_at(share))
            if (left := self._left_of(method, scope)) and left.calls < least:
                at = max(at, left.until)
        return at

    def _windows_of(self, method: Method, scope: str | None) -> Iterator[Window]:
        for rate in self._rates(method, scope):
            if (rate, scope) not in self._windows:
                if len(self._windows) >= self._max_windows:
                    kept = self._windows.items()
                    self._windows = {key: window for key, window in kept if not window.is_empty}
                    self._max_windows = max(MAX_KEPT, 2 * len(self._windows))
                self._windows[rate, scope] = Window(rate)
            yield self._windows[rate, scope]

    def _rates(self, method: Method, scope: str | None) -> Iterator[Rate]:
        """Yield the rates for which a call counts in a scope."""
        form = self._profile.direct_chat_form
        is_direct = bool(scope and form and re.fullmatch(form, scope))
        kinds = {"account"} if scope is None else {"chat"} if is_direct else {"chat", "group"}
        for rate in self._profile.rates:
            if method in rate.methods and rate.scope in kinds:
                yield rate

    def _counted_with(self, method: Method, scope: str | None) -> frozenset[Method]:
        """Return what is counted together with `method`; empty if that is unknown."""
        rates = [rate.methods for rate in self._rates(method, scope)]
        known = frozenset((method,)) if method not in ("send", "edit") else frozenset[Method]()
        return known.union(*rates)

    def _left_of(self, method: Method, scope: str | None) -> _Left | None:
        left = self._left.get((method, scope))
        return left if left and left.until > boottime() else None

    def _unblock(self) -> None:
        if self._blocked:
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
