"""Messages of a chat, and their files, in the same form for every platform."""

import html
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from remoteclaw.clock import named_zone
from remoteclaw.errors import MessageRefused
from remoteclaw.limits import MAX_ATTACHMENT_BYTES, MAX_ATTACHMENTS, MAX_ATTACHMENTS_BYTES

__all__ = [
    "DEFAULT_ACCOUNT",
    "MAX_ATTACHMENTS",
    "MAX_ATTACHMENTS_BYTES",
    "MAX_ATTACHMENT_BYTES",
    "MAX_FILE_NAME_BYTES",
    "MAX_NAME_CHARS",
    "MAX_TEXT_BYTES",
    "MAX_TIMESTAMP_MS",
    "Attachment",
    "ChannelMessage",
    "ChatKind",
    "ChatPlace",
    "Image",
    "Reaction",
    "channel_name",
    "file_name",
    "is_blank",
    "person",
    "shows_nothing",
]

#: The maximum size of a message's text, in bytes of UTF-8.
#: Every CLI that was measured takes prompts of 300 KB; chat platforms have far lower limits.
MAX_TEXT_BYTES = 512 * 1024

#: The maximum length of an id, in characters: the ids of platforms are shorter than 256.
MAX_ID_CHARS = 512

#: The pattern of a channel's name. It has no capitals: rights, settings and streams are looked up
#: by the name, so a channel must have one spelling only.
_CHANNEL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")

#: The maximum length of a person's name, which is cut, and of a time zone's, which is dropped if it
#: is longer; in characters. The longest real zone has 32.
MAX_NAME_CHARS, MAX_ZONE_CHARS = 512, 64

#: The earlier messages of a thread are cut to this many characters, from their end.
MAX_CONTEXT_CHARS = 32_000

#: The text that a message quotes is cut to this many characters, from its beginning.
MAX_QUOTED_CHARS = 2000

#: The maximum length of a file's name, in bytes: file systems take 255, and a number may be put
#: before it.
MAX_FILE_NAME_BYTES = 200

#: The latest valid timestamp, in milliseconds since 1970: the year 3000. JSON readers, Redis and
#: Python's dates have later limits.
MAX_TIMESTAMP_MS = 32_503_680_000_000


class Attachment(BaseModel):
    """A file of a message or a reply; its content is stored separately."""

    # A newer RemoteClaw may add fields; an older adapter has to ignore them and deliver the file.
    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """The file's name, as `file_name()` makes it safe."""
    mime_type: str = Field(pattern=r"^[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,100}$")
    """The type of the content, as `files.mime_type_of()` detects it."""
    size: int = Field(ge=0, le=MAX_ATTACHMENT_BYTES)
    """The length of the content in bytes."""
    blob: str = Field(pattern=r"^[0-9a-f]{32}$")
    """The name under which the session stores the content."""
    is_quoted: bool = False
    """Whether the file belongs to the message that a person quotes."""

    @field_validator("name")
    @classmethod
    def _repair_name(cls, value: str) -> str:
        return file_name(value)


def file_name(wanted: str) -> str:
    """Return a safe name for a file that was sent, as close to `wanted` as possible.

    The path before the last slash or backslash is removed, and so are control and format characters
    and leading dots and dashes, which would hide the file or turn its name into an option. An empty
    name becomes "file". A name that is too long keeps its ending.
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


#: The Unicode categories of characters that are not allowed in ids and names of files: control
#: characters, format characters such as marks of direction, surrogates, line ends.
_NOT_IN_NAMES = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
#: The longest ending, with its dot, that a shortened name of a file keeps, in bytes.
MAX_ENDING_BYTES = 16


#: The Unicode categories of characters that are not visible by themselves: control and format
#: characters, spaces, and marks that belong to the character before them.
_INVISIBLE = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zs", "Zl", "Zp", "Mn", "Me"))
#: Characters of other categories that are blank, too: fillers.
_FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
#: Markdown's own characters, and code that consists of them and is shown.
_MARKUP = frozenset("*_~`#>|-+")
_CODE = re.compile(r"`[^`]*[*_~#>|+-][^`]*`")


def is_blank(text: Iterable[str]) -> bool:
    """Whether a text has no visible character, but for example spaces or zero-width characters."""
    return all(c in _FILLERS or unicodedata.category(c) in _INVISIBLE for c in text)


def shows_nothing(markdown: str) -> bool:
    """Whether a Markdown text shows nothing, because it is blank or has only markup."""
    shown = html.unescape(markdown) if "&" in markdown else markdown
    return is_blank(c for c in shown if c not in _MARKUP) and not _CODE.search(markdown)


def channel_name(value: str) -> str:
    """Return `value` if it is a valid name of a channel; raise ValueError otherwise."""
    if not _CHANNEL_NAME.fullmatch(value):
        raise ValueError(
            f"has the channel {value[:40]!a}: a channel's name has small letters a-z, digits, - "
            "and _, begins with a letter and has 31 characters at most, such as telegram"
        )
    return value


def person(channel: str, user: str) -> str:
    """Return the name of a person in entries, CHANNEL:ID."""
    return f"{channel}:{user}"


#: The name of the account that is configured in the channel's own table, without a name.
DEFAULT_ACCOUNT = "default"


@dataclass(frozen=True, slots=True)
class ChatPlace:
    """A chat of an account, or a thread of that chat."""

    provider: str
    account: str
    chat: str
    thread: str | None = None

    @classmethod
    def parse(cls, text: str, thread: str | None = None) -> Self:
        """Return the place written as CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT.

        Raises ValueError for any other `text`.
        """
        name, _, chat = text.partition(":")
        provider, slash, account = name.partition("/")
        if not chat or (slash and not account):
            raise ValueError(f"is {text!r}: write CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT")
        return cls(channel_name(provider), account or DEFAULT_ACCOUNT, chat, thread)

    def __str__(self) -> str:
        """Return the place in the notation that `parse()` reads, followed by the thread."""
        account = "" if self.account == DEFAULT_ACCOUNT else f"/{self.account}"
        thread = "" if self.thread is None else f", thread {self.thread}"
        return f"{self.provider}{account}:{self.chat}{thread}"


#: The kind of a chat. A thread, or topic, of a group or a direct chat is of the kind "thread".
ChatKind = Literal["direct", "group", "thread"]


class Reaction(BaseModel):
    """A person's reaction, an emoji, to a message that RemoteClaw sent."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    from_: str = Field(alias="from")
    user_name: str | None = None
    emoji: str
    message_id: str
    text: str | None = None
    """The text of that message, where it is still known."""


