"""Steering: passes messages that arrive during a turn to its agent."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from remoteclaw.fleet.turns.inbound import NewerEntry, decode
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import Entry, has_read_web
from remoteclaw.session.queue import Fate, OpenTurn
from remoteclaw.session.waiting import decode_all

#: At most this many messages join one turn, so that it ends and other sessions get the worker.
MAX_STEERED = 20


class Steering:
    """The newcomers of one turn; each is recorded as a part of it before the agent receives it."""

    def __init__(
        self,
        lease: Lease,
        turn: OpenTurn,
        newest: str,
        *,
        is_at_limit: Callable[[Entry], Awaitable[bool]] | None = None,
    ) -> None:
        """`newest` is the id of the newest known entry: only later entries can join the turn.

        If the turn takes no messages, only those join that `give()` adds. `is_at_limit` says
        whether a budget keeps an entry from the turn.
        """
        self._lease = lease
        self._turn = turn
        self._given: list[Entry] = []
        self._newest = newest
        self._is_at_limit = is_at_limit
        self._taken: list[Entry] = []
        self._may_have_entries = asyncio.Event()
        self._may_have_entries.set()  # entries may have arrived before `entries()` is called
        self._is_closed = False
        """Whether an entry has arrived that must wait for its own turn, and all after it."""

    def give(self, entry: Entry) -> None:
        """Pass the agent an entry that is already recorded as a part of the turn."""
        self._given.append(entry)
        self._may_have_entries.set()

    def announce(self) -> None:
        """Note that new entries may have arrived."""
        self._may_have_entries.set()

    @property
    def joined(self) -> tuple[Entry, ...]:
        """The messages that have joined the turn."""
        return tuple(self._taken)

    def taken(self, ids: Sequence[str]) -> tuple[Entry, ...]:
        """Return the newcomers with these ids."""
        return tuple(entry for entry in self._taken if entry.id in ids)

    async def entries(self) -> AsyncGenerator[Entry, None]:
        """Yield the entries that join the turn, until cancelled.

        Another agent process of the same attempt first receives all that the earlier one did.
        """
        pending = list(self._taken)
        while True:
            for entry in pending:
                yield entry
            if self._is_closed or len(self._taken) >= MAX_STEERED:
                return
            await self._may_have_entries.wait()
            self._may_have_entries.clear()
            given, self._given = self._given, []
            self._taken += given
            pending = [*given, *(await self._take() if self._turn.takes_messages else ())]
            if has_read_web(pending):
                await self._lease.turns.note_web()

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
            match self._turn.fate(entry):
                case Fate.JOINS:
                    if self._is_at_limit and await self._is_at_limit(entry):
                        self._is_closed = True  # it would end the turn of the others
                        break
                    entries.append(entry)
                case Fate.CLOSES:
                    self._is_closed = True
                    break
        if not entries:
            return []
        raw = await self._lease.turns.join([entry.id for entry in entries])
        joined = [decode(each, self._lease.session) for each in raw]
        self._newest = joined[-1].id if joined else self._newest
        self._taken += joined
        return joined
