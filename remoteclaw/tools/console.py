"""Methods of the console: a chat in a terminal, as a client of the gateway."""

from typing import Annotated

from pydantic import Field

from remoteclaw.tools.base import Id, Method, Params, Result
from remoteclaw.tools.sessions import SessionKeyText

__all__ = ["METHODS"]

Blob = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
#: What the vocabulary takes (`messages.MAX_TEXT_BYTES`), which says so in its own words.
MAX_CHARS = 1024 * 1024


class OpenParams(Params):
    agent_id: Id | None = None
    """The agent to talk to; else the first that is configured."""
    session_key: SessionKeyText | None = None
    """Instead of an agent: a session of any channel."""


class Opened(Result):
    session_key: str
    sid: str
    agent: str
    runtime: str
    """The agent's CLI."""
    model: str | None
    """The model that it is to use; None for the CLI's own choice."""
    workspace: str
    """The directory in which it works."""
    permissions: str
    user: str
    """Under which name the person writes."""
    is_console: bool
    """Whether its replies come as `chat.message`; those of another channel's session go there, and
    come here with `session.outcome`."""
    state: str
    """idle, scheduled or running."""
    waiting: int
    """How many messages have no outcome yet."""
    commands: tuple[tuple[str, str], ...]
    """The commands that may be written here, each with what it does."""


class SentFile(Params):
    name: str
    mime_type: str
    size: int
    blob: Blob


class SendParams(Params):
    session_key: SessionKeyText
    message: Annotated[str, Field(max_length=MAX_CHARS)]
    message_id: Id
    """The message's own id: the same one again is the same message."""
    attachments: Annotated[list[SentFile], Field(max_length=10)] = Field(default_factory=list)
    """Files that were stored before, by `POST /files`."""


class Sent(Result):
    entry: str | None = None
    """The entry that the message became; its outcome names it. None if it was a command."""
    answer: str | None = None
    """The answer to a command, as Markdown."""
    ahead: int = 0
    """How many messages have no outcome yet, besides this one."""
    session_key: str | None = None
    """The session that the chat is about from now on, if the command has changed it."""


class ShownParams(Params):
    key: Annotated[str, Field(min_length=1, max_length=500)]
    """The `key` of a `chat.message`."""
    unsaved: Annotated[list[Blob], Field(max_length=100)] = Field(default_factory=list)
    """The files that could not be saved: they are kept."""


class Shown(Result):
    key: str


METHODS = (
    Method(
        name="chat.open",
        description="Open a chat in a terminal: say what it is, and have its messages and the "
        "session's events sent over this connection.",
        params=OpenParams,
        result=Opened,
        scope="write",
    ),
    Method(
        name="chat.send",
        description="Give the chat's agent what the person has written; answer a command at once.",
        params=SendParams,
        result=Sent,
        scope="write",
        effect="session",
    ),
    Method(
        name="chat.shown",
        description="Say that a message of the chat was shown, so that it is not sent again.",
        params=ShownParams,
        result=Shown,
        scope="write",
    ),
)
