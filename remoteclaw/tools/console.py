"""Methods of the console: a chat in a terminal, as a client of the gateway."""

from typing import Annotated, Any, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, Params, Result
from remoteclaw.tools.sessions import MAX_WAIT_S, SessionKeyText

Blob = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
#: What the vocabulary takes (`messages.MAX_TEXT_BYTES`), which says so in its own words.
MAX_CHARS = 1024 * 1024


class Sender(Params):
    """Who writes on a channel, and where."""

    channel: Id
    from_: Annotated[Id, Field(validation_alias="from", serialization_alias="from")]
    to: Id | None = None
    """The chat; else the sender's own."""
    account: Id = "default"
    thread_id: Id | None = None


class OpenParams(Params):
    agent_id: Id | None = None
    """The agent to talk to; else the first that is configured."""
    session_key: SessionKeyText | None = None
    """Instead of an agent: a session of any channel."""
    sender: Sender | None = None
    """Instead of the person at this terminal: another sender."""
    follow: Literal["chat", "session", "nothing"] = "chat"
    """What comes over this connection from now on: the chat's messages and the session's events,
    those events alone, or nothing."""


class Opened(Result):
    session_key: str
    sid: str
    agent: str
    model: str | None
    """The model that it is to use; None for the CLI's own choice."""
    workspace: str
    """The directory in which it works."""
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
    to_caller: bool = False
    """Have the reply stand in the message's outcome alone, which `chat.outcome` returns, also
    where the session is a console's."""
    is_background: bool = False
    """Wait behind what people send."""


class ConsoleSent(Result):
    entry: str | None = None
    """The entry that the message became; its outcome names it. None if it was a command."""
    answer: str | None = None
    """The answer to a command, as Markdown."""
    is_duplicate: bool = False
    """Whether a message with this id was accepted before, in the place of this one."""
    ahead: int = 0
    """How many messages have no outcome yet, besides this one."""
    session_key: str | None = None
    """The session that the chat is about from now on, if the command has changed it."""


class OutcomeParams(Params):
    session_key: SessionKeyText
    entry: Annotated[str, Field(pattern=r"^\d{1,20}-\d{1,20}$")]
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 0
    """How long to wait until it is final, in seconds."""
    knows_pause: bool = False
    """Go on waiting when the message is put off."""


class SaidPart(Result):
    text: str
    is_error: bool


class ToldFile(Result):
    name: str
    mime_type: str
    size: int
    blob: str


class ToldOutcome(Result):
    status: str
    """accepted, running, or how it ended: done, failed, stopped, interrupted, steered, dropped,
    dead."""
    turn: str | None
    """The turn that took it up; messages that share a turn share its reply."""
    reply: tuple[SaidPart, ...]
    files: tuple[ToldFile, ...]
    error: dict[str, Any] | None
    """What failed: `category` and `detail`."""
    usage: dict[str, Any] | None
    pause: str | None
    """Why and until when the message is put off."""


class ShownParams(Params):
    key: Annotated[str, Field(min_length=1, max_length=500)]
    """The `key` of a `chat.message`."""
    unsaved: Annotated[list[Blob], Field(max_length=100)] = Field(default_factory=list)
    """The files that could not be saved: they are kept."""


class ChatShown(Result):
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
        result=ConsoleSent,
        scope="write",
        effect="session",
    ),
    Method(
        name="chat.outcome",
        description="Return what became of a message, or wait for it.",
        params=OutcomeParams,
        result=ToldOutcome,
        scope="read",
    ),
    Method(
        name="chat.shown",
        description="Say that a message of the chat was shown, so that it is not sent again.",
        params=ShownParams,
        result=ChatShown,
        scope="write",
    ),
)
