"""The request bodies that a program posts to the gateway: messages and their files."""

import base64
import binascii

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from remoteclaw.clock import now_ms
from remoteclaw.errors import PlatformRefused
from remoteclaw.host.fetch import fetch
from remoteclaw.host.files import UnfitFile
from remoteclaw.protocols import Choice, Incoming, IncomingFile

#: The longest wait for an answer, in seconds: proxies close a silent connection after a minute or
#: two. The program asks again with the same message.
MAX_WAIT_S = 110

_MODEL_CONFIG = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True)


class PostedFile(BaseModel):
    """A file, given by its content or by its public URL."""

    model_config = _MODEL_CONFIG

    name: str
    mime_type: str = "application/octet-stream"
    content: str | None = None
    """In base64. The whole request has 2 MB at most."""
    url: str | None = None

    @model_validator(mode="after")
    def _check_source(self) -> "PostedFile":
        if (self.content is None) == (self.url is None):
            raise ValueError("needs content or url, one of them")
        return self


class PostedAnswer(BaseModel):
    """A person's answer to a request."""

    model_config = _MODEL_CONFIG

    request: str = Field(min_length=1, max_length=64)
    verdict: str = Field(pattern="^(once|conversation|edits|deny|words|[1-9])$")
    words: str = Field(default="", max_length=1000)
    """The reason of a denial, or the answer to a question."""


class PostedMessage(BaseModel):
    """The body of an HTTP request: one message."""

    model_config = _MODEL_CONFIG

    id: str = Field(min_length=1, max_length=200)
    """Unique within the chat. A message with a known id is ignored, for a week."""
    chat: str = Field(min_length=1, max_length=200)
    from_: str = Field(alias="from", min_length=1, max_length=200)
    """The platform's id of the sender, never a name that people choose."""
    text: str = ""
    name: str | None = None
    thread: str | None = None
    is_group: bool = False
    is_for_us: bool = True
    """In a group: whether the message mentions the account or answers one of its messages."""
    at: int | None = Field(default=None, ge=0)
    """When the message was written, in milliseconds since 1970; now if it is None."""
    reply_to: str | None = None
    quoted: str = ""
    quoted_files: tuple[PostedFile, ...] = ()
    """The files of the message `replyTo`."""
    is_forwarded: bool = False
    """Whether the content comes from elsewhere: it is forwarded, or quotes another chat."""
    replaces: str | None = None
    """For an edit: the id of the message that `text` and `files` replace."""
    deletes: str | None = Field(default=None, max_length=200)
    """Instead of a message: the id of a message that its sender has deleted."""
    reaction: str | None = Field(default=None, max_length=64)
    """Instead of a message: the sender's current reaction to `replyTo`, an emoji; empty if the
    reaction was removed."""
    answer: PostedAnswer | None = None
    """Instead of a message: the sender's choice on a `card`."""
    files: tuple[PostedFile, ...] = ()
    wait: int | None = Field(default=None, ge=0, le=MAX_WAIT_S)
    """How long the response waits for the answer, in seconds; None to deliver it to the program's
    URL. It is in the body, and so signed: nobody can add it to a request of others."""

    @model_validator(mode="after")
    def _check_content(self) -> "PostedMessage":
        others = (self.reaction, self.answer, self.deletes)
        if not self.text.strip() and not self.files and all(other is None for other in others):
            raise ValueError("needs text or files")
        if self.replaces == self.id:
            raise ValueError("an edit needs an id of its own, beside replaces")
        if self.wait is not None and any(other is not None for other in (*others, self.replaces)):
            raise ValueError("wait is only for new messages")
        return self

    def incoming(self) -> Incoming:
        """Return the message in the form that adapters return."""
        files = tuple(
            IncomingFile(
                str(number),
                file.name,
                file.mime_type,
                lasting_id=file.url or file.content or "",
            )
            for number, file in enumerate((*self.files, *self.quoted_files))
        )
        return Incoming(
            id=self.id,
            chat=self.chat,
            thread=self.thread,
            is_group=self.is_group,
            sender=self.from_,
            sender_name=self.name,
            at_ms=now_ms() if self.at is None else self.at,
            text=self.text,
            files=files[: len(self.files)],
            reply_to=self.reply_to,
            quoted=self.quoted,
            quoted_files=files[len(self.files) :],
            is_forwarded=self.is_forwarded,
            replaces=self.replaces,
            deletes=self.deletes,
            reaction=self.reaction,
            choice=Choice(**self.answer.model_dump()) if self.answer else None,
            is_for_us=self.is_for_us,
        )

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file, also of a quoted one. Raises `PlatformRefused`."""
        posted = (*self.files, *self.quoted_files)[int(file.id)]
        try:
            if posted.url is not None:
                _, content = await fetch(posted.url)
                return content
            return base64.b64decode(posted.content or "", validate=True)
        except UnfitFile as unfit:
            raise PlatformRefused(f"{unfit}.") from None
        except binascii.Error:
            raise PlatformRefused("its content is no base64.") from None
