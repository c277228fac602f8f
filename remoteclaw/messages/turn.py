"""Entries of a session, and the turn that answers them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from remoteclaw.messages.chat import ChannelMessage, ChatPlace, person
from remoteclaw.messages.session import SessionKey

__all__ = [
    "AsideVerdict",
    "Deliver",
    "Entry",
    "MovedFrom",
    "Origin",
    "Provenance",
    "QuotedMessage",
    "TerminalState",
    "TerminalWish",
    "Turn",
    "has_read_web",
    "hops_of",
    "origin_of",
    "payers_of",
    "people_of",
    "place_of",
    "reference",
    "relays_of",
    "stream_order",
    "via_of",
]

#: The destination of a reply: the channel's reply stream; the caller that waits for the outcome; or
#: the parent session, as the result of a task.
Deliver = Literal["channel", "caller", "parent"]
#: The origin of an entry: a person in a `chat`, the agent of another `session`, a `cron` job, the
#: `result` of a task's session, an `operator` who ends the conversation (the text gives the
#: reason), the `verdict` of a person on a request whose turn is over, or a person who opens a
#: `terminal`.
Origin = Literal["chat", "session", "cron", "result", "operator", "verdict", "terminal"]

#: The verdict on a message that was put to the agent during a turn: it was `answered`, joins the
#: turn as `work`, gets its own `branch`, makes the turn `stop`, or waits for a `later` turn.
AsideVerdict = Literal["answered", "work", "branch", "stop", "later"]

#: The text of an operator in a chat is quoted up to this many characters.
MAX_QUOTED_CHARS = 100


class QuotedMessage(BaseModel):
    """A message that a running turn answers, quoted for a copy of its conversation."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """The sender's display name."""
    id: str | None
    """The sender's id; None where no person sent the message."""
    text: str
    has_text_of_others: bool = False
    """Whether the sender may not have written all of it (`Entry.has_text_of_others`)."""


class MovedFrom(BaseModel):
    """The origin of a person's message that was moved to a branch."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    of: str
    """The key of the session of whose conversation the branch is a copy."""
    entry: str
    """The id of the message's entry in that session."""
    now: tuple[QuotedMessage, ...] = ()
    """The messages that the session's turn was answering at that time."""


#: The states of a terminal (`tools.terminals.Terminal`).
TerminalState = Literal["starting", "live", "parked", "exited", "crashed", "lost"]


class TerminalWish(BaseModel):
    """The parameters of a terminal that a person opens."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    by: str
    """The name of the person."""
    cols: int
    rows: int
    subdir: str | None = None
    """The directory in which the terminal begins, relative to the workspace."""
    prompt: str = ""
    """The first message to the agent."""


class Provenance(BaseModel):
    """The origin of an entry that another session wrote, or a cron job after a turn of it."""

    # A newer RemoteClaw may add fields, so unknown ones are ignored.
    model_config = ConfigDict(frozen=True, extra="ignore")

    by: str
    """The key of the session that wrote the entry, or to which the cron job belongs."""
    via: tuple[str, ...] = ()
    """The ids of the sessions whose turns led to this entry, oldest first. Each waits for the turn
    that answers it, or gets its result."""
    hops: int = 0
    """The number of turns since a person or a cron job wrote something."""
    relays: int = 0
    """The number of those turns that were about results of tasks."""
    run: str | None = None
    """The run id of the task that ended; for a result only."""
    status: str | None = None
    """The final status of the task, as in outcomes; for a result only."""
    label: str | None = None
    """The label of the task's session, if it has one; for a result only."""
    parent: str | None = None
    """The key of the session that gets the result; for a task only."""
    branch_of: str | None = None
    """The key of the session of whose conversation the branch is a copy; for a branch only."""
    now: tuple[QuotedMessage, ...] = ()
    """The messages that the parent's turn is answering; for a task that knows the parent's
    conversation only."""
    payers: tuple[str, ...] = ()
    """The people for whom the usage of the turn counts, each as CHANNEL:ID. It gives no rights."""
    has_read_web: bool = False
    """Whether a turn that led to this entry has read what others have written, such as a web
    page."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a session's inbound stream: something that makes the session take a turn."""

    id: str
    """The stream id: "milliseconds-sequence" on Redis' clock."""
    message: ChannelMessage
    deliver: Deliver = "channel"
    origin: Origin = "chat"
    provenance: Provenance | None = None
    """The origin in detail, if another session wrote the entry, or a cron job's turn has read what
    others have written; else None."""
    stopped: int = 0
    """The number of the session's entries that a person's command to stop has stopped."""
    people: tuple[str, ...] = ()
    """The people on whose behalf an entry is that no person wrote, each as CHANNEL:ID. Their rights
    are looked up when the entry is answered."""
    is_command: bool | None = None
    """Whether the entry is a command for the agent's CLI, written by an owner; None before this is
    determined."""
    waits: bool = False
    """Whether somebody waits for its outcome, although the reply goes to the channel: then it has
    its own turn and is never dropped, like an entry for a `caller`."""
    copy_of: tuple[str, str] | None = None
    """The conversation of which the next conversation is a copy, as its name in the session map and
    the CLI's id; only with the origin `operator`."""
    notes: str | None = None
    """The record with which the next conversation begins, where no CLI can copy that conversation;
    only with the origin `operator`."""
    moved: MovedFrom | None = None
    """The origin of a person's message that was moved to a branch; None for all other entries."""
    terminal: TerminalWish | None = None
    """The parameters of the terminal to open; only with the origin `terminal`."""
    unreadable: str = ""
    """The reason why a damaged entry can't be read, else empty. The message of such an entry is
    only good for its address."""

    @property
    def has_text_of_others(self) -> bool:
        """Whether the entry shows the agent a text that its sender may not have written."""
        running = self.moved.now if self.moved else ()
        return self.message.has_text_of_others or any(
            each.has_text_of_others or each.id != self.message.from_ for each in running
        )

    @property
    def is_written(self) -> bool:
        """Whether an operator wrote the entry in the session's chat."""
        return self.origin == "session" and not self.provenance and self.deliver == "channel"

    @property
    def is_from_parent(self) -> bool:
        """Whether the parent session wrote the entry: the task, or a later message to it."""
        return self.origin == "session" and self.deliver == "parent" and not self.unreadable

    @property
    def at_ms(self) -> int:
        """The time at which the entry was accepted, in milliseconds on Redis' clock."""
        return int(self.id.partition("-")[0])


