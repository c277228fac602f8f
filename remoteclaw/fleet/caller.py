"""The caller of a tool: a session, the grant of its agent, and the turn that runs."""

import hashlib
from dataclasses import dataclass
from typing import Self

import orjson

from remoteclaw.fleet import keys
from remoteclaw.messages import Entry, SessionKey, hops_of, relays_of, via_of


@dataclass(frozen=True, slots=True)
class Grant:
    """Which agent process may call tools for a session, and which tools."""

    digest: str
    """SHA-256 of its token."""
    tools: frozenset[str]

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the grant that a session's state keeps as JSON."""
        data = orjson.loads(text)
        return cls(data["digest"], frozenset(data["names"]))


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """The turn that an agent works on."""

    id: str
    epoch: str
    attempt: int
    entries: tuple[Entry, ...]
    """The entries that it answers, without damaged ones."""
    is_whole: bool
    """Whether every entry could be read."""

    @property
    def via(self) -> tuple[str, ...]:
        """The ids of the sessions that wait for this turn, or get its result."""
        return via_of(self.entries)

    @property
    def hops(self) -> int:
        """How many turns there were since a person, or the clock, wrote something."""
        return hops_of(self.entries)

    @property
    def relays(self) -> int:
        """The number of turns in a row about results of tasks, including this one."""
        return relays_of(self.entries)


@dataclass(frozen=True, slots=True)
class Caller:
    """A session that calls tools."""

    session: SessionKey
    grant: Grant | None
    turn: RunningTurn | None
    """None between turns."""
    parent: SessionKey | None
    """The session that has started this one; None if people talk with it."""
    launch_of: tuple[SessionKey, int]
    """The session that its agents are launched like, and how many are above that: its own, but for
    a branch."""
    is_branch: bool


def call_name(caller: Caller | None, call: str) -> str:
    """Return a call's name among all: in each turn of a session, agents have names of their own."""
    scope = f"{caller.turn.id}\0" if caller and caller.turn else ""
    digest = hashlib.sha256(f"{scope}{call}".encode()).hexdigest()[:32]
    return f"{{{caller.session.sid if caller else keys.OPERATOR}}}:{digest}"
