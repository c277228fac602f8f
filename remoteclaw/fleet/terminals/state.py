"""The state of a terminal in Redis: its start, the owner of its lease, and what people see."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from remoteclaw.fleet import hashes
from remoteclaw.fleet.turns.inbound import GRACE_MS
from remoteclaw.fleet.turns.leased_session import LeasedSession
from remoteclaw.messages import SessionKey, TerminalState, stream_order

#: The states of an open terminal.
OPEN: frozenset[str] = frozenset(("starting", "live"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalPlace:
    """The data that another process needs to reach, end and settle a terminal of a turn."""

    turn: str
    path: str
    """The address of the terminal's holder."""
    key: str
    """The secret for requests to the holder."""
    files: str
    """The directory with the files that outlive the terminal: the holder's and the CLI's notes."""
    ended: str
    """The file in that directory to which the holder writes how the terminal ended."""
    runtime: str
    workspace: str
    cwd: str
    """The directory in which the terminal began: the workspace, or one below it."""
    places: Mapping[str, str]
    """The environment variables that name the directories of the CLI's files."""
    conversation: str | None
    """The CLI's id of the conversation; None if it was unknown before the start."""
    name: str
    """The conversation's name in the session map."""
    position: str
    """The end of the conversation's transcript before the start."""
    by: str
    """The name of the person who opened the terminal."""
    host: str
    started_ms: int
    people: Sequence[str] = ()
    """The people on whose behalf the terminal was opened, each as CHANNEL:ID."""

    @property
    def where(self) -> str:
        """The location of the CLI's conversations, as JSON."""
        location = {"runtime": self.runtime, "workspace": self.workspace, "places": self.places}
        return orjson.dumps(location).decode()

    def encode(self) -> bytes:
        """Return the stored form, a field of the session's state."""
        return orjson.dumps(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalRecord:
    """A terminal as people see it (`tools.terminals.Terminal`), with its transcript's positions."""

    sid: str
    key: SessionKey
    name: str = ""
    host: str = ""
    state: TerminalState
    reason: str = ""
    """The reason of a crash; else empty."""
    needs: str = ""
    """The condition for which the start waits, as a sentence; empty if there is none."""
    activity: str = "unknown"
    waiting_for: str = ""
    title: str = ""
    draft: str = ""
    by: str = ""
    writer: str = ""
    viewers: int = 0
    cols: int = 0
    rows: int = 0
    conversation: str | None
    resumable: bool = False
    since_ms: int = 0
    opened_ms: int = 0
    exit: int | None
    entry: str = ""
    """The id of the entry that opened the terminal."""
    position: str = ""
    """The position in the open conversation's transcript up to which items are published."""
    where: str = ""
    """The location of the CLI's conversations (`TerminalPlace.where`); empty before the start."""
    earlier: Mapping[str, str] = field(default_factory=dict)
    """The same positions of the conversations that were open in this terminal before, by id."""

    @property
    def agent(self) -> str:
        """The session's agent."""
        return self.key.agent

    @property
    def is_open(self) -> bool:
        """Whether the terminal is live or starting."""
        return self.state in OPEN

    @classmethod
    def decode(cls, sid: str, stored: Mapping[bytes, bytes]) -> Self:
        """Return a terminal from its hash. Raises KeyError or ValueError if that is damaged."""
        return hashes.decode(cls, stored, sid=sid)


@dataclass(frozen=True, slots=True)
class HeldLease:
    """The lease of a session that was given to the holder of its terminal."""

    sid: str
    session: SessionKey
    epoch: str
    place: TerminalPlace
    holder: str
    """The holder's process, in the form of `host.process.identity`."""
    stop_entry: str
    """The id of the entry up to which all entries are stopped; empty for none."""


@dataclass(frozen=True, slots=True)
class LeaseRenewal:
    """A renewal of a `HeldLease`, and the session's newest entries."""

    stop: str
    """The id of the entry up to which all entries are stopped; empty for none."""
    newest_message: str
    """The id of the newest message of a person or to a task."""
    newest: str
    """The id of the newest entry."""
    kept_until_ms: int | None
    """Until when the batch behind the terminal is postponed; 0 if it isn't any more, None without
    one."""
    sent_at: float
    """The time at which the renewal was sent, on `boottime()`: the holder may live 0.9 of the
    lease from then on."""

    def has_due_entry(self, turn: str, now_ms: int) -> bool:
        """Whether an entry could be answered if the terminal of `turn` ended now.

        Nothing is answered before the kept batch.
        """
        if self.kept_until_ms is not None:
            return self.kept_until_ms <= now_ms
        return _is_after(self.newest, turn)

    def waiting_message(self, turn: str) -> str | None:
        """Return the id of the newest message that waits for the terminal of `turn`, if any."""
        waits = self.kept_until_ms is not None or _is_after(self.newest_message, turn)
        return self.newest_message or None if waits else None


def _is_after(entry: str, turn: str) -> bool:
    return bool(entry) and stream_order(entry) > stream_order(turn)


@dataclass(frozen=True, slots=True)
class TerminalEvent:
    """An event of a session's terminal, for its viewers."""

    id: str
    data: dict[str, Any]


class TerminalTurn:
    """The writes of a turn that opens a terminal; each raises `LeaseLost` without the lease."""

    def __init__(self, lease: LeasedSession) -> None:
        self._lease = lease

    async def place(self, place: TerminalPlace) -> None:
        """Store the place of a terminal that is about to be started."""
        await self._lease.run_fenced(
            "terminal_place",
            turn=place.turn,
            place=place.encode(),
            detail=f"a terminal of {place.runtime}",
        )

    async def hold(self, place: TerminalPlace, holder: str, *, hold_s: float) -> str:
        """Give the lease to the process `holder` of the terminal at `place`; return its epoch.

        This process must not write to the session afterwards.
        """
        lease = self._lease
        lease.is_given_away = True
        epoch: str = await lease.run_fenced(
            "give_to_holder",
            nonce=uuid.uuid4().hex,
            turn=place.turn,
            place=place.encode(),
            holder=f"{lease.host} {holder}",
            hold_ms=int(hold_s * 1000),
            grace_ms=GRACE_MS,
        )
        return epoch
