"""Entries of a session, and the turn that answers them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from remoteclaw.messages.chat import ChannelMessage
from remoteclaw.messages.session import SessionKey

__all__ = [
    "AsideVerdict",
    "Deliver",
    "Entry",
    "Moved",
    "Origin",
    "Provenance",
    "Said",
    "TerminalWish",
    "Turn",
    "hops_of",
    "origin_of",
    "people_of",
    "person",
    "relays_of",
    "stream_order",
    "via_of",
]

#: The destination of a reply: the channel's reply stream, the caller that waits for the outcome, or
#: as a result the session that has started this one.
Deliver = Literal["channel", "caller", "parent"]
#: Who wrote an entry: a person in a chat, another session's agent, the clock, a session that was
#: started for a task, as its result; an operator, who ends the conversation with it, and whose
#: text says why; a person's answer to a request whose turn is over; or a person who opens a
#: terminal.
Origin = Literal["chat", "session", "cron", "result", "operator", "verdict", "terminal"]

#: What becomes of a message that an agent was asked about beside its running turn: it is
#: `answered`, joins the turn as `work`, has a `branch` of its own, has the turn `stop`, or waits
#: for a `later` turn.
AsideVerdict = Literal["answered", "work", "branch", "stop", "later"]

#: How much is quoted of what an operator has written in a chat, in characters.
MAX_QUOTED = 100


class Said(BaseModel):
    """A message as another conversation is told of it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """Who has sent it, as they call themselves."""
    id: str | None
    """The id of a person; None where no person has sent it."""
    text: str


class Moved(BaseModel):
    """Where a person's message came from that a branch answers."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    of: str
    """The key of the conversation that the branch is a copy of."""
    entry: str
    """The message's entry there."""
    now: tuple[Said, ...] = ()
    """What the running turn of that conversation was about."""


class TerminalWish(BaseModel):
    """A terminal as a person wants it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    by: str
    """Who opens it."""
    cols: int
    rows: int
    subdir: str | None = None
    """Where in the workspace it begins, as a relative path."""
    prompt: str = ""
    """Its first message."""


class Provenance(BaseModel):
    """The origin of an entry that another session has written."""

    # A newer RemoteClaw may say more.
    model_config = ConfigDict(frozen=True, extra="ignore")

    by: str
    """The key of that session."""
    via: tuple[str, ...] = ()
    """The ids of the sessions whose turns have led here, oldest first: each waits for this turn, or
    gets its result."""
    hops: int = 0
    """The number of turns since a person, or the clock, wrote something."""
    relays: int = 0
    """The number of those turns that were about results of tasks."""
    run: str | None = None
    """Of a result: the name of what has ended, as it was given when it began."""
    status: str | None = None
    """Of a result: how it ended, as outcomes say it."""
    label: str | None = None
    """Of a result: the label of its session, if that has one."""
    parent: str | None = None
    """Of a task: the key of the session that gets its result."""
    branch_of: str | None = None
    """Of a branch's task: the key of the conversation that it is a copy of."""
    now: tuple[Said, ...] = ()
    """Of a branch's task: what the running turn of that conversation is about."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a session's inbound stream: something that makes the session take a turn."""

    id: str
    """The stream id, "milliseconds-sequence" of Redis' clock."""
    message: ChannelMessage
    deliver: Deliver = "channel"
    origin: Origin = "chat"
    provenance: Provenance | None = None
    """None for what a person or the clock has written."""
    stopped: int = 0
    """Of a person's command to stop: how many entries of the session it has stopped."""
    people: tuple[str, ...] = ()
    """Of what no person has written: the people on whose behalf it is, each as CHANNEL:ID. Their
    rights are looked up when it is answered."""
    is_command: bool | None = None
    """Whether it is a command for the agent's CLI, as an owner wrote it; None if nobody has looked
    yet whether it is a command."""
    copy_of: tuple[str, str] | None = None
    """Of an operator's end of a conversation: of which one the next is a copy, as the session map's
    name for it and the CLI's id."""
    notes: str | None = None
    """Of such an end: the record that the next conversation begins with, of one that no CLI can
    copy."""
    moved: Moved | None = None
    """Of a person's message that was moved to a branch: where it came from."""
    terminal: TerminalWish | None = None
    """Of the opening of a terminal: how it is wanted."""
    unreadable: str = ""
    """Of a damaged entry: why it can't be read. Its message only says where to answer it."""

    @property
    def is_written(self) -> bool:
        """Whether an operator has written it in the session's chat."""
        return self.origin == "session" and not self.provenance and self.deliver == "channel"

    @property
    def is_from_parent(self) -> bool:
        """Whether it is of the session that has started this one: its task, or what it was told
        since."""
        return self.origin == "session" and self.deliver == "parent" and not self.unreadable

    @property
    def at_ms(self) -> int:
        """The time when it was accepted, on Redis' clock, in milliseconds."""
        return int(self.id.partition("-")[0])


