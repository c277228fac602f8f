"""The seam to channels: what one is, what its adapter does, and what it gets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from remoteclaw.messages import Attachment

__all__ = [
    "Card",
    "ChannelAdapter",
    "ChannelProfile",
    "Live",
    "LiveAdapter",
    "OperatingAdapter",
    "Operation",
    "Part",
    "Place",
    "Reply",
    "Sent",
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
    owner_prefix: str | None = None
    """How the ids of owners begin there, as long as no owners are configured."""
    is_local: bool = False
    """Whether who writes there can fix the installation: of a failure they are told the agent
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
class Card:
    """A request to people, as a message shows it."""

    id: str
    """The request's id (`fleet.request`)."""
    choices: tuple[tuple[str, str], ...] = ()
    """The answers that can be chosen, each with its label; none once it is answered."""


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
    """Whether it is the last reply of its turn."""
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
    is_silent: bool = False
    """Whether nobody is to be notified of it."""
    usage: Mapping[str, Any] | None = None
    """With a turn's last message: what the agent has taken, if it was asked (`session.outcome`)."""
    card: Card | None = None
    """The request that the message shows, or whose message it takes the place of."""
    is_beside: bool = False
    """Whether it comes between the messages of a turn's answer, and is no part of it."""

    @property
    def is_apart(self) -> bool:
        """Whether it is no part of a turn's answer: a tool has sent it, or it was said beside."""
        return self.call is not None or self.is_beside

    @property
    def key(self) -> str:
        """Names this message among all, for platforms that send once what has the same key."""
        if self.call is not None:
            return f"{self.call}:{self.index}"
        return f"{self.sid}:{self.turn}:{self.attempt}:{self.index}"


@dataclass(frozen=True, slots=True)
class Part:
    """One message of the platform: a reply is sent as one or several."""

    index: int
    """Its place among the reply's parts, from 0."""
    content: Any = None
    """What the adapter has made of the text; the relay doesn't look at it."""
    attachment: Attachment | None = None
    """The file that it is, whose content the relay fetches."""


@dataclass(frozen=True, slots=True)
class Sent:
    """An adapter's report about a part that the platform has."""

    message_id: str | None = None
    """The platform's name for it."""
    has_effect: bool = False
    """Whether it has the effect that was asked for."""
    kept: Collection[Attachment] = ()
    """The files of the reply that could not be sent with it: they are kept."""


@dataclass(frozen=True, slots=True)
class Place:
    """A chat, or a thread of it."""

    chat: str
    thread: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A turn that runs, as a preview shows it."""

    text: str
    """The message that is being written, as far as it has come; Markdown."""
    activity: str = ""
    """The running tools, in one line."""
    plan: str = ""
    """The agent's plan, in one line."""


class ChannelAdapter(Protocol):
    """One account on one chat platform: its outgoing side.

    Each call that asks something of the platform raises `PlatformRefused` for what it will never
    take, `PlatformAway` and `PlatformBusy` for what certainly was not done, `PlatformUnknown` where
    that can't be told, and `AccountRefused` where the account itself is the problem. Any other
    exception counts as unknown.
    """

    @property
    def has_keys(self) -> bool:
        """Whether the platform does once what has the same `Reply.key` and part."""

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return what to send for a reply, the same each time; none if it only ends a turn."""

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Send one part, with the content of its file; when this returns, the platform has it.

        If it `is_again`, an earlier attempt may have arrived: without keys, say so in the message.
        """


@runtime_checkable
class LiveAdapter(ChannelAdapter, Protocol):
    """An adapter that shows turns while they run: its platform can edit messages."""

    async def preview(self, place: Place, words: Live, *, message_id: str | None) -> str:
        """Show how far a turn has come, in a silent message or by editing one; return its id."""

    async def replace(self, reply: Reply, part: Part, *, message_id: str) -> Sent:
        """Make a preview this part of the reply; done twice, it is the same message.

        A preview that is gone is refused: the part is then sent.
        """

    async def remove(self, place: Place, message_id: str) -> None:
        """Remove a preview; one that is gone is removed."""

    async def typing(self, place: Place) -> None:
        """Show for some seconds that an answer is being written."""


@runtime_checkable
class OperatingAdapter(ChannelAdapter, Protocol):
    """An adapter that can do more than send messages."""

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """Do something in a chat; when this returns, it is done.

        Return for `read` the `messages`, oldest first, each with `id`, `from`, `text` and `at`, in
        milliseconds since 1970; else nothing. It has four seconds.
        Raises `Unsupported` for what the platform doesn't have: of `read`, the relay then tells
        what passed through it. Raises `PlatformRefused` for what it won't do. Whatever it raises,
        it is not tried again.
        """
