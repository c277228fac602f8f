"""The protocol for channels: their profiles, and the adapters that deliver replies."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, runtime_checkable

from remoteclaw.messages import Attachment, ChatPlace

__all__ = [
    "CHOICE_EMOJI",
    "Allowance",
    "Card",
    "ChannelAdapter",
    "ChannelProfile",
    "Live",
    "LiveAdapter",
    "LookingAdapter",
    "MessageState",
    "MeteredAdapter",
    "Method",
    "OperatingAdapter",
    "Operation",
    "Part",
    "Place",
    "Rate",
    "Refusal",
    "Reply",
    "Sent",
    "Unit",
]

#: The unit of a text's length on a platform: code points, UTF-16 code units (Telegram), or bytes of
#: UTF-8 (Matrix).
Unit = Literal["characters", "utf16", "bytes"]


#: The kinds of calls whose rates platforms limit. An answer that replaces a preview is an edit.
Method = Literal["send", "edit", "delete", "typing", "react", "pin", "read"]


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit of a platform: at most `most` calls of `methods`, counted together, in `per_s` s."""

    methods: frozenset[Method]
    most: int
    per_s: float
    scope: Literal["chat", "group", "account"] = "chat"
    """Whether the calls of each chat are counted, or only those of each chat that is not direct, or
    those of the account."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a platform still allows, as the head of a response says."""

    methods: frozenset[Method]
    """The calls that the platform counts together."""
    left: int
    """The number of them that are allowed."""
    after_s: float
    """The time until more are allowed, in seconds."""
    chat: str | None = None
    """The chat whose calls are counted; None for those of the account."""


#: The state of a person's message: it waits, a turn answers it, that turn waits for a person, it is
#: answered, or it gets no answer.
MessageState = Literal["received", "works", "needs_you", "done", "failed"]


