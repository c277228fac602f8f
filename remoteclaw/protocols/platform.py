"""The protocol for chat platforms: adapters for accounts, and the messages of people."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, Protocol, runtime_checkable

from remoteclaw.messages import ChatKind
from remoteclaw.protocols.channel import ChannelAdapter, Place

__all__ = [
    "AdapterState",
    "Choice",
    "ContextAdapter",
    "ContextMessage",
    "FileSource",
    "Identity",
    "Incoming",
    "IncomingFile",
    "InvitedAdapter",
    "PlatformAdapter",
    "PollResult",
    "PressedAdapter",
    "StandbyAdapter",
    "StatefulAdapter",
]


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of an account on its platform."""

    name: str
    """The name by which people find the account."""
    problem: str = ""
    """A problem of the account, in a sentence that says what to do; empty if there is none."""


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file that a person has sent and that is still on the platform."""

    id: str
    """The file's id on the platform."""
    name: str
    mime_type: str
    size: int | None = None
    """The size in bytes; None if the platform doesn't report it."""
    lasting_id: str = ""
    """An id that is the same in each report of the file; empty if `id` is."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A person's answer to the request on a card, unchecked: a client can have made it up."""

    request: str
    """The request's id."""
    verdict: str
    words: str = ""
    """The reason, or the answer in words; empty if the platform reports none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A person's message, reaction or choice, as the platform reports it."""

    id: str
    """Unique in the chat, and the same when the platform repeats the report. An edit of a message
    has an id of its own."""
    chat: str
    thread: str | None = None
    is_group: bool = False
    within: tuple[str, ...] | None = None
    """In a group: the ids of what contains the chat, narrowest first, such as a category and a
    server. They are keys of the setting `groups`, as the chat's id is. None if the report doesn't
    say."""
    sender: str
    """The sender's id on the platform."""
    sender_name: str | None = None
    """The name that the sender chose."""
    is_bot: bool = False
    at_ms: int
    """The time on the platform's clock, in milliseconds since 1970."""
    text: str = ""
    files: tuple[IncomingFile, ...] = ()
    reply_to: str | None = None
    """The id of the message to which this one replies or reacts."""
    quoted: str = ""
    """The text of that message, or a description of it, for the agent."""
    quoted_files: tuple[IncomingFile, ...] = ()
    """The files of that message, for the agent."""
    is_forwarded: bool = False
    """Whether the content comes from elsewhere: it is forwarded, or quotes another chat."""
    replaces: str | None = None
    """For an edit: the id of the message that it replaces."""
    deletes: str | None = None
    """For a deletion: the id of the message that its sender has deleted."""
    continues: str | None = None
    """For a part of one act, such as a long text that the platform has split: the text between it
    and the previous message of the sender in the place. None for a message of its own."""
    parts: tuple["Incoming", ...] = ()
    """The messages from which this one was joined. Only the intake sets them."""
    is_for_us: bool = True
    """In a group: whether the message mentions the account, replies to it or is a command to it."""
    reaction: str | None = None
    """For a reaction: the sender's current emoji on the message `reply_to`; empty if it was
    removed. Where `ChannelProfile.reactions` is `differences`: one emoji that was added or removed.
    It is Unicode; the adapter translates the platform's own names."""
    is_removed: bool = False
    """Whether that one emoji was removed."""
    choice: Choice | None = None
    """For a choice on a card: the answer."""
    moved_to: str | None = None
    """The new id of the chat, if it has changed. The adapter can send to both ids."""
    current_chat: str = ""
    """The current id of the chat, if `chat` is an earlier one. Only the intake sets it."""
    invitation: Literal["invited", "removed"] | None = None
    """For a change of the account's membership: whether the sender has invited it to the chat, or
    removed it from there."""
    problem: str = ""
    """Why the message can't be read. It is skipped, so that it doesn't block other messages. A
    sender who may write is told, if the message is for us."""
    is_anonymous: bool = False
    """Whether the platform hides who wrote: an administrator as the group, or a channel."""
    left_out: str = ""
    """Why nobody expects an answer to the report, such as one of a new member. It is only
    logged."""

    @classmethod
    def joined(cls, parts: Sequence["Incoming"]) -> "Incoming":
        """Return the parts of one act as one message, which has the name of the first."""
        first, *others = parts
        if not others:
            return first
        text = first.text
        for part in others:
            text += (part.continues or "") + part.text if text and part.text else part.text
        return replace(
            first,
            text=text,
            files=tuple(file for part in parts for file in part.files),
            is_for_us=any(part.is_for_us for part in parts),
            is_forwarded=any(part.is_forwarded for part in parts),
            parts=tuple(parts),
        )

    @property
    def is_message(self) -> bool:
        """Whether this is a new message: no edit, deletion, reaction, choice or other report."""
        others = (self.replaces, self.deletes, self.reaction, self.choice, self.moved_to)
        return self.invitation is None and all(other is None for other in others)

    @property
    def chat_kind(self) -> ChatKind:
        """The kind of the message's chat."""
        if self.thread is not None:
            return "thread"
        return "group" if self.is_group else "direct"


