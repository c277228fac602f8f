"""Methods of the page: chats in a browser, and notifications also where it is closed."""

from typing import Annotated, Any

from pydantic import Field

from remoteclaw.tools.base import Id, Method, NoParams, Params, Result
from remoteclaw.tools.console import MAX_CHARS, SentFile

Conversation = Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$")]


EventId = Annotated[str, Field(pattern=r"^\d{1,19}-\d{1,19}$")]


class OpenParams(Params):
    conversation: Conversation | None = None
    """Which of one's conversations; else the first one."""
    after: EventId | None = None
    """The id of the last event that is known."""


class Opened(Result):
    session_key: str
    sid: str
    agent: str
    person: str
    state: str
    """idle, scheduled or running."""
    is_afresh: bool
    """Whether what is told begins with the newest messages, and not behind `after`: without that,
    or where much has happened since."""
    has_earlier: bool
    """Of what begins afresh: whether there is more before it (`web.history`)."""


class HistoryParams(Params):
    conversation: Conversation | None = None
    before: EventId
    """The first event that is known."""
    limit: Annotated[int, Field(ge=1, le=200)] = 100


class Earlier(Result):
    events: tuple[dict[str, Any], ...]
    """Oldest first, each as it is told in `web.event`."""
    has_earlier: bool
    """Whether there is more before them."""


class Answer(Params):
    request: Id
    verdict: Annotated[str, Field(pattern="^(once|conversation|deny|words|[1-9])$")]
    words: Annotated[str, Field(max_length=4000)] = ""


class SendParams(Params):
    conversation: Conversation | None = None
    message_id: Id
    """The message's own id: the same one again is the same message."""
    text: Annotated[str, Field(max_length=MAX_CHARS)] = ""
    reply_to: Id | None = None
    files: Annotated[list[SentFile], Field(max_length=10)] = Field(default_factory=list)
    """Files that were stored before."""
    answer: Answer | None = None
    """In place of a message: what was chosen on a card."""
    reaction: Annotated[str, Field(max_length=64)] | None = None
    """In place of a message: the emoji with which one reacts by now to `replyTo`."""


class WebSent(Result):
    id: str
    """The event that it has become."""


class PushKey(Result):
    key: str | None
    """The public key that browsers subscribe with; null where the extra `push` isn't installed."""


class SubscribeParams(Params):
    endpoint: Annotated[
        str, Field(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[!-~]*$", max_length=2000)
    ]
    """The address of the browser's push service for it."""
    public_key: Annotated[str, Field(pattern=r"^[\w-]+$", max_length=200)]
    """The browser's public key, in base64url."""
    auth: Annotated[str, Field(pattern=r"^[\w-]+$", max_length=100)]
    """The browser's secret, in base64url."""


class VisibleParams(Params):
    is_visible: bool


class PushDone(Result):
    pass


METHODS = (
    Method(
        name="web.open",
        description="Open a conversation on the page: say what it is, and have what happens in it "
        "sent over this connection.",
        params=OpenParams,
        result=Opened,
        scope="write",
    ),
    Method(
        name="web.history",
        description="Return what has happened in a conversation on the page before an event.",
        params=HistoryParams,
        result=Earlier,
        scope="write",
    ),
    Method(
        name="web.send",
        description="Write in a conversation on the page, answer what its agent asks for, or "
        "react to a message.",
        params=SendParams,
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
        description="Have this browser notified of answers and requests in one's chats on the "
        "page, in place of what its token has subscribed before.",
        params=SubscribeParams,
        result=PushDone,
        scope="write",
    ),
    Method(
        name="push.unsubscribe",
        description="Have this browser notified no more.",
        params=NoParams,
        result=PushDone,
        scope="write",
    ),
    Method(
        name="push.visible",
        description="Say whether the conversation that this connection has opened is in view: then "
        "its browser is not notified of it.",
        params=VisibleParams,
        result=PushDone,
        scope="write",
    ),
)
