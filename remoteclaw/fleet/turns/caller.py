"""The caller of a tool: a session, the grant of its agent, and its running turn."""

import hashlib
from dataclasses import dataclass
from typing import Self

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.sessions.state import SessionState
from remoteclaw.messages import ChatPlace, Entry, SessionKey, hops_of, place_of, relays_of, via_of


@dataclass(frozen=True, slots=True)
class Grant:
    """The right of one agent process to call tools for a session."""

    digest: str
    """The SHA-256 digest of the process's token."""
    tools: frozenset[str]
    """The names of the tools that it may call."""

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the grant that the session's state holds as JSON."""
        data = orjson.loads(text)
        return cls(data["digest"], frozenset(data["names"]))


@dataclass(frozen=True, slots=True)
class CallerTurn:
    """The running turn of a session."""

    id: str
    epoch: str
    """The epoch of the lease under which the turn runs."""
    attempt: int
    """The number of the attempt, from 1."""
    entries: tuple[Entry, ...]
    """The entries that the turn answers, without unreadable ones."""
    is_whole: bool
    """Whether every entry could be read."""
    has_read_web: bool = False
    """Whether the turn, or one that led to it, has read what others have written."""

    @property
    def place(self) -> ChatPlace:
        """The chat of the turn (`Turn.place`)."""
        return place_of(self.entries)

    @property
    def via(self) -> tuple[str, ...]:
        """The ids of the sessions that wait for this turn or receive its result."""
        return via_of(self.entries)

    @property
    def hops(self) -> int:
        """The number of turns that led to this one since a person or a cron job wrote."""
        return hops_of(self.entries)

    @property
    def relays(self) -> int:
        """The number of consecutive turns about results of tasks, including this one."""
        return relays_of(self.entries)


@dataclass(frozen=True, slots=True)
class Caller:
    """A session whose agent calls tools."""

    state: SessionState
    grant: Grant | None
    """None if no agent process may call tools for the session."""
    turn: CallerTurn | None
    """None between turns."""

    @property
    def session(self) -> SessionKey:
        """The key of the session."""
        return self.state.key


def call_name(caller: Caller | None, call: str) -> str:
    """Return a name of a call that is unique in Redis.

    `call` is unique only within its turn, because agents name their calls themselves. `caller` is
    None for an operator.
    """
    scope = f"{caller.turn.id}\0" if caller and caller.turn else ""
    digest = hashlib.sha256(f"{scope}{call}".encode()).hexdigest()[:32]
    return f"{{{caller.session.sid if caller else keys.OPERATOR}}}:{digest}"