@dataclass(frozen=True, slots=True)
class PollResult:
    """Reports of a platform, in order of arrival within each conversation."""

    incoming: tuple[Incoming, ...] = ()
    cursors: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    """The sources that are read up to a new cursor with these reports, by name, such as a chat;
    None forgets a source that is gone."""
    acknowledge: Callable[[], Awaitable[None]] | None = None
    """Tells the platform that the reports have arrived. It is called once they are stored."""


class AdapterState(Protocol):
    """What an adapter keeps of its account in Redis, by name, for its next process on any host.

    Only the process that has the account's claim may write. A write raises `LeaseLost` if another
    one has taken over, and `StateTooLarge` beyond 256 KB for a value or 16 MB for an account.
    """

    async def read(self, name: str) -> bytes | None:
        """Return a value; None if there is none."""

    async def write(self, name: str, value: bytes | None, *, is_secret: bool = False) -> None:
        """Store a value, encrypted if it is a secret; None removes it."""

    async def settle(self) -> None:
        """Wait until what was written survives a crash of Redis, if the server can say so.

        Raises `LeaseLost` if Redis may have lost it meanwhile: read the values again.
        """


class FileSource(Protocol):
    """The source of the files that people send."""

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file."""


class PlatformAdapter(ChannelAdapter, FileSource, Protocol):
    """Both sides of an account on a chat platform; its methods raise as `ChannelAdapter`'s do.

    It may also be a `LiveAdapter`, an `OperatingAdapter`, a `PressedAdapter`, a `StatefulAdapter`,
    a `StandbyAdapter`, a `LookingAdapter`, a `ContextAdapter`, an `InvitedAdapter` and a
    `MeteredAdapter`; an adapter that lacks one call of a protocol is none at all. An adapter that
    shows the choices of a card itself has the attribute `has_buttons = True`. One with
    `has_buttons = "reactions"` puts `Card.emoji` below the card: a person's reaction to it with one
    of them is the choice.
    """

    async def connect(self) -> Identity:
        """Check the credentials, and return the account's identity."""

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait up to 30 s for reports, and return those that have arrived.

        `cursors` are the stored cursors of all sources: the reports before them are stored. They
        are empty at the account's first start, which is now: the adapter then returns the newest
        cursors, and no report of before this moment that it has to read from a history.
        If a poll was the last one of its process, or Redis had no room for the result, the reports
        were neither stored nor acknowledged: the platform, or the next poll, repeats them. If Redis
        has lost what it stored last, `cursors` are earlier ones: an adapter that can reads again.
        """

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Put commands, each with its description, into the platform's own menu."""

    async def aclose(self) -> None:
        """Close all connections."""


@runtime_checkable
class StatefulAdapter(Protocol):
    """An adapter that keeps something of its account, such as a session to resume."""

    async def use_state(self, state: AdapterState) -> None:
        """Use this state from now on. Called once, before `connect()`."""


@runtime_checkable
class StandbyAdapter(Protocol):
    """An adapter that is pushed to, also while nobody polls it."""

    async def stand_by(self) -> None:
        """Have nothing more pushed until the next poll: another process has the account's claim."""
        ...


@runtime_checkable
class PressedAdapter(Protocol):
    """An adapter whose platform shows a person who has pressed a button a text outside the chat."""

    async def tell_pressed(self, incoming: Incoming, text: str, *, is_refused: bool) -> None:
        """Show `text`, the result of the choice in `incoming`, if it isn't too late for that."""


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """A message of a thread in which the agent had no session yet."""

    sender: str
    """The sender's id on the platform."""
    text: str
    sender_name: str | None = None


@runtime_checkable
class ContextAdapter(Protocol):
    """An adapter whose platform returns the messages of a thread."""

    async def context(self, place: Place, before: str, limit: int) -> Sequence[ContextMessage]:
        """Return up to `limit` messages of a thread that come before a message, oldest first.

        `before` is that message's id. There are three seconds for it.
        """


@runtime_checkable
class InvitedAdapter(Protocol):
    """An adapter whose account is in a chat only once it has accepted an invitation."""

    async def answer_invitation(self, incoming: Incoming, *, joins: bool) -> None:
        """Accept the invitation in `incoming`, or decline it. A repetition has no effect."""
