"""Methods for the page: chats in a browser, and notifications while it is closed."""

from typing import Annotated, Any

from pydantic import Field

from remoteclaw.tools.base import Id, Method, NoParams, Params, Result
from remoteclaw.tools.console import MAX_CHARS, SentFile
from remoteclaw.tools.sessions import PauseFacts

#: The id of one of a person's conversations on the page.
Conversation = Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$")]
EventId = Annotated[str, Field(pattern=r"^\d{1,19}-\d{1,19}$")]


class OpenPageParams(Params):
    conversation: Conversation | None = None
    """One of the person's conversations; else the first one."""
    after: EventId | None = None
    """The id of the last event that the client has; later events are sent."""


class OpenedPage(PauseFacts):
    session_key: str
    sid: str
    agent: str
    person: str
    """The person's id on the page."""
    state: str
    """`idle`, `scheduled` (a worker will take it), `running`, or `terminal` while it is open in a
    terminal."""
    is_afresh: bool
    """Whether the events that are sent begin with the newest messages instead of continuing after
    `after`: because that is absent, or too many events are newer."""
    has_earlier: bool
    """Whether `web.history` has events before those that are sent, if `isAfresh`."""


class WaitingParams(Params):
    conversation: Conversation | None = None
    """One of the person's conversations; else the first one."""


class WaitingMessages(Result):
    messages: tuple[str, ...]
    """The ids of the messages that no turn answers yet, oldest first."""


class PageHistoryParams(Params):
    conversation: Conversation | None = None
    """One of the person's conversations; else the first one."""
    before: EventId
    """The id of the first event that the client has."""
    limit: Annotated[int, Field(ge=1, le=200)] = 100
    """The maximum number of events."""


class EarlierEvents(Result):
    events: tuple[dict[str, Any], ...]
    """The events, oldest first, each in the form of `web.event`."""
    has_earlier: bool
    """Whether there are earlier events."""


class CardAnswer(Params):
    request: Id
    """The id of the request."""
    verdict: Annotated[str, Field(pattern="^(once|conversation|deny|words|[1-9])$")]
    """The answer: a verdict as in `requests.answer`, or the number of a choice."""
    words: Annotated[str, Field(max_length=4000)] = ""
    """The reason of a denial, or the text that answers a question."""


class PageSendParams(Params):
    conversation: Conversation | None = None
    """One of the person's conversations; else the first one."""
    message_id: Id
    """The message's id: a second call with the same id does not send the message again."""
    text: Annotated[str, Field(max_length=MAX_CHARS)] = ""
    """The text of the message."""
    reply_to: Id | None = None
    """The message that is quoted, or reacted to."""
    files: Annotated[list[SentFile], Field(max_length=10)] = Field(default_factory=list)
    """Files that were stored with `POST /files` before."""
    answer: CardAnswer | None = None
    """An answer to a request, instead of a message."""
    reaction: Annotated[str, Field(max_length=64)] | None = None
    """An emoji as the reaction to `replyTo`, instead of a message; an empty text removes it."""


class WebSent(Result):
    id: str
    """The id of the message's event."""


class PushKey(Result):
    key: str | None
    """The public key with which browsers subscribe; null if the extra `push` isn't installed."""


class SubscribeParams(Params):
    endpoint: Annotated[
        str, Field(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[!-~]*$", max_length=2000)
    ]
    """The address at the browser's push service that notifies this browser."""
    public_key: Annotated[str, Field(pattern=r"^[\w-]+$", max_length=200)]
    """The browser's public key, in base64url."""
    auth: Annotated[str, Field(pattern=r"^[\w-]+$", max_length=100)]
    """The browser's secret, in base64url."""


class VisibleParams(Params):
    is_visible: bool
    """Whether the person sees the conversation."""


class PushDone(Result):
    pass


METHODS = (
    Method(
        name="web.open",
        description="Open a conversation on the page: return its session, and send its events over "
        "this connection.",
        params=OpenPageParams,
        result=OpenedPage,
        scope="write",
    ),
    Method(
        name="web.history",
        description="Return events of a conversation on the page that are before a known event.",
        params=PageHistoryParams,
        result=EarlierEvents,
        scope="write",
    ),
    Method(
        name="web.waiting",
        description="Return the messages of a conversation on the page that wait for their turn.",
        params=WaitingParams,
        result=WaitingMessages,
        scope="write",
    ),
    Method(
        name="web.send",
        description="Send a message in a conversation on the page, answer a request of its agent, "
        "or react to a message.",
        params=PageSendParams,
        result=WebSent,
        scope="write",
        effect="session",
    ),
    Method(
        name="push.key",
        description="Return the key with which a browser subscribes to its push service.",
        params=NoParams,
        result=PushKey,
        scope="write",
    ),
    Method(
        name="push.subscribe",
        description="Notify this browser of answers and requests in the person's chats on the "
        "page. It replaces the token's earlier subscription.",
        params=SubscribeParams,
        result=PushDone,
        scope="write",
    ),
    Method(
        name="push.unsubscribe",
        description="End the notifications of this browser.",
        params=NoParams,
        result=PushDone,
        scope="write",
    ),
    Method(
        name="push.visible",
        description="Report whether the conversation that this connection has opened is in view: "
        "while it is, the browser gets no notifications about it.",
        params=VisibleParams,
        result=PushDone,
        scope="write",
    ),
)
