"""Signs: the state of people's messages as the account's reaction to each, in an account's chats.

A sign follows the outcome of its message in Redis, so a crash of the worker or of this process
leaves none that is wrong. A chat gets at most two a second, after its replies.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Collection, Mapping

from remoteclaw.channels.budget import Budget
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import (
    AccountRefused,
    LeaseLost,
    PlatformAway,
    PlatformBusy,
    PlatformUnknown,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
)
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.fleet.replies.signs import Sign, Signs, sign_name
from remoteclaw.host.logs import frames_of
from remoteclaw.protocols import MessageState, OperatingAdapter, Operation

#: The pause between two looks at the states, in seconds: states that end sooner are not shown.
EVERY_S = 0.5
#: The pause between two looks while no message shows its state, in seconds. Only a process that was
#: frozen, and no longer has the claim, adds signs that are not announced.
IDLE_S = 30.0
#: Time limit of one call, and the pause in a chat after one that failed, in seconds.
CALL_S, RETRY_S = 2.0, 10.0
#: Time limit for storing a sign, in seconds: later messages of the chat wait for it.
STORE_S = 2.0
#: After this many refusals in a row, no signs are shown in a chat for a time, in seconds: it has no
#: reactions, or others have deleted the messages.
MAX_REFUSALS, REFUSED_S = 3, 3600.0
#: The states that change no more.
FINAL = ("done", "failed", "ended", "gone")

#: Failures after which a call is repeated: it has no effect if it was carried out.
_TRANSIENT = (PlatformAway, PlatformBusy, PlatformUnknown, AccountRefused, TimeoutError)

log = logging.getLogger(__name__)


class StateSigns:
    """Shows the states of messages in an account's chats, while this adapter has the claim."""

    def __init__(
        self,
        signs: Signs,
        reader: ReplyReader,
        adapter: OperatingAdapter,
        budget: Budget,
        emoji: Mapping[MessageState, str],
    ) -> None:
        self._signs = signs
        self._reader = reader
        self._adapter = adapter
        self._budget = budget
        self._emoji = emoji
        self._shown: dict[str, str | None] = {}
        """The reactions that messages have, by sign: empty for none, and None if that is unknown,
        because a call without an answer may have arrived."""
        self._unwanted: set[str] = set()
        """The signs of which the platform has refused a state: they are removed."""
        self._refusals: dict[str, tuple[int, float]] = {}
        """By chat, the number of refusals since a sign was shown there, and until when they count:
        a time of `boottime()`."""
        self._paused_until: dict[str, float] = {}
        """The times of `boottime()` until which chats get no sign, after a failure."""
        self._added = asyncio.Event()
        self._lock = asyncio.Lock()
        """Held during a reaction of this account: the platform keeps the last one."""

    async def add(self, sign: Sign) -> None:
        """Show the state of a message until its outcome. Without Redis, the message has no sign."""
        if self._refusals_in(sign.chat) >= MAX_REFUSALS:
            return
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            account, deadline = (self._reader.provider, self._reader.account), boottime() + STORE_S
            if await self._signs.add(*account, sign, deadline=deadline):
                self._shown.setdefault(sign.name, "")
            self._added.set()

    @contextlib.asynccontextmanager
    async def giving_way(self, chat: str, message_id: str) -> AsyncGenerator[None, None]:
        """Perform an agent's own reaction to a message in the context: it replaces the sign."""
        async with self._lock:
            yield
            await self._remove(sign_name(chat, message_id))

    async def run(self) -> None:
        """Show the states until cancelled. Raises `LeaseLost` if another adapter has the claim."""
        self._shown.clear()  # another process may have shown others
        self._unwanted.clear()
        # Replies that wait for a new process come first: the message of one that is refused is not
        # done.
        await asyncio.sleep(EVERY_S)
        while True:
            self._added.clear()
            signs = await self._signs.read(self._reader)
            for sign, state in signs:
                if state == "gone" or (self._is_last(sign, state) and self._is_shown(sign, state)):
                    await self._remove(sign.name)
            for next_sign, next_state in self._next(signs):
                if self._may_call(next_sign.chat):  # replies may have come during the last call
                    await self._show(next_sign, next_state)
            if signs:
                await asyncio.sleep(EVERY_S)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_S):
                        await self._added.wait()

    def _next(self, signs: Collection[tuple[Sign, str]]) -> list[tuple[Sign, str]]:
        """Return the sign that is to be changed next in each chat that may be called."""
        found: dict[str, tuple[Sign, str]] = {}
        for sign, state in signs:
            if sign.chat not in found and state != "gone" and not self._is_shown(sign, state):
                found[sign.chat] = sign, state
        return [each for chat, each in found.items() if self._may_call(chat)]

    def _may_call(self, chat: str) -> bool:
        is_paused = self._paused_until.get(chat, 0.0) > boottime()
        return self._budget.is_free(chat, "react") and not is_paused

    def _is_shown(self, sign: Sign, state: str) -> bool:
        return self._shown.get(sign.name) == self._emoji_of(sign, state)

    def _is_last(self, sign: Sign, state: str) -> bool:
        return state in FINAL or sign.name in self._unwanted

    def _emoji_of(self, sign: Sign, state: str) -> str:
        known = {str(name): emoji for name, emoji in self._emoji.items()}
        return "" if sign.name in self._unwanted else known.get(state, "")

    async def _show(self, sign: Sign, state: str) -> None:
        """Show a state. A failure is only logged, and tried again."""
        async with self._lock:
            self._shown[sign.name], emoji = None, self._emoji_of(sign, state)
            await self._reader.ensure_claim()
            try:
                with self._budget.call(sign.chat, "react"):
                    async with asyncio.timeout(CALL_S):
                        await self._adapter.operate(_reaction(sign, emoji))
            except _TRANSIENT as problem:
                self._failed(sign.chat, problem)
                await self._keep_claim(sign)
            except Exception as error:  # noqa: BLE001 - a sign must not end the relay
                if emoji:  # perhaps only this one, so an earlier one may be left
                    self._refused(sign, error)
                else:  # there is none, or no message any more
                    await self._remove(sign.name)
            else:
                self._refusals.pop(sign.chat, None)
                self._shown[sign.name] = emoji
                await self._keep_claim(sign)
                if self._is_last(sign, state):
                    await self._remove(sign.name)

    async def _keep_claim(self, sign: Sign) -> None:
        """Renew the claim after a call, which may have arrived late if this process was frozen.

        If another process has the claim, it shows the state again.
        """
        try:
            await self._reader.ensure_claim()
        except LeaseLost:
            await self.add(sign)
            raise

    async def _remove(self, name: str) -> None:
        await self._signs.remove(self._reader, name)
        self._shown.pop(name, None)
        self._unwanted.discard(name)

    def _refused(self, sign: Sign, error: Exception) -> None:
        """End a sign; a message may be gone, but where all are refused, no more are shown."""
        self._unwanted.add(sign.name)
        refusals = self._refusals_in(sign.chat) + 1
        self._refusals[sign.chat] = refusals, boottime() + REFUSED_S
        if refusals == MAX_REFUSALS:
            why = str(error) if isinstance(error, RemoteClawError) else frames_of(error)
            log.warning("messages in chat %s do not show their state: %s", sign.chat, why)

    def _refusals_in(self, chat: str) -> int:
        """Return the number of refusals that count in a chat."""
        count, until = self._refusals.get(chat, (0, 0.0))
        return count if until > boottime() else 0

    def _failed(self, chat: str, problem: Exception) -> None:
        """Pause the signs of a chat; replies wait only for an account that can't be used."""
        pause_s = RETRY_S
        if isinstance(problem, PlatformBusy):
            pause_s = max(pause_s, problem.after_s)
        self._paused_until[chat] = boottime() + pause_s
        if isinstance(problem, PlatformBusy | AccountRefused):
            self._budget.failed(chat, problem, "react")


def _reaction(sign: Sign, emoji: str) -> Operation:
    return Operation(
        "react",
        sign.chat,
        sign.thread,
        {"messageId": sign.message_id, "emoji": emoji},
        expires_ms=now_ms() + int(CALL_S * 1000),
    )
