"""The usage of a terminal's program, read from the CLI's own transcripts."""

import asyncio
import time
from collections.abc import Iterable

from remoteclaw.config.budgets import person_names
from remoteclaw.config.model import Config
from remoteclaw.fleet.sessions.usage import Usage, UsageScopes
from remoteclaw.fleet.terminals.state import TerminalPlace
from remoteclaw.fleet.terminals.terminals import Terminals
from remoteclaw.messages import SessionKey
from remoteclaw.tty.program import requests_of

#: The pause between two counts, in seconds. Budgets hear of a request after this time.
COUNT_S = 5.0
#: For how long after the program's last activity its transcript is read again, in seconds: it
#: records the tokens of an answer a moment later.
AFTER_S = 12.0
#: A count reads the transcripts as a whole, which takes at most one part in so many of the time.
SHARE = 20


class TerminalUsage:
    """Counts what the program of one terminal uses. Every count is of everything so far."""

    def __init__(
        self, terminals: Terminals, session: SessionKey, epoch: str, place: TerminalPlace
    ) -> None:
        """`epoch` is that of the session's lease; writes with an older one are refused."""
        self._terminals = terminals
        self._session = session
        self._epoch = epoch
        self._place = place
        self._counts_until = time.monotonic() + AFTER_S
        self._next_count_at = 0.0

    async def update(self, config: Config, root: str, *, is_active: bool) -> None:
        """Count if it is time to. `is_active` says whether the program works, or has worked.

        Raises `LeaseLost`, `RedisUnavailable`.
        """
        now = time.monotonic()
        if is_active:
            self._counts_until = now + AFTER_S
        if self._next_count_at <= now <= self._counts_until:
            await self.count(config, root)
            ended = time.monotonic()
            self._next_count_at = ended + max(COUNT_S, (ended - now) * SHARE)

    async def count(self, config: Config, root: str, last: str | None = None) -> None:
        """Count what the terminal's conversations have used; `last` is one of them.

        `root` is the id of the session above all others. Conversations of other sessions are left
        out. Raises `LeaseLost`, `RedisUnavailable`.
        """
        sid, own = self._session.sid, self._place.conversation
        record = await self._terminals.record(sid)
        named = (own, *(record.earlier if record else ()), record and record.conversation, last)
        conversations = [
            each
            for each in dict.fromkeys(filter(None, named))
            if each == own or not await self._terminals.other_session_with(each, but=sid)
        ]
        usage = await asyncio.to_thread(used_in, self._place, conversations, config, self._session)
        if usage:
            people = tuple(person_names(config, self._place.people))
            scopes = UsageScopes(self._session.agent, root, people, config.fleet.timezone)
            await self._terminals.count(sid, self._epoch, self._place.turn, usage, scopes)


def used_in(
    place: TerminalPlace, conversations: Iterable[str], config: Config, session: SessionKey
) -> Usage:
    """Return what a terminal has used in its conversations; a transcript may be unreadable now."""
    agent = config.agents.get(session.agent)
    requests = {}
    for conversation in conversations:
        for request in requests_of(place, conversation):
            if request.at_ms >= place.started_ms:
                requests[request.id] = request
    total = Usage()
    for request in requests.values():
        price = config.prices.get(request.model) or config.prices.get((agent and agent.model) or "")
        total += Usage.of_request(request, price)
    return total
