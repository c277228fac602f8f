"""Steering: messages that arrive during a turn, passed to its agent."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from remoteclaw.fleet.commands import CommandOf
from remoteclaw.fleet.inbound import NewerEntry, decode_entry
from remoteclaw.fleet.lease import Lease
from remoteclaw.messages import Entry

__all__ = ["Steering"]

#: How many messages one turn takes up at most: then it is the other sessions' turn as well.
MOST_STEERED = 20


class Steering:
    """The newcomers of one turn: each is recorded as a part of it before the agent hears of it."""

    def __init__(self, lease: Lease, newest: str, *, command_of: CommandOf) -> None:
        """`newest` is the last entry that is known; all before it belong to the turn."""
        self._command_of = command_of
        self._lease = lease
        self._newest = newest
        self._taken: list[Entry] = []
        self._has_news = asyncio.Event()
        self._has_news.set()  # what came before anybody listened
        self._is_over = False
        """Whether something came that has to wait: nothing behind it may overtake it."""

    def announce(self) -> None:
        """Take notice that there may be more."""
        self._has_news.set()

    def taken(self, ids: Sequence[str]) -> tuple[Entry, ...]:
        """Return those of the newcomers that have these ids."""
        return tuple(entry for entry in self._taken if entry.id in ids)

    async def entries(self) -> AsyncGenerator[Entry, None]:
        """Yield what arrives, until cancelled; a second agent hears of all that the first did."""
        taken = list(self._taken)
        while True:
            for entry in taken:
                yield entry
            if self._is_over or len(self._taken) >= MOST_STEERED:
                return
            await self._has_news.wait()
            self._has_news.clear()
            taken = await self._take()

    async def _take(self) -> list[Entry]:
        entries: list[Entry] = []
        room = MOST_STEERED - len(self._taken)
        for entry_id, fields in (await self._lease.arrived(self._newest))[:room]:
            try:
                entry = decode_entry(entry_id, fields)
            except (ValueError, NewerEntry):
                self._is_over = True
                break
            if entry.origin != "chat":
                continue  # no person has sent it, so it can wait behind those that one has
            # A caller's reply is not for the chat, and a command not for the agent.
            if entry.deliver != "channel" or self._command_of(entry):
                self._is_over = True
                break
            entries.append(entry)
        if entries and await self._lease.steer([entry.id for entry in entries]):
            self._newest = entries[-1].id
            self._taken += entries
            return entries
        return []
