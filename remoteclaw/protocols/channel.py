"""The seam to channels: what one is, what its adapter does, and what it gets."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from remoteclaw.messages import Attachment

__all__ = [
    "ChannelAdapter",
    "ChannelProfile",
    "OperatingAdapter",
    "Operation",
    "Receipt",
    "Reply",
    "Unit",
]

#: What platforms count in a text: code points, or units of UTF-16 (Telegram).
Unit = Literal["characters", "utf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelProfile:
    """The profile of a channel: its limits, its format, its ids and its owners.

    `[channels.NAME]` goes before the limits and the format.
    """

    chunk_limit: int = 4000
    """The longest message, in `chunk_unit`."""
    chunk_unit: Unit = "characters"
    formatting: tuple[str, ...] = ()
    """Its format, a sentence each, for agents."""
    attachment_mb: int = 20
    """The largest file, in megabytes."""
    attachment_types: tuple[str, ...] = ("*",)
    """The MIME types of files that it takes; `*` stands for any part."""
    live_every_s: float = 0.25
    """The shortest time between two edits of a message that is being written, in seconds."""
    has_threads: bool = True
    lacks: frozenset[str] = frozenset()
    """The tools about the current chat that do nothing there."""
    id_form: str | None = None
    """The regular expression of its ids of people and chats, where that tells them from names."""
    is_owners: bool = False
    """Whether everyone who writes there is an owner, as long as no owners are configured."""
    is_local: bool = False
    """Whether who writes there can mend the installation: of a failure they are told the agent
    CLI's own reason and what to do, where others are told politely that there was one."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An action in a chat besides sending a message."""

    name: Literal["react", "delete", "pin", "read"]
    channel_id: str
    """The chat."""
    thread_id: str | None
    args: Mapping[str, Any]
    """`messageId` but for `read`; `emoji` for `react`, where an empty one takes the reaction away;
    `limit` for `read`."""
    expires_ms: int
    """The time until which it may begin, on Redis' clock."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One entry of a reply stream: a message to deliver, or an operation."""

    id: str
    """Its id on the stream."""
    sid: str
    """The session whose agent says it; "operator" if none does."""
    turn: str
    """The turn that it answers."""
    attempt: int
    """The attempt at the turn that said it."""
    index: int
    """Its place among the turn's messages, or among those of the call, from 0."""
    channel_id: str
    """The chat that it goes to."""
    thread_id: str | None
    """The thread of that chat."""
    text: str
    """The text to send; empty if there are only files, or if it only says that the turn is over."""
    is_error: bool
    """Whether it reports a failure."""
    reply_to_id: str | None
    """The message of the chat to quote."""
    attachments: tuple[Attachment, ...]
    """The files to send with it; `fleet.blobs.get` has their contents."""
    is_final: bool
    """True for the last one of its turn."""
    entries: tuple[str, ...]
    """With a turn's last message, the entries that the turn answers."""
    call: str | None = None
    """The call of a tool that sent it, between the messages of the answer; None for the answer."""
    effect: str | None = None
    """The platform's name for an effect to show it with."""
    operation: Operation | None = None
    """The operation to do instead of sending a message."""
    origin: str = ""
    """What it answers, in words such as `cron job nightly`, where no person has asked."""
    status: str = ""
    """With a turn's last message: how the turn ended, as outcomes say it."""
    usage: Mapping[str, Any] | None = None
    """With a turn's last message: what the agent has taken, if it was asked (`session.outcome`)."""

    @property
    def key(self) -> str:
        """Names this message among all, for platforms that send once what has the same key."""
        if self.call is not None:
            return f"{self.call}:{self.index}"
        return f"{self.sid}:{self.turn}:{self.attempt}:{self.index}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """An adapter's report about a message that the platform has."""

    message_id: str | None = None
    """The platform's name for it; of several, the first one's."""
    kept: Collection[Attachment] = ()
    """The files that could not be sent: they are kept."""
    has_effect: bool = False
    """Whether it has the effect that was asked for."""


class ChannelAdapter(Protocol):
    """One account on one chat platform."""

    async def deliver(self, reply: Reply) -> Receipt | None:
        """Send one message; when this returns, the platform has it.

        Raises `PlatformRefused` if the platform will never take it: it is then given up, and its
        sender is told. Any other exception ends the relay, and the message is delivered again when
        the relay starts again.
        """


@runtime_checkable
class OperatingAdapter(ChannelAdapter, Protocol):
    """An adapter that can do more than send messages."""

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """Do something in a chat; when this returns, it is done.

        Return for `read` the `messages`, oldest first, each with `id`, `from`, `text` and `at`, in
        milliseconds since 1970; else nothing. It has four seconds.
        Raises `Unsupported` for what the platform doesn't have, and `PlatformRefused` for what it
        won't do. Whatever it raises, it is not tried again.
        """