def stream_order(entry_id: str) -> tuple[int, ...]:
    """Return what a stream id is sorted by: its two numbers, "10-0" behind "9-1"."""
    return tuple(int(part) for part in entry_id.split("-"))


def person(channel: str, user: str) -> str:
    """Return a person as entries name them."""
    return f"{channel}:{user}"


def people_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the people on whose behalf a turn of these entries is, each as CHANNEL:ID.

    Empty, if one of the entries is on no one's behalf.
    """
    found: dict[str, None] = {}
    for entry in entries:
        sender = person(entry.message.provider, entry.message.from_)
        people = (sender,) if entry.origin == "chat" else entry.people
        if not people:
            return ()
        found |= dict.fromkeys(people)
    return tuple(found)


def origin_of(entries: Iterable[Entry]) -> str:
    """Return what a turn of these entries answers, in words; nothing if a person has asked.

    What an operator has written in the chat can't be read there, so its beginning is always told.
    The words have names in them that agents have chosen.
    """
    told = [*entries]
    if any(entry.origin in ("chat", "operator", "verdict") for entry in told):
        told = [entry for entry in told if entry.is_written]
    return ", ".join(dict.fromkeys(map(_origin_of, told)))


def _origin_of(entry: Entry) -> str:
    """Return what has led to an entry that no person wrote in a chat."""
    told, name = entry.provenance, entry.message.user_name
    if entry.origin == "cron":
        return name or "cron job"
    if entry.origin == "result":
        words = f"result of {told.label}" if told and told.label else "result of a task"
        return f"{words} ({told.status})" if told and told.status not in (None, "done") else words
    if entry.is_written:
        text = " ".join(entry.message.text.split())
        return f"{name}: “{text if len(text) <= MAX_QUOTED else f'{text[:MAX_QUOTED]}…'}”"
    if told:
        return f"message of the agent {SessionKey.parse(told.by).agent}"
    return f"message of {name or 'an operator'}"


def via_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the ids of the sessions that wait for the turn of these entries, or get its result."""
    known = (entry.provenance.via for entry in entries if entry.provenance)
    return tuple(dict.fromkeys(sid for via in known for sid in via))


def hops_of(entries: Iterable[Entry]) -> int:
    """Return how many turns led to these entries since a person, or the clock, wrote something."""
    return min((entry.provenance.hops if entry.provenance else 0 for entry in entries), default=0)


def relays_of(entries: Iterable[Entry]) -> int:
    """Return the number of those turns about results, including the turn of these entries."""
    return min((each.provenance.relays if each.provenance else 0 for each in entries), default=0)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request to the agent: a list of entries, never joined text."""

    session: SessionKey
    entries: tuple[Entry, ...]
    attempt: int = 1
    """1 for the first time this batch runs; more after a crash."""
    was_interrupted: bool = False
    """True when an earlier attempt reached the agent: it may have done part of the work."""
    left_out: tuple[Entry, ...] = ()
    """Entries that came before and are only mentioned, because there were too many."""

    @property
    def id(self) -> str:
        """The stream id of the first entry; stays the same over all attempts."""
        return min((*self.left_out, *self.entries), key=lambda entry: stream_order(entry.id)).id

    @property
    def is_command(self) -> bool:
        """Whether it is a command for the agent's CLI, which has a turn of its own."""
        return bool(self.entries[0].is_command)

    @property
    def reference(self) -> str:
        """The id that people see and that `remoteclaw sessions trace` takes."""
        return f"{self.session.sid[:8]}-{self.id}"
