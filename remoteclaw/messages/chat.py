"""Messages of a chat, and their files, in the same form for every platform."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from remoteclaw.clock import named_zone
from remoteclaw.errors import MessageRefused
from remoteclaw.limits import MAX_ATTACHMENT_BYTES, MAX_ATTACHMENTS, MAX_ATTACHMENTS_BYTES

__all__ = [
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
    "Image",
    "Reaction",
    "channel_name",
    "file_name",
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

#: How much is kept of the words that a message quotes, in characters: their beginning.
MAX_QUOTED_CHARS = 2000

#: The longest name of a file, in bytes: what file systems take, with room for a number before it.
MAX_FILE_NAME_BYTES = 200

#: The latest time that is believed, in milliseconds since 1970: the year 3000. JSON readers, Redis
#: and Python's dates each have a limit of their own far behind it.
MAX_TIMESTAMP_MS = 32_503_680_000_000


class Attachment(BaseModel):
    """A file that comes with a message or a reply; its content is kept apart."""

    # A newer RemoteClaw may say more of it: an adapter that can't read that must not stop.
    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """A name without a path, or anything that a terminal or a file system would obey."""
    mime_type: str = Field(pattern=r"^[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,100}$")
    """Its type, as `files.mime_type_of()` tells."""
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


#: The kind of a chat; a thread, or topic, is one wherever it is.
ChatKind = Literal["direct", "group", "thread"]


class Reaction(BaseModel):
    """How a person reacts to a message of ours."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    from_: str = Field(alias="from")
    user_name: str | None = None
    emoji: str
    message_id: str
    text: str | None = None
    """The words of that message, where they are still known."""


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
    """The time when it was sent, in milliseconds since 1970 UTC."""
    thread_id: str | None = None
    reply_to_id: str | None = None
    user_name: str | None = None
    timezone: str | None = None
    """The sender's IANA time zone, where the channel knows it."""
    thread_context: str | None = None
    """Earlier messages of the thread, for an agent that begins a conversation in it."""
    attachments: tuple[Attachment, ...] = ()
    """The files that came with it. With one, there may be no text."""
    quoted: str | None = None
    """The words of the message that is quoted, where the platform tells them."""
    replaces: str | None = None
    """Of an edited message: the id of the one that it replaces."""
    reactions: tuple[Reaction, ...] = ()
    """What people have said by an emoji alone since the message before."""
    chat_kind: ChatKind | None = None
    """The kind of chat that it was written in; None where the channel doesn't know it."""
    is_addressed: bool | None = None
    """Whether it is said to the agent: in a direct chat, or by a mention, an answer to the agent or
    a command; None where the channel doesn't know it."""

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
class Image:
    """A picture that is given to an agent with its prompt."""

    mime_type: str
    data: bytes
