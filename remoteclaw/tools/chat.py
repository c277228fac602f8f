"""Methods for people's chats: conversations on the page and in terminals, and other sessions'."""

from typing import Annotated, Any, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, MessageText, Method, Params, Result, SentFile
from remoteclaw.tools.sessions import PauseFacts, SessionKeyText

EventId = Annotated[str, Field(pattern=r"^\d{1,19}-\d{1,19}$")]


class Sender(Params):
    """A sender on a channel, and the chat in which the sender writes."""

    channel: Id
    from_: Annotated[Id | None, Field(validation_alias="from", serialization_alias="from")] = None
    """The sender's id on the channel; else that of the caller in their own conversations."""
    to: Id | None = None
    """The chat; else the direct chat of the sender."""
    account: Id = "default"
    """The account of the channel."""
    thread_id: Id | None = None
    """The thread or topic of the chat."""


class OpenChatParams(Params):
    conversation: Id | None = None
    """The id of one of the caller's conversations. A new one is with the agent whose name, perhaps
    with a dot and more, is the id, else with the first agent."""
    agent_id: Id | None = None
    """An agent: its conversation with the caller. Without any name, that with the first agent."""
    after: EventId | None = None
    """The id of the last event that the client has; later events are sent."""
    session_key: SessionKeyText | None = None
    """A session of any channel: its key, the start of its id, or its title."""
    sender: Sender | None = None
    """Another sender, instead of the caller."""
    follow: Literal["chat", "session", "nothing"] = "chat"
    """What to send over this connection: `chat` is the conversation's and the session's events,
    `session` only the latter, and `nothing` neither."""


class OpenedChat(PauseFacts):
    session_key: str
    sid: str
    agent: str
    person: str | None
    """The caller's id in the conversation; null if the session is none of theirs."""
    conversation: str | None
    """The conversation's id; null for the first one, and if the session is none."""
    name: str | None
    """The session's label or title, as its list shows it; null while it has none."""
    runtime: str
    """The agent's CLI; `demo` is the agent that answers while no CLI is installed."""
    model: str | None
    """The model of the next turn; null for the CLI's default."""
    permissions: str
    """What happens when the agent wants to use a tool: `ask`, `edits`, `auto` or `deny`."""
    workspace: str
    """The directory in which the agent works."""
    state: str
    """`idle`, `scheduled` (a worker will take it), `running`, or `terminal` while it is open in a
    terminal."""
    waiting: int
    """How many messages have no outcome yet."""
    unanswered: tuple[str, ...]
    """For a session that is no conversation: the texts of the newest of those that people have
    sent, oldest first, shortened."""
    commands: tuple[tuple[str, str], ...]
    """The commands of the chat, each with its description."""
    is_afresh: bool
    """Whether the events that are sent begin with the newest messages instead of continuing after
    `after`: because that is absent, or too many events are newer."""
    has_earlier: bool
    """Whether `chat.history` has events before those that are sent, if `isAfresh`."""


class WaitingParams(Params):
    session_key: SessionKeyText
    """The key of one of the caller's conversations."""


class WaitingMessages(Result):
    messages: tuple[str, ...]
    """The ids of the messages that no turn answers yet, oldest first."""


class FilesParams(Params):
    session_key: SessionKeyText
    """The key of one of the caller's conversations."""
    like: Annotated[str, Field(max_length=200)] = ""
    """Letters that the paths contain."""
    limit: Annotated[int, Field(ge=1, le=50)] = 8
    """The maximum number of paths."""


class WorkspaceFiles(Result):
    paths: tuple[str, ...]
    """Paths of files in the agent's workspace, relative to it, the likeliest first. Hidden files
    are left out, and those that git ignores."""


class ChatHistoryParams(Params):
    session_key: SessionKeyText
    """The key of one of the caller's conversations."""
    before: EventId
    """The id of the first event that the client has."""
    limit: Annotated[int, Field(ge=1, le=200)] = 100
    """The maximum number of events."""


class EarlierEvents(Result):
    events: tuple[dict[str, Any], ...]
    """The events, oldest first, each in the form of `chat.event`."""
    has_earlier: bool
    """Whether there are earlier events."""


class CardAnswer(Params):
    request: Id
    """The id of the request."""
    verdict: Annotated[str, Field(pattern="^(once|conversation|deny|words|[1-9])$")]
    """The answer: a verdict as in `requests.answer`, or the number of a choice."""
    words: Annotated[str, Field(max_length=4000)] = ""
    """The reason of a denial, or the text that answers a question."""


class SendChatParams(Params):
    session_key: SessionKeyText
    """The key of one of the caller's conversations, or of another session: that one's answer is in
    the message's outcome only, and not in the session's chat."""
    message_id: Id
    """The message's id: a second call with the same id does not send the message again."""
    text: MessageText = ""
    """The text of the message."""
    reply_to: Id | None = None
    """The message that is quoted, or reacted to."""
    files: Annotated[list[SentFile], Field(max_length=10)] = Field(default_factory=list)
    """Files that were stored with `POST /files` before."""
    answer: CardAnswer | None = None
    """An answer to a request, instead of a message."""
    reaction: Annotated[str, Field(max_length=64)] | None = None
    """An emoji as the reaction to `replyTo`, instead of a message; an empty text removes it."""
    waits: bool = False
    """Whether the caller waits for the outcome of the message: then it has its own turn and is
    never dropped. A message to a session that is none of the caller's conversations always has."""
    is_background: bool = False
    """Use the lane `background`, which runs after people's messages; for a message that the caller
    waits for."""


class ChatSent(Result):
    id: str | None = None
    """The id of the message's event; null without a conversation."""
    entry: str | None = None
    """The id of the entry that the message became; null for a command, an answer or a reaction."""
    is_duplicate: bool = False
    """Whether a message with this id was accepted before; nothing was sent now."""
    ahead: int = 0
    """How many earlier messages have no outcome yet."""
    reply: str | None = None
    """The reply to a command, as Markdown, if it is no message of the chat or the caller waits."""
    notices: tuple[str, ...] = ()
    """For a caller that waits: why the message, or a file of it, is refused."""
    opens: str | None = None
    """The key of the conversation that the client should open, because a command asks for it."""


METHODS = (
    Method(
        name="chat.open",
        description="Open a conversation of the caller, or a session: return it, and send its "
        "events over this connection.",
        params=OpenChatParams,
        result=OpenedChat,
        scope="write",
    ),
    Method(
        name="chat.history",
        description="Return events of a conversation that are before a known event.",
        params=ChatHistoryParams,
        result=EarlierEvents,
        scope="write",
    ),
    Method(
        name="chat.waiting",
        description="Return the messages of a conversation that wait for their turn.",
        params=WaitingParams,
        result=WaitingMessages,
        scope="write",
    ),
    Method(
        name="chat.files",
        description="Return paths in the workspace of a conversation's agent on the gateway's "
        "computer, with which a person names files in a message.",
        params=FilesParams,
        result=WorkspaceFiles,
        scope="write",
    ),
    Method(
        name="chat.send",
        description="Send a message in a conversation or to a session, answer a request of the "
        "agent, or react to a message.",
        params=SendChatParams,
        result=ChatSent,
        scope="write",
        effect="session",
    ),
)
