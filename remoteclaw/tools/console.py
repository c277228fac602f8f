"""Methods for the console, which is a chat in a terminal and a client of the gateway."""

from typing import Annotated, Any, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, Params, Result
from remoteclaw.tools.sessions import MAX_WAIT_S, SessionKeyText

Blob = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
#: The maximum length of a message, in characters: the number of `messages.MAX_TEXT_BYTES`, which
#: refuses a longer text with its own message.
MAX_CHARS = 1024 * 1024


class Sender(Params):
    """A sender on a channel, and the chat in which the sender writes."""

    channel: Id
    from_: Annotated[Id, Field(validation_alias="from", serialization_alias="from")]
    """The sender's id on the channel."""
    to: Id | None = None
    """The chat; else the direct chat of the sender."""
    account: Id = "default"
    """The account of the channel."""
    thread_id: Id | None = None
    """The thread or topic of the chat."""


class OpenChatParams(Params):
    agent_id: Id | None = None
    """The agent to talk to; else `main`, or the first agent if there is no `main`."""
    session_key: SessionKeyText | None = None
    """A session of any channel, instead of `agentId`."""
    sender: Sender | None = None
    """Another sender, instead of the person at this terminal."""
    follow: Literal["chat", "session", "nothing"] = "chat"
    """What to send over this connection: `chat` is the chat's messages and the session's events,
    `session` only the events, and `nothing` neither."""


class OpenedChat(Result):
    session_key: str
    sid: str
    agent: str
    model: str | None
    """The model that the agent is set to use; null if the CLI chooses."""
    workspace: str
    """The directory in which the agent works."""
    is_console: bool
    """Whether replies arrive as `chat.message`. If not, they go to the session's own chat, and
    arrive here with `session.outcome`."""
    state: str
    """`idle`, `scheduled` (a worker will take it) or `running`."""
    waiting: int
    """How many messages have no outcome yet."""
    unanswered: tuple[str, ...]
    """The texts of the newest of those that people have sent, oldest first, shortened; empty if
    `follow` is `nothing`."""
    commands: tuple[tuple[str, str], ...]
    """The commands of the chat, each with its description."""


class SentFile(Params):
    name: str
    mime_type: str
    size: int
    blob: Blob


class SendChatParams(Params):
    session_key: SessionKeyText
    message: Annotated[str, Field(max_length=MAX_CHARS)]
    message_id: Id
    """The message's id: a second call with the same id does not send the message again."""
    attachments: Annotated[list[SentFile], Field(max_length=10)] = Field(default_factory=list)
    """Files that were stored with `POST /files` before."""
    to_caller: bool = False
    """Put the reply only into the message's outcome, which `chat.outcome` returns, and not into the
    chat."""
    is_background: bool = False
    """Use the lane `background`, which runs after people's messages."""


class ConsoleSent(Result):
    entry: str | None = None
    """The id of the entry that the message became, for `chat.outcome`; absent for a command."""
    answer: str | None = None
    """The answer to a command, as Markdown."""
    is_duplicate: bool = False
    """Whether a message with this id was accepted before; nothing was sent now."""
    ahead: int = 0
    """How many earlier messages have no outcome yet."""
    session_key: str | None = None
    """The new session of the chat, if a command has changed it."""


class OutcomeParams(Params):
    session_key: SessionKeyText
    entry: Annotated[str, Field(pattern=r"^\d{1,20}-\d{1,20}$")]
    """The id of the message's entry."""
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 0
    """How many seconds to wait for a final outcome."""
    knows_pause: bool = False
    """Continue to wait when the message is postponed, because the caller knows about that."""


class ReplyPart(Result):
    text: str
    is_error: bool


class ReplyFile(Result):
    name: str
    mime_type: str
    size: int
    blob: str


class ChatOutcome(Result):
    status: str
    """`accepted`, `running`, or a final status: `done`, `failed`, `stopped`, `interrupted`,
    `steered`, `dropped` or `dead`."""
    turn: str | None
    """The turn that answers the message; messages that share a turn share its reply."""
    reply: tuple[ReplyPart, ...]
    """The parts of the reply, in order."""
    files: tuple[ReplyFile, ...]
    """The files of the reply."""
    error: dict[str, Any] | None
    """The `category` and the `detail` of a failure."""
    usage: dict[str, Any] | None
    """The tokens, the time and the cost of the turn."""
    pause: str | None
    """Why and until when the message is postponed."""


class ShownParams(Params):
    key: Annotated[str, Field(min_length=1, max_length=500)]
    """The `key` of a `chat.message`."""
    unsaved: Annotated[list[Blob], Field(max_length=100)] = Field(default_factory=list)
    """The message's files that could not be saved, which the gateway then keeps."""


class ChatShown(Result):
    key: str


METHODS = (
    Method(
        name="chat.open",
        description="Open a chat in a terminal: return its session, and send its messages and the "
        "session's events over this connection.",
        params=OpenChatParams,
        result=OpenedChat,
        scope="write",
    ),
    Method(
        name="chat.send",
        description="Send a person's message to the agent of a chat, or answer a command at once.",
        params=SendChatParams,
        result=ConsoleSent,
        scope="write",
        effect="session",
    ),
    Method(
        name="chat.outcome",
        description="Return the outcome of a message, or wait for it.",
        params=OutcomeParams,
        result=ChatOutcome,
        scope="read",
    ),
    Method(
        name="chat.shown",
        description="Confirm that a message of the chat was shown, so that it is not sent again.",
        params=ShownParams,
        result=ChatShown,
        scope="write",
    ),
)
