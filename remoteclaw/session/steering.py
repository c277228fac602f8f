"""Steering: messages that arrive during a turn, passed to its agent."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from remoteclaw.fleet.inbound import NewerEntry
from remoteclaw.fleet.lease import Lease
from remoteclaw.messages import Entry
from remoteclaw.session.inbox import decode_all
from remoteclaw.session.queue import Newcomer, newcomer

#: How many messages one turn takes up at most: then it is the other sessions' turn as well.
MAX_STEERED = 20


class Steering:
    """The newcomers of one turn: each is recorded as a part of it before the agent hears of it."""

    def __init__(self, lease: Lease, newest: str, *, takes_all: bool = True) -> None:
        """`newest` is the last entry that is known; all before it belong to the turn.

        Unless it `takes_all`, only what it is given joins the turn.
        """
        self._lease = lease
        self._takes_all = takes_all
        self._given: list[Entry] = []
        self._newest = newest
        self._taken: list[Entry] = []
        self._has_news = asyncio.Event()
        self._has_news.set()  # what came before `entries()` was called
        self._is_closed = False
        """Whether something came that has to wait, with all behind it."""

    def give(self, entry: Entry) -> None:
        """Give the agent an entry that is recorded as a part of the turn."""
        self._given.append(entry)
        self._has_news.set()

    def announce(self) -> None:
        """Take notice that there may be more."""
        self._has_news.set()

    def taken(self, ids: Sequence[str]) -> tuple[Entry, ...]:
        """Return the newcomers with these ids."""
        return tuple(entry for entry in self._taken if entry.id in ids)

    async def entries(self) -> AsyncGenerator[Entry, None]:
        """Yield what arrives, until cancelled; a second agent hears of all that the first did."""
        taken = list(self._taken)
        while True:
            for entry in taken:
                yield entry
            if self._is_closed or len(self._taken) >= MAX_STEERED:
                return
            await self._has_news.wait()
            self._has_news.clear()
            given, self._given = self._given, []
            self._taken += given
            taken = [*given, *(await self._take() if self._takes_all else ())]

    async def _take(self) -> list[Entry]:
        room = MAX_STEERED - len(self._taken)
        raw = (await self._lease.entries_after(self._newest))[:room]
        try:
            arrived = decode_all(raw, self._lease.session)
        except NewerEntry:
            self._is_closed = True
            return []
        entries: list[Entry] = []
        for entry in arrived:
            match newcomer(entry):
                case Newcomer.JOINS:
                    entries.append(entry)
                case Newcomer.STOPS_JOINING:
                    self._is_closed = True
                    break
        if entries and await self._lease.turns.join([entry.id for entry in entries]):
            self._newest = entries[-1].id
            self._taken += entries
            return entries
        return []