class ChannelMessage(BaseModel):
    """One message of a chat, in the same form for every platform.

    `provider` is the kind of channel (web, telegram), `account` the bot or login that received
    the message, `channel_id` the chat, `from_` the sender's immutable id, `thread_id` a thread of
    the chat, and `reply_to_id` the id of a message that this message quotes, which does not make a
    thread.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str
    text: str
    from_: str = Field(alias="from")
    channel_id: str
    provider: str
    account: str = "default"
    timestamp: int
    """The time at which the message was sent, in milliseconds since 1970 UTC."""
    thread_id: str | None = None
    reply_to_id: str | None = None
    user_name: str | None = None
    timezone: str | None = None
    """The sender's IANA time zone, where the channel knows it."""
    thread_context: str | None = None
    """Earlier messages of the thread, for an agent that begins a conversation in it."""
    attachments: tuple[Attachment, ...] = ()
    """The files of the message. A message with files may have no text."""
    quoted: str | None = None
    """The text of the quoted message, where the platform provides it."""
    replaces: str | None = None
    """The id of the message of which this one is an edited version; None for a new message."""
    reactions: tuple[Reaction, ...] = ()
    """The reactions of people since the previous message."""
    chat_kind: ChatKind | None = None
    """The kind of the chat; None where the channel doesn't know it."""
    is_addressed: bool | None = None
    """Whether the message is addressed to the agent: in a direct chat, or by a mention, a reply to
    the agent or a command; None where the channel doesn't know it."""
    is_forwarded: bool | None = None
    """Whether the message has a text from elsewhere: it is forwarded, or quotes another chat."""

    @property
    def has_text_of_others(self) -> bool:
        """Whether the message shows the agent a text that its sender may not have written."""
        is_direct = self.chat_kind == "direct" or self.channel_id == self.from_
        is_quoting = self.quoted or any(file.is_quoted for file in self.attachments)
        return bool(self.thread_context or self.is_forwarded or (is_quoting and not is_direct))

    @property
    def place(self) -> ChatPlace:
        """The chat or thread of the message."""
        return ChatPlace(self.provider, self.account, self.channel_id, self.thread_id)

    @classmethod
    def checked(cls, **fields: Any) -> Self:
        """Return a message with these fields; raise `MessageRefused` if one is invalid."""
        try:
            return cls(**fields)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]).rstrip("_")
            why = first["msg"].removeprefix("Value error, ")
            problem = " ".join(filter(None, (where, why)))
            raise MessageRefused(f"The message was refused: {problem}.") from None

    @field_validator(
        *("id", "from_", "channel_id", "provider", "account", "thread_id"),
        *("reply_to_id", "replaces"),
    )
    @classmethod
    def _check_id(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value:
            raise ValueError("is empty")
        if len(value) > MAX_ID_CHARS:
            raise ValueError(f"has {len(value)} characters; an id has {MAX_ID_CHARS} at most")
        for character in value:
            # With an invisible character, two different ids look the same.
            if unicodedata.category(character) in _NOT_IN_NAMES:
                raise ValueError(f"contains U+{ord(character):04X}, which no id may contain")
        return value

    @field_validator("provider")
    @classmethod
    def _check_provider(cls, value: str) -> str:
        return channel_name(value)

    # An invalid name, zone or time is repaired or dropped: it is no reason to refuse the message.

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

    @field_validator("quoted", mode="before")
    @classmethod
    def _repair_quoted(cls, value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        return value[:MAX_QUOTED_CHARS].encode("utf-8", "replace").decode("utf-8") or None

    @field_validator("timestamp")
    @classmethod
    def _repair_time(cls, value: int) -> int:
        return min(max(value, 0), MAX_TIMESTAMP_MS)

    @field_validator("text", mode="before")
    @classmethod
    def _check_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        # A lone surrogate can't be stored, so it is replaced; refusing the message would be worse.
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
            raise ValueError(f"it has {count} attachments; the limit is {MAX_ATTACHMENTS}")
        size = sum(attachment.size for attachment in self.attachments)
        if size > MAX_ATTACHMENTS_BYTES:
            raise ValueError(
                f"it has attachments of {size:,} bytes; the limit is {MAX_ATTACHMENTS_BYTES:,}: "
                "send them in several messages"
            )
        return self


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is passed to an agent with its prompt."""

    mime_type: str
    data: bytes
