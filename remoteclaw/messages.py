"""Messages: the types that cross from chat to agent and back.

Messages that cross a process boundary are pydantic models; what lives inside one process is a
frozen dataclass.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import quote, unquote

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from remoteclaw.clock import named_zone
from remoteclaw.errors import ErrorCategory, MessageRefused
from remoteclaw.events import AgentRunResult

__all__ = [
    "OWN_SERVER",
    "AgentDeliveryResult",
    "Attachment",
    "ChannelMessage",
    "Deliver",
    "Entry",
    "Image",
    "McpServerConfig",
    "McpSideEffects",
    "Origin",
    "Provenance",
    "ReplyPayload",
    "SentTarget",
    "SessionKey",
    "ToolCall",
    "Turn",
    "channel_name",
    "hops_of",
    "people_of",
    "person",
    "stream_order",
    "via_of",
]

#: The largest text that is accepted, in bytes of UTF-8.
#: Every CLI that was measured takes prompts of 300 KB; chat platforms stop far below.
MAX_TEXT_BYTES = 512 * 1024

#: The longest id that is accepted, in characters: platforms stay below 256.
MAX_ID_CHARS = 512

#: A channel's name has one spelling: rights, settings and streams go by it.
_CHANNEL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")

#: The longest name of a person that is kept, in characters, and of a time zone: the longest real
#: one has 32.
MAX_NAME_CHARS, MAX_ZONE_CHARS = 512, 64

#: How much is kept of what was said before in a thread, in characters: its end.
MAX_CONTEXT_CHARS = 32_000

#: How many files one message may have, how large each may be, and all together, in bytes. Chat
#: platforms give bots files of 20 to 25 MB.
MAX_ATTACHMENTS = 10
MAX_ATTACHMENT_BYTES = 20 * 1024 * 1024
MAX_ATTACHMENTS_BYTES = 40 * 1024 * 1024

#: The longest name of a file, in bytes: what file systems take, with room for a number before it.
MAX_FILE_NAME_BYTES = 200

#: The latest time that is believed, in milliseconds since 1970: the year 3000. JSON readers, Redis
#: and Python's dates each have a limit of their own far behind it.
MAX_TIMESTAMP_MS = 32_503_680_000_000


# ---------------------------------------------------------------------------------------------
# What comes in


class Attachment(BaseModel):
    """A file that comes with a message or a reply; its content is kept apart."""

    # A newer RemoteClaw may say more of it: an adapter that can't read that must not stop.
    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """What people call it: no path, nothing that a terminal or a file system would obey."""
    mime_type: str = Field(pattern=r"^[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,100}$")
    """What it is, as `files.mime_type_of()` tells."""
    size: int = Field(ge=0, le=MAX_ATTACHMENT_BYTES)
    """Its length in bytes."""
    blob: str = Field(pattern=r"^[0-9a-f]{32}$")
    """Under which name its session keeps the content."""

    @field_validator("name")
    @classmethod
    def _repair_name(cls, value: str) -> str:
        return file_name(value)


def file_name(wanted: str) -> str:
    """Return a safe name for a file that was sent, as close to the wanted one as possible.

    What stands before the last slash or backslash goes, and so do control and format characters,
    and what would hide the file or make an option of it. No name becomes "file"; a long one keeps
    its ending.
    """
    last = wanted.encode("utf-8", "replace").decode().replace("\\", "/").rsplit("/", 1)[-1]
    kept = "".join(c for c in last if unicodedata.category(c) not in _NOT_IN_NAMES)
    kept = " ".join(kept.split()).lstrip("-. ")
    if not kept:
        return "file"
    if len(kept.encode()) <= MAX_FILE_NAME_BYTES:
        return kept
    stem, dot, ending = kept.rpartition(".")
    ending = dot + ending if stem and len(ending.encode()) <= MAX_ENDING_BYTES else ""
    room = MAX_FILE_NAME_BYTES - len(ending.encode())
    return (stem or kept).encode()[:room].decode("utf-8", "ignore").rstrip() + ending


#: What no id and no name of a file has: controls, formats such as marks of direction, surrogates,
#: line ends.
_NOT_IN_NAMES = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
#: The longest ending that a shortened name keeps, in bytes.
MAX_ENDING_BYTES = 16


def channel_name(value: str) -> str:
    """Return the name of a channel; raises ValueError for what is none, or another spelling."""
    if not _CHANNEL_NAME.fullmatch(value):
        raise ValueError(
            f"has the channel {value[:40]!a}: a channel's name has small letters a-z, digits, - "
            "and _, begins with a letter and has 31 characters at most, such as telegram"
        )
    return value


class ChannelMessage(BaseModel):
    """One message of a chat, in the same form for every platform.

    The field names follow the platforms' own ideas: `provider` is the kind of channel (console,
    telegram), `account` the bot or login that received the message, `channel_id` the chat,
    `from_` the sender's immutable id, `thread_id` a thread of the chat, and `reply_to_id` a
    message that is quoted (which is not a thread).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str
    text: str
    from_: str = Field(alias="from")
    channel_id: str
    provider: str
    account: str = "default"
    timestamp: int
    """When it was sent, in milliseconds since 1970 UTC."""
    thread_id: str | None = None
    reply_to_id: str | None = None
    user_name: str | None = None
    timezone: str | None = None
    """The sender's IANA time zone, where the channel knows it."""
    thread_context: str | None = None
    """What was said in the thread before, for an agent that begins a conversation in it."""
    attachments: tuple[Attachment, ...] = ()
    """The files that came with it. With one, there may be no text."""

    @classmethod
    def checked(cls, **fields: Any) -> Self:
        """Return the message, or raise `MessageRefused` with one sentence that says why not."""
        try:
            return cls(**fields)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]).rstrip("_")
            why = first["msg"].removeprefix("Value error, ")
            problem = " ".join(filter(None, (where, why)))
            raise MessageRefused(f"The message was refused: {problem}.") from None

    @field_validator("id", "from_", "channel_id", "provider", "account", "thread_id", "reply_to_id")
    @classmethod
    def _check_id(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value:
            raise ValueError("is empty")
        if len(value) > MAX_ID_CHARS:
            raise ValueError(f"has {len(value)} characters; an id has {MAX_ID_CHARS} at most")
        for character in value:
            # With a character that is not seen, two ids look like one.
            if unicodedata.category(character) in _NOT_IN_NAMES:
                raise ValueError(f"contains U+{ord(character):04X}, which no id may contain")
        return value

    @field_validator("provider")
    @classmethod
    def _check_provider(cls, value: str) -> str:
        return channel_name(value)

    # What only adorns a message must not cost it: a name, a zone or a time that is nonsense is
    # repaired or dropped.

    @field_validator("user_name", mode="before")
    @classmethod
    def _repair_name(cls, value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        value = value[:MAX_NAME_CHARS].encode("utf-8", "replace").decode("utf-8")
        kept = (c for c in value if unicodedata.category(c) != "Cc")
        return "".join(kept).strip() or None

    @field_validator("timezone", mode="before")
    @classmethod
    def _repair_zone(cls, value: Any) -> str | None:
        if not isinstance(value, str) or not 0 < len(value) <= MAX_ZONE_CHARS:
            return None
        zone = named_zone(value)
        return zone.key if zone else None

    @field_validator("thread_context", mode="before")
    @classmethod
    def _repair_context(cls, value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        return value[-MAX_CONTEXT_CHARS:].encode("utf-8", "replace").decode("utf-8") or None

    @field_validator("timestamp")
    @classmethod
    def _repair_time(cls, value: int) -> int:
        return min(max(value, 0), MAX_TIMESTAMP_MS)

    @field_validator("text", mode="before")
    @classmethod
    def _check_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        # A lone surrogate can't be stored; losing one broken character beats losing the message.
        value = value.encode("utf-8", "replace").decode("utf-8")
        size = len(value.encode())
        if size > MAX_TEXT_BYTES:
            raise ValueError(
                f"has {size:,} bytes; the limit is {MAX_TEXT_BYTES:,}: send it in parts"
            )
        return value

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if not self.text.strip() and not self.attachments:
            raise ValueError("text is empty")
        if len(self.attachments) > MAX_ATTACHMENTS:
            count = len(self.attachments)
            raise ValueError(f"it has {count} attachments; {MAX_ATTACHMENTS} are the most")
        size = sum(attachment.size for attachment in self.attachments)
        if size > MAX_ATTACHMENTS_BYTES:
            raise ValueError(
                f"it has attachments of {size:,} bytes; the limit is {MAX_ATTACHMENTS_BYTES:,}: "
                "send them in several messages"
            )
        return self


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Who talks to which agent, and where: one conversation.

    Its text ends with the `channel:user:thread` that agents see, scoped by agent, provider and
    account. A session that another one has started for a task has a fourth part, which no message
    of a chat can have.
    """

    agent: str
    provider: str
    account: str
    channel_id: str
    user: str
    thread: str | None = None
    task: str | None = None
    """The name of the task that it was started for, in the place of the session that started it."""

    @classmethod
    def of(cls, message: ChannelMessage, *, agent: str) -> Self:
        """Return the key of the conversation that a message belongs to."""
        return cls(
            agent=agent,
            provider=message.provider,
            account=message.account,
            channel_id=message.channel_id,
            user=message.from_,
            thread=message.thread_id,
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the key whose `str()` is `text`; raises ValueError on anything else."""
        agent, provider, account, rest = text.split("/")
        channel_id, user, thread, *task = rest.split(":")
        if len(task) > 1 or task == [""]:
            raise ValueError("too many parts to unpack")
        return cls(
            agent=unquote(agent),
            provider=unquote(provider),
            account=unquote(account),
            channel_id=unquote(channel_id),
            user=unquote(user),
            thread=None if thread == "_" else unquote(thread),
            task=unquote(task[0]) if task else None,
        )

    def __str__(self) -> str:
        """Return the key as text; `parse()` reads it."""
        scope = "/".join(_encode(part) for part in (self.agent, self.provider, self.account))
        return f"{scope}/{self.conversation}"

    @property
    def conversation(self) -> str:
        """`channel:user:thread`, with `_` for no thread; behind it the task, if it has one."""
        thread = "_" if self.thread is None else _encode(self.thread)
        task = "" if self.task is None else f":{_encode(self.task)}"
        return f"{_encode(self.channel_id)}:{_encode(self.user)}:{thread}{task}"

    @property
    def sid(self) -> str:
        """128 bits of hash as 32 hexadecimal digits: the session's name in keys, paths and logs."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:32]


def _encode(part: str) -> str:
    # "_" alone means "no thread", so a thread that is really called "_" is written %5F.
    return "%5F" if part == "_" else quote(part, safe="")


#: The destination of a reply: the channel's reply stream, the caller that waits for the outcome, or
#: as a result the session that has started this one.
Deliver = Literal["channel", "caller", "parent"]
#: Who wrote an entry: a person in a chat, another session's agent, the clock, a session that was
#: started for a task, as its result; or an operator, who ends the conversation with it, and whose
#: text says why.
Origin = Literal["chat", "session", "cron", "result", "operator"]


class Provenance(BaseModel):
    """Where an entry comes from that another session has written."""

    # A newer RemoteClaw may say more.
    model_config = ConfigDict(frozen=True, extra="ignore")

    by: str
    """The key of that session."""
    via: tuple[str, ...] = ()
    """The ids of the sessions whose turns have led here, oldest first: each waits for this turn, or
    gets its result."""
    hops: int = 0
    """How many turns there were since a person, or the clock, wrote something."""
    run: str | None = None
    """Of a result: the name of what has ended, as it was given when it began."""
    status: str | None = None
    """Of a result: how it ended, as outcomes say it."""
    label: str | None = None
    """Of a result: the label of its session, if that has one."""
    parent: str | None = None
    """Of a task: the key of the session that gets its result."""


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
    stopped_below: int = 0
    """The same of the sessions that this one has started: nothing is said in the chat of these."""
    people: tuple[str, ...] = ()
    """Of what no person has written: the people on whose behalf it is, each as CHANNEL:ID. Their
    rights are looked up when it is answered."""
    unreadable: str = ""
    """Of a damaged entry: why it can't be read. Its message only says where to answer it."""

    @property
    def at_ms(self) -> int:
        """When it was accepted, on Redis' clock."""
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


def via_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the ids of the sessions that wait for the turn of these entries, or get its result."""
    known = (entry.provenance.via for entry in entries if entry.provenance)
    return tuple(dict.fromkeys(sid for via in known for sid in via))


def hops_of(entries: Iterable[Entry]) -> int:
    """Return how many turns led to these entries since a person, or the clock, wrote something."""
    return min((entry.provenance.hops if entry.provenance else 0 for entry in entries), default=0)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the agent is asked in one go: a list of entries, never joined text."""

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
    def reference(self) -> str:
        """The id that people see and that `remoteclaw sessions trace` takes."""
        return f"{self.session.sid[:8]}-{self.id}"


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that is given to an agent with its prompt."""

    mime_type: str
    data: bytes


# ---------------------------------------------------------------------------------------------
# What an agent says


# ---------------------------------------------------------------------------------------------
# What goes out


@dataclass(frozen=True, slots=True)
class ReplyPayload:
    """One message for the chat."""

    text: str
    index: int = 0
    """Its place among the turn's messages, from 0."""
    is_error: bool = False
    reply_to_id: str | None = None
    """The message of the chat that it is to quote, where the agent asked for that."""
    is_ours: bool = False
    """Whether these are RemoteClaw's own words, and not the agent's."""
    attachments: tuple[Attachment, ...] = ()
    """The files that go with it. With one, there may be no text."""
    delivered: bool = False
    """True once a callback took it: it must not be sent again."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool that the agent used in a turn, in short."""

    name: str
    input: str
    """Its arguments as JSON, the first 300 characters."""
    output: str = ""
    """What came back, the first 300 characters."""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class SentTarget:
    """Where a messaging tool sent something during a turn."""

    tool: str
    provider: str
    account_id: str | None = None
    to: str | None = None


@dataclass(frozen=True, slots=True)
class McpSideEffects:
    """What the turn's tools did besides answering."""

    sent_texts: tuple[str, ...] = ()
    sent_media_urls: tuple[str, ...] = ()
    sent_targets: tuple[SentTarget, ...] = ()
    cron_adds: int = 0


@dataclass(frozen=True, slots=True)
class AgentDeliveryResult:
    """What `ChannelBridge.handle()` returns."""

    payloads: tuple[ReplyPayload, ...]
    run: AgentRunResult
    mcp: McpSideEffects
    error: str | None = None
    """What the CLI or RemoteClaw said about a failure, for logs; people read the payloads."""
    error_category: ErrorCategory | None = None
    retry_at_ms: int | None = None
    """When the provider takes requests again, in milliseconds since 1970, where it says so."""
    steered: tuple[str, ...] = ()
    """The ids of the entries that came during the turn and that the agent took up."""
    answered: tuple[str, ...] = ()
    """The ids of the entries whose answer was complete before another one began: an error is not
    about them."""
    is_silent: bool = False
    """Whether the agent chose to say nothing."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that it used, in their order, the last 200."""


#: How agents know RemoteClaw's own MCP server.
OWN_SERVER = "remoteclaw"


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """An MCP server that the agent gets: a program to start (stdio) or an address (HTTP)."""

    command: str | None = None
    """The program to start."""
    args: tuple[str, ...] = ()
    """Its arguments. Everybody on the machine can read them: no secrets here."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables added to its environment."""
    url: str | None = None
    """The address of a server that runs already."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers sent with every request, such as a token."""

    def __post_init__(self) -> None:
        """Refuse a server that is neither or both."""
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either a command or a url")
        if self.url is not None and (self.args or self.env):
            raise ValueError("has a url, so args and env mean nothing: leave them out")
        if self.command is not None and self.headers:
            raise ValueError("has a command, so headers mean nothing: leave them out")
