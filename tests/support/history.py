"""The form of the test platform that has a history for each source, and no keys, as Slack does.

It pushes what people do in envelopes, and repeats each until it is acknowledged. It `drops` those
that nobody receives: then only the histories tell of it. A thread's messages are in the thread's
own history alone. The account has a rate limit for edits.
"""

import asyncio
import os
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from remoteclaw.clock import boottime
from remoteclaw.errors import PlatformBusy
from remoteclaw.profiles import Channel
from remoteclaw.protocols import ChannelProfile, Part, PollResult, Rate, Reply, Sent
from tests.support.channel import POLL_S, STATES, Account, PlatformAccount, incoming
from tests.support.platform import Behaviour, history_of, kind_of, source_of, sources_of

#: When an envelope is repeated that is not acknowledged, in seconds.
REPEAT_S = 5.0
#: The maximum number of edits of the account, and the time for it, in seconds.
EDITS, EDITS_S = 20, 2.0
#: The maximum number of threads that are followed.
MAX_THREADS = 100

Numbered = tuple[int, Mapping[str, Any]]
"""An event with its number."""


class HistoryAccount(Account):
    """The adapter of an account: receives and sends. People answer requests by reactions."""

    def __init__(self, settings: PlatformAccount) -> None:
        super().__init__(settings)
        self.has_buttons = "reactions"
        self._is_behind = True
        """Whether a history may have what no envelope told."""
        self._pushed_at: dict[int, float] = {}
        """When the envelope of an event was last received."""
        self._edits: deque[float] = deque(maxlen=EDITS)
        """When the last edits were made."""

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Read the histories if the connection was lost, then wait for envelopes.

        The cursor of a source is the number of its newest event.
        """
        self._journal.add("polled", by=os.getpid(), cursors=dict(cursors))
        try:
            await self._behaviour("poll", str(os.getpid()))
        except BaseException:
            self._is_behind = True
            self._pushed_at.clear()
            raise
        if not cursors:
            self._is_behind = False
            events = self._journal.read()
            sources = {source: str(newest) for source, (_, newest) in sources_of(events).items()}
            return PollResult((), {"": str(len(events)), **sources})
        if self._is_behind and (missed := self._missed(cursors)):
            return missed
        self._is_behind = False
        return await self._pushed(cursors)

    def _missed(self, cursors: Mapping[str, str]) -> PollResult | None:
        """Return what the histories have behind the cursors; None if there is nothing.

        A chat's history names the threads that its messages have begun; the others have a cursor.
        """
        events = self._journal.read()
        found: list[Numbered] = []
        moved: dict[str, str | None] = {}
        followed = set(cursors)
        for source, (since, newest) in sources_of(events).items():
            chat, _, thread = source.partition("/")
            after = int(cursors.get(source, since))
            if thread and source not in followed:
                continue
            self._journal.add("history", source=source)
            page = history_of(events, chat, thread or None, after)
            followed |= {f"{chat}/{event['id']}" for _, event in page}
            if newest > after:
                found += page
                moved[source] = str(newest)
        if not moved:
            return None
        found.sort(key=lambda each: each[0])
        reports = tuple(incoming(event) for _, event in found)
        return PollResult(reports, {**_followed(found, cursors), **moved})

    async def _pushed(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait for envelopes; return those that are not acknowledged."""
        until = boottime() + POLL_S
        while boottime() < until:
            events = self._journal.read()
            known = {id_ for each in events for id_ in each.get("envelopes", ())}
            new = [
                (number, event)
                for number, event in enumerate(events, 1)
                if kind_of(event) and not event["is_dropped"] and str(number) not in known
                if self._pushed_at.get(number, 0) < boottime() - REPEAT_S
            ]
            if new:
                await self._stop("poll after")
                self._pushed_at |= {number: boottime() for number, _ in new}
                self._journal.add("pushed", count=len(new))
                moved = {source_of(event): str(number) for number, event in new}
                acknowledge = partial(self._acknowledge, [str(number) for number, _ in new])
                reports = tuple(incoming(event) for _, event in new)
                return PollResult(reports, {**_followed(new, cursors), **moved}, acknowledge)
            await asyncio.sleep(0.01)
        return PollResult()

    async def _acknowledge(self, envelopes: Sequence[str]) -> None:
        await self._behaviour("acknowledge", "")
        self._journal.add("acknowledged", envelopes=envelopes)
        await self._stop("acknowledge after")

    async def find(
        self, reply: Reply, part: Part, since_ms: int, *, known: Collection[str]
    ) -> Sent | None:
        """Look for a part in the history."""
        return await self.look(reply, part, since_ms, known)

    async def _behaviour(self, what: str, about: str, chat: str = "") -> Behaviour:
        behaviour = await super()._behaviour(what, about, chat)
        if what in ("edit", "replace"):
            if len(self._edits) == EDITS and self._edits[0] > boottime() - EDITS_S:
                self._journal.add("busy", what=what, about=about)
                after_s = self._edits[0] + EDITS_S - boottime()
                raise PlatformBusy("Too many edits.", after_s=after_s, is_account=True)
            self._edits.append(boottime())
        return behaviour


def _followed(found: Sequence[Numbered], cursors: Mapping[str, str]) -> dict[str, str | None]:
    """Return cursors for the threads that messages may begin, instead of the oldest such ones."""
    begun = {
        f"{event['chat']}/{event['id']}": str(number)
        for number, event in found
        if kind_of(event) == "message" and not event.get("thread")
    }
    threads = sorted((source for source in cursors if "/" in source), key=lambda s: int(cursors[s]))
    oldest = threads[: max(0, len(threads) + len(begun) - MAX_THREADS)]
    return {**dict.fromkeys(oldest), **begun}


CHANNEL = Channel(
    profile=ChannelProfile(
        code_file_lines=60,
        reactions="differences",
        reads_history=True,
        cursors_grow=True,
        opens_threads=True,
        live_every_s=0.05,
        rates=(Rate(frozenset(("edit",)), EDITS, per_s=EDITS_S, scope="account"),),
        state_emoji=STATES,
    ),
    settings="tests.support.channel:PlatformConfig",
    adapter=f"{__name__}:HistoryAccount",
)