def stream_order(entry_id: str) -> tuple[int, ...]:
    """Return the sort key of a stream id: its two numbers, so that "10-0" follows "9-1"."""
    return tuple(int(part) for part in entry_id.split("-"))


def place_of(entries: Sequence[Entry]) -> ChatPlace:
    """Return the chat in which a turn of `entries` is answered: that of the last one."""
    return entries[-1].message.place


def people_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the people on whose behalf a turn of `entries` runs, each as CHANNEL:ID.

    The result is empty if at least one entry is on nobody's behalf.
    """
    all_people: dict[str, None] = {}
    for entry in entries:
        sender = person(entry.message.provider, entry.message.from_)
        people = (sender,) if entry.origin == "chat" else entry.people
        if not people:
            return ()
        all_people |= dict.fromkeys(people)
    return tuple(all_people)


def payers_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the people for whom the usage of a turn of `entries` counts, each as CHANNEL:ID.

    They share it. An entry on nobody's behalf adds nobody, unlike in `people_of()`.
    """
    payers: dict[str, None] = {}
    for entry in entries:
        if entry.origin == "chat":
            payers[person(entry.message.provider, entry.message.from_)] = None
        else:
            named = entry.provenance.payers if entry.provenance else ()
            payers |= dict.fromkeys(named or entry.people)
    return tuple(payers)


def origin_of(entries: Iterable[Entry]) -> str:
    """Return what a turn of `entries` answers, as text for people; empty if a person asked.

    The chat doesn't show the messages of an operator, so their beginning is always included. The
    text may contain names that agents have chosen.
    """
    named = [*entries]
    if any(entry.origin in ("chat", "operator", "verdict") for entry in named):
        named = [entry for entry in named if entry.is_written]
    return ", ".join(dict.fromkeys(map(_origin_of, named)))


def _origin_of(entry: Entry) -> str:
    """Return the origin of an entry that no person wrote in a chat, as text for people."""
    provenance, name = entry.provenance, entry.message.user_name
    if entry.origin == "cron":
        return name or "cron job"
    if entry.origin == "result":
        label, status = (provenance.label, provenance.status) if provenance else (None, None)
        text = f"result of {label or 'a task'}"
        return text if status in (None, "done") else f"{text} ({status})"
    if entry.is_written:
        text = " ".join(entry.message.text.split())
        if len(text) > MAX_QUOTED_CHARS:
            text = f"{text[:MAX_QUOTED_CHARS]}…"
        return f"{name}: “{text}”"
    if provenance:
        return f"message of the agent {SessionKey.parse(provenance.by).agent}"
    return f"message of {name or 'an operator'}"


def via_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the ids of the sessions that wait for the turn of `entries`, or get its result."""
    vias = (entry.provenance.via for entry in entries if entry.provenance)
    return tuple(dict.fromkeys(sid for via in vias for sid in via))


def hops_of(entries: Iterable[Entry]) -> int:
    """Return the number of turns that led to `entries` since a person or a cron job wrote."""
    return min((entry.provenance.hops if entry.provenance else 0 for entry in entries), default=0)


def has_read_web(entries: Iterable[Entry]) -> bool:
    """Whether `entries` have what others have written, or a turn that led to one has read it."""
    return any(
        entry.has_text_of_others or (entry.provenance and entry.provenance.has_read_web)
        for entry in entries
    )


def relays_of(entries: Iterable[Entry]) -> int:
    """Return the number of those turns that were about results, the turn of `entries` included."""
    return min((entry.provenance.relays if entry.provenance else 0 for entry in entries), default=0)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request to the agent, for the `entries` of a session."""

    session: SessionKey
    entries: tuple[Entry, ...]
    attempt: int = 1
    """1 for the first attempt at this batch; higher after a crash."""
    was_interrupted: bool = False
    """True if an earlier attempt reached the agent, which may have done part of the work."""
    left_out: tuple[Entry, ...] = ()
    """Earlier entries that are only mentioned to the agent, because too many were waiting."""

    @property
    def id(self) -> str:
        """The stream id of the first entry, the same in all attempts."""
        return min((*self.left_out, *self.entries), key=lambda entry: stream_order(entry.id)).id

    @property
    def place(self) -> ChatPlace:
        """The chat of the turn, where its replies, requests and notices go."""
        return place_of(self.entries)

    @property
    def is_command(self) -> bool:
        """Whether the turn is a command for the agent's CLI; such a turn has no other entries."""
        return bool(self.entries[0].is_command)

    @property
    def reference(self) -> str:
        """The reference of the turn, which is that of its first message."""
        return reference(self.session.sid, self.id)

    @property
    def references(self) -> str:
        """The references of all messages of the turn, in order."""
        entries = sorted((*self.left_out, *self.entries), key=lambda each: stream_order(each.id))
        return ", ".join(reference(self.session.sid, entry.id) for entry in entries)


def reference(sid: str, entry_id: str) -> str:
    """Return the reference of a message or turn in logs, commands and sentences to people."""
    return f"{sid[:8]}-{entry_id}"