_VARIATION = "\N{VARIATION SELECTOR-16}"
#: The emoji of a card's choices, where people answer requests by reactions: by verdict.
CHOICE_EMOJI: Mapping[str, str] = {
    "once": "✅",
    "conversation": "♾️",
    "edits": "✏️",
    "deny": "❌",
    **{str(digit): f"{digit}{_VARIATION}\N{COMBINING ENCLOSING KEYCAP}" for digit in range(1, 10)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelProfile:
    """The profile of a channel: its limits, format, ids and owners.

    Settings in `[channels.NAME]` replace the limits and the format.
    """

    chunk_limit: int = 4000
    """The maximum length of a message, in `chunk_unit`."""
    chunk_unit: Unit = "characters"
    code_file_lines: int = 0
    """A code block with more lines is sent as its beginning and a file, if the adapter makes such
    files (`code_files`); 0 if it doesn't."""
    max_messages: int | None = None
    """A longer answer is sent as its beginning, its end and a file; None for no limit."""
    formatting: tuple[str, ...] = ()
    """Sentences for the agent about how the channel displays messages."""
    attachment_mb: int = 20
    """The maximum size of a file, in megabytes."""
    attachment_types: tuple[str, ...] = ("*",)
    """The MIME types of files that the channel accepts; `*` matches any part."""
    live_every_s: float = 0.25
    """The minimum time between two edits of a preview, in seconds."""
    rates: tuple[Rate, ...] = ()
    """The limits of the platform, which the relay keeps. Without them, it slows down when the
    platform says so."""
    has_threads: bool = True
    """Whether chats have threads or topics."""
    opens_threads: bool = False
    """Whether a message in a group can open a thread, which then has the message's id."""
    reactions: Literal["state", "differences"] | None = None
    """How the platform reports people's reactions: with each change, all emoji of the person on the
    message (`state`), or the one that was added or removed (`differences`); None if not at all."""
    private_replies: bool = False
    """Whether a message in a group can be shown to one person alone: answers of commands are."""
    state_emoji: Mapping[MessageState, str] = field(default_factory=dict)
    """The emoji of the states that the account shows as its reaction to a person's message, if its
    adapter can `react`. In a state without one there is no reaction; empty for none at all."""
    lacks: frozenset[str] = frozenset()
    """The tools for chats that have no effect on the channel; agents there don't get them."""
    direct_chat_form: str | None = None
    """A regular expression that matches ids of people whose direct chat has the same id; None if a
    direct chat has another id."""
    id_form: str | None = None
    """A regular expression that matches ids of people and chats; None if names look the same."""
    container_form: str | None = None
    """A regular expression that matches ids of what contains chats, such as a category or a server;
    None if nothing does."""
    person_form: str | None = None
    """A regular expression that matches ids of people, if it is narrower than `id_form`."""
    orders_ids: bool = False
    """Whether the numbers in the ids of a chat's messages grow with time."""
    cursors_grow: bool = False
    """Whether the cursors of a source are numbers that only grow, so that a smaller one is old."""
    reads_history: bool = False
    """Whether the adapter reads messages from a history after an outage, and so perhaps very old
    ones (`catch_up_h`)."""
    owner_prefix: str | None = None
    """The prefix of the ids that are owners while no owners are configured; None for no owners."""
    is_local: bool = False
    """Whether the people on the channel run the installation. They read the CLI's own reason of a
    failure, and how to fix it; others read a polite sentence without either."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An action in a chat other than sending a message."""

    name: Literal["react", "delete", "pin", "read"]
    channel_id: str
    """The chat."""
    thread_id: str | None
    args: Mapping[str, Any]
    """`messageId`, except for `read`; for `react` also `emoji`, which is empty to remove the
    reaction; for `read` `limit`."""
    expires_ms: int
    """The operation must not begin after this time, in milliseconds on Redis' clock."""


@dataclass(frozen=True, slots=True)
class Card:
    """The part of a message that shows a request to people."""

    id: str
    """The request's id (`fleet.request`)."""
    choices: tuple[tuple[str, str], ...] = ()
    """The possible answers, each as a verdict with its label; empty once it is answered."""

    @classmethod
    def of(cls, card: Mapping[str, Any]) -> Self:
        """Return the card of its JSON."""
        return cls(card["id"], tuple((verdict, label) for verdict, label in card["choices"]))

    @property
    def emoji(self) -> tuple[str, ...]:
        """The emoji of the choices, for an adapter whose people answer by reactions."""
        known = (CHOICE_EMOJI.get(verdict) for verdict, _ in self.choices)
        return tuple(filter(None, known))

    def verdict_of(self, emoji: str) -> str | None:
        """Return the verdict of the choice with an emoji; None if there is no such choice."""
        plain = emoji.replace(_VARIATION, "")
        return next(
            (
                verdict
                for verdict, _ in self.choices
                if CHOICE_EMOJI.get(verdict, "").replace(_VARIATION, "") == plain
            ),
            None,
        )

    def with_choices(self, text: str, *, by_reaction: bool = False) -> str:
        """Return the text of the card's message with the choices, numbered, for no buttons.

        With `by_reaction`, it names their emoji, too. If the request is answered, only the last
        paragraph remains, which reports the answer.
        """
        if not self.choices:
            return text.rpartition("\n\n")[2]
        shown = []
        for number, (verdict, label) in enumerate(self.choices, 1):
            emoji = CHOICE_EMOJI.get(verdict, "") if by_reaction else ""
            is_digit = bool(emoji) and verdict.isdecimal()
            shown.append(" ".join(filter(None, ("" if is_digit else str(number), emoji, label))))
        is_question = any(verdict.isdecimal() for verdict, _ in self.choices)
        how = "react, or answer with the number" if by_reaction else "answer with the number"
        or_why = "" if is_question else f", or `/deny {self.id} WHY`"
        return f"{text}\n\n{' · '.join(shown)}: {how}{or_why}."


@dataclass(frozen=True, slots=True)
class Refusal:
    """The subject of a notice about a reply that its chat did not get (`channels.unreached`)."""

    of: ChatPlace
    """The chat of that reply."""
    fate: str
    """What became of it, in words."""
    why: str
    """The reason, as a sentence."""
    places: tuple[ChatPlace, ...] = ()
    """The places that get the notice, one after the other, while each refuses it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An entry of a reply stream: a message to deliver, or an operation."""

    id: str
    """The entry's id on the stream."""
    sid: str
    """The session whose agent has sent the reply; "operator" for an operator's message."""
    turn: str
    """The turn to which the reply belongs."""
    attempt: int
    """The attempt at the turn that has sent the reply."""
    index: int
    """The reply's position among the messages of the turn, or of `call`, from 0."""
    channel_id: str
    """The chat to which the reply goes."""
    thread_id: str | None
    """The thread of that chat."""
    text: str
    """The text to send; empty if the reply has only files, or only marks the end of the turn."""
    is_error: bool
    """Whether the text reports a failure."""
    reply_to_id: str | None
    """The message of the chat to quote."""
    attachments: tuple[Attachment, ...]
    """The files to send; `fleet.blobs.get` returns their content."""
    is_final: bool
    """Whether this is the last reply of its turn."""
    entries: tuple[str, ...]
    """The entries that the turn answers, in its last reply; else empty."""
    call: str | None = None
    """The id of the tool call that has sent the reply; None for a part of the answer."""
    effect: str | None = None
    """The platform's name of an effect with which to show the message."""
    operation: Operation | None = None
    """The operation to do instead of sending a message."""
    origin: str = ""
    """What the reply answers, such as `cron job nightly`, if no person has asked; else empty."""
    status: str = ""
    """The outcome of the turn, in its last reply; else empty."""
    is_silent: bool = False
    """Whether the platform should notify nobody of the message."""
    usage: Mapping[str, Any] | None = None
    """The usage of the turn, in its last reply, if the agent was asked (`session.outcome`)."""
    card: Card | None = None
    """The request that the message shows; without choices, the message replaces the card."""
    asked_by: str | None = None
    """The id of the person who waits for the reply; None if no person has asked."""
    to_person: str | None = None
    """The id of the person to whom alone the message is shown in its chat, if the profile has
    `private_replies`; None for all."""
    refusal: Refusal | None = None
    """The subject, if the reply is a notice about another reply that its chat did not get."""
    is_aside: bool = False
    """Whether the reply is an aside: it is sent during a turn and is no part of its answer."""
    is_notice: bool = False
    """Whether RemoteClaw wrote the text, and not the agent."""
    code_file_lines: int = 0
    """A code block of the text with more lines is shown as its beginning and a file (`code_files`);
    0 for none."""

    @property
    def at_ms(self) -> int:
        """The time at which the reply was put on its stream, in milliseconds on Redis' clock."""
        return int(self.id.partition("-")[0])

    @property
    def is_stoppable(self) -> bool:
        """Whether the reply is a message of an answer, which `/stop` drops while it is not sent."""
        return bool(self.turn and (self.text or self.attachments)) and not (self.call or self.card)

    @property
    def is_apart(self) -> bool:
        """Whether the reply is no part of a turn's answer: an aside, or a tool's message."""
        return self.call is not None or self.is_aside

    @property
    def key(self) -> str:
        """A unique key of this message, for platforms that drop repetitions by key."""
        if self.call is not None:
            return f"{self.call}:{self.index}"
        return f"{self.sid}:{self.turn}:{self.attempt}:{self.index}"


@dataclass(frozen=True, slots=True)
class Part:
    """A message on the platform; a reply is sent as one or several parts."""

    index: int
    """The part's position in the reply, from 0."""
    content: Any = None
    """The adapter's own form of the text; the relay only passes it on. With a `name`, the bytes of
    a file."""
    attachment: Attachment | None = None
    """The file that the part sends; the relay fetches its content."""
    name: str = ""
    """The name of a file that the adapter has made of the reply's text, such as long code."""

    @property
    def file_name(self) -> str:
        """The name of the file that the part sends; empty for a text."""
        return self.attachment.name if self.attachment else self.name


@dataclass(frozen=True, slots=True)
class Sent:
    """An adapter's report about a part that the platform has accepted."""

    message_id: str | None = None
    """The message's id on the platform; None if the platform reports none."""
    has_effect: bool = False
    """Whether the message is shown with the requested effect."""
    kept: Collection[Attachment] = ()
    """The files of the reply that could not be sent, and so stay stored."""


@dataclass(frozen=True, slots=True)
class Place:
    """A chat, or a thread in it."""

    chat: str
    thread: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The state of a running turn, which a preview shows."""

    text: str
    """The partial text of the message that the agent is writing; Markdown."""
    activity: str = ""
    """The running tools, in one line."""
    plan: str = ""
    """The agent's plan, in one line."""


class ChannelAdapter(Protocol):
    """The outgoing side of an account on a chat platform.

    Methods that call the platform raise `PlatformRefused` if it will never accept the request,
    `PlatformAway` or `PlatformBusy` if the request was certainly not carried out, `PlatformUnknown`
    if it may have been, and `AccountRefused` if the account itself is the problem. Any other
    exception counts as `PlatformUnknown`.
    """

    @property
    def key_window_s(self) -> float | None:
        """For how long the platform drops a repetition with the same `Reply.key` and part, in
        seconds; None if it never does, `math.inf` if it always does.

        The time counts from before the first attempt, and a repetition may need a minute to arrive:
        name a minute less than the platform does.
        """

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the parts to send for a reply, the same at each call.

        Empty for a reply that only marks the end of a turn.
        """

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Send a part, with the content of its file; return once the platform has accepted it.

        `is_again` says that an earlier attempt may have arrived, and that the platform has
        forgotten its key. The message then says so.
        """


@runtime_checkable
class LookingAdapter(ChannelAdapter, Protocol):
    """An adapter whose platform can be asked whether it has a message."""

    async def find(
        self, reply: Reply, part: Part, since_ms: int, *, known: Collection[str]
    ) -> Sent | None:
        """Return the message with this part of the reply, sent by this account; None without one.

        Look in the reply's chat and thread, among the messages since `since_ms` (milliseconds since
        1970) whose ids are not `known`, for one that `send()` would have made, with or without
        `is_again`. It is asked for after an attempt with an unknown outcome, before another one.
        `PlatformUnknown` is as good as `PlatformAway` here; after `PlatformRefused`, the part is
        sent again with `is_again`.
        """


@runtime_checkable
class MeteredAdapter(ChannelAdapter, Protocol):
    """An adapter whose platform says in its responses how many calls it still allows."""

    def report_to(self, report: Callable[[Allowance], None]) -> None:
        """Call `report` with what each response says, from now on."""


@runtime_checkable
class LiveAdapter(ChannelAdapter, Protocol):
    """An adapter that shows running turns in previews, because its platform can edit messages."""

    async def preview(self, place: Place, live: Live, *, message_id: str | None) -> str:
        """Show the state of a turn in a silent message; return the message's id.

        If `message_id` is given, edit that message instead of sending one.
        """

    async def replace(self, reply: Reply, part: Part, *, message_id: str) -> Sent:
        """Edit a preview so that it becomes this part of the reply. A repetition has no effect.

        Raises `PlatformRefused` if the preview is gone; the part is then sent as a new message.
        """

    async def remove(self, place: Place, message_id: str) -> None:
        """Remove a preview, unless it is gone already."""

    async def typing(self, place: Place) -> None:
        """Show for some seconds that an answer is being written."""


@runtime_checkable
class OperatingAdapter(ChannelAdapter, Protocol):
    """An adapter that supports operations."""

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """Carry out an operation, within four seconds; return once it is done.

        For `read`, return `messages`, oldest first, each with `id`, `from`, `text` and `at` (in
        milliseconds since 1970); else an empty mapping. Raises `Unsupported` if the platform lacks
        the operation; for `read`, the relay then returns the messages that passed through it.
        Raises `PlatformRefused` if the platform refuses it. A failed operation is never retried.
        """
