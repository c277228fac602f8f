"""A terminal as Redis keeps it: where it was started, who holds its lease, what people see."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import GRACE_MS
from remoteclaw.messages import SessionKey

if TYPE_CHECKING:
    from remoteclaw.fleet.lease import Lease
    from remoteclaw.tools.terminals import TerminalState

#: The states of a terminal that is there.
OPEN: frozenset[str] = frozenset(("starting", "live"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalPlace:
    """Where a turn has started a terminal, and what has to be known to end and to settle it."""

    turn: str
    path: str
    """Where its holder listens."""
    key: str
    """The secret that the holder is asked with."""
    files: str
    """The directory of what outlives it: what the holder leaves, and the CLI's own notes."""
    ended: str
    """The file in that directory in which the holder says how it ended."""
    runtime: str
    workspace: str
    cwd: str
    """Where it began: the workspace, or below it."""
    places: Mapping[str, str]
    """The variables that say where the CLI keeps its files."""
    conversation: str | None
    """The CLI's id of the conversation, where it was known before the start."""
    name: str
    """The conversation's name in the session map."""
    position: str
    """How far that conversation's transcript went before the start."""
    by: str
    host: str
    started_ms: int
    people: Sequence[str] = ()
    """On whose behalf it was opened, each as CHANNEL:ID."""

    @property
    def where(self) -> str:
        """Where the CLI keeps its conversations, as JSON."""
        found = {"runtime": self.runtime, "workspace": self.workspace, "places": self.places}
        return orjson.dumps(found).decode()

    def encode(self) -> bytes:
        """Return it as the session's state keeps it."""
        return orjson.dumps(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalRecord:
    """A terminal as people see it (`tools.terminals.Terminal`), and what is kept besides."""

    sid: str
    key: SessionKey
    name: str
    host: str
    state: "TerminalState"
    reason: str
    """Why it crashed; else empty."""
    needs: str
    """What the start waits for, in a sentence."""
    activity: str
    waiting_for: str
    title: str
    by: str
    writer: str
    viewers: int
    cols: int
    rows: int
    conversation: str | None
    resumable: bool
    since_ms: int
    opened_ms: int
    exit: int | None
    entry: str
    """The entry that has opened it."""
    position: str
    """How far its transcript was told."""
    where: str
    """Where the CLI keeps the conversation (`TerminalPlace.where`); empty before the start."""
    earlier: Mapping[str, str]
    """How far the transcripts of the conversations were told that were open in it before."""

    @property
    def agent(self) -> str:
        """The session's agent."""
        return self.key.agent

    @property
    def is_open(self) -> bool:
        """Whether it is there, or about to be."""
        return self.state in OPEN

    @classmethod
    def decode(cls, sid: str, fields: Mapping[bytes, bytes]) -> Self:
        """Return what is kept. Raises KeyError or ValueError if it can't be read."""
        text = {name.decode(): value.decode() for name, value in fields.items()}
        return cls(
            sid=sid,
            key=SessionKey.parse(text["key"]),
            name=text.get("name", ""),
            host=text.get("host", ""),
            state=cast("TerminalState", text["state"]),
            reason=text.get("reason", ""),
            needs=text.get("needs", ""),
            activity=text.get("activity", "unknown"),
            waiting_for=text.get("waiting_for", ""),
            title=text.get("title", ""),
            by=text.get("by", ""),
            writer=text.get("writer", ""),
            viewers=int(text.get("viewers", 0)),
            cols=int(text.get("cols", 0)),
            rows=int(text.get("rows", 0)),
            conversation=text.get("conversation") or None,
            resumable=text.get("resumable") == "1",
            since_ms=int(text.get("since_ms", 0)),
            opened_ms=int(text.get("opened_ms", 0)),
            exit=int(text["exit"]) if text.get("exit") else None,
            entry=text.get("entry", ""),
            position=text.get("position", ""),
            where=text.get("where", ""),
            earlier=orjson.loads(text.get("earlier") or "{}"),
        )


@dataclass(frozen=True, slots=True)
class Held:
    """A session whose lease belongs to the holder of its terminal."""

    sid: str
    session: SessionKey
    epoch: str
    place: TerminalPlace
    holder: str
    """The holder's process, as `host.process.identity` writes one."""
    stop_entry: str
    """Up to which entry all is stopped; empty for none."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """What the holder's session has come to."""

    stop: str
    """The id up to which all is stopped; empty for none."""
    said: str
    """The newest entry of a person."""
    newest: str
    """The newest entry."""
    sent_at: float
    """When the renewal was sent, on `boottime()`: the holder may live 0.9 of the lease."""


@dataclass(frozen=True, slots=True)
class TerminalEvent:
    """One thing that cockpits are told of a session."""

    id: str
    told: dict[str, Any]


class TerminalTurn:
    """The writes of a turn that opens a terminal, each refused once the lease is lost."""

    def __init__(self, lease: "Lease") -> None:
        self._lease = lease

    async def place(self, place: TerminalPlace) -> None:
        """Record where the terminal is about to be started."""
        await self._lease.run_fenced(
            "terminal_place",
            {},
            {
                "turn": place.turn,
                "place": place.encode(),
                "outcomes": keys.outcome_prefix(self._lease.sid),
                "detail": f"a terminal of {place.runtime}",
            },
        )

    async def hold(self, place: TerminalPlace, holder: str, *, hold_s: float) -> str:
        """Give the lease to the holder's process of a place; return its epoch.

        From here on the lease is another one's, and so is every write.
        """
        lease = self._lease
        lease.is_given_away = True
        epoch: bytes = await lease.run_fenced(
            "hold",
            {"active": keys.ACTIVE},
            {
                "nonce": uuid.uuid4().hex,
                "sid": lease.sid,
                "turn": place.turn,
                "place": place.encode(),
                "holder": f"{lease.host} {holder}",
                "hold_ms": int(hold_s * 1000),
                "grace_ms": GRACE_MS,
            },
        )
        return epoch.decode()
