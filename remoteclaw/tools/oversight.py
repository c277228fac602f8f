"""Methods for operators who look after sessions: find, look into, set, and write in them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Limit, Method, Params, Result, Text
from remoteclaw.tools.operators import SessionParams
from remoteclaw.tools.sessions import (
    HistoryParams,
    HistoryResult,
    Label,
    SessionFacts,
    SessionKeyText,
)


class SearchParams(Params):
    query: Annotated[str, Field(max_length=200)] = ""
    """Only sessions whose key, label or title contains this, in any case."""
    in_words: bool = False
    """Whether the query is looked for in what was said, and not in names."""
    state: Literal["idle", "scheduled", "running", "asks"] | None = None
    """Only those in this state; `asks` are those that wait for a person."""
    channel: Id | None = None
    agent: Id | None = None
    limit: Limit = 50
    """How many at most."""


class Excerpt(Result):
    """Where a session's record has what was looked for: the newest place."""

    at: int
    """When it was said, in milliseconds since 1970."""
    who: str
    """The name of who said it; `agent` is the agent."""
    text: str


class FoundSession(SessionFacts):
    label: str | None = None
    title: str | None = None
    """The first words of its conversation."""
    asks: int
    """How many requests of its agent wait for a person."""
    excerpt: Excerpt | None = None


class SearchResult(Result):
    sessions: tuple[FoundSession, ...]
    """Those that wait for a person first, then by activity."""
    is_complete: bool
    """False if there are more than were asked for."""
    searched: int | None = None
    """How many of the newest sessions were looked into, if that is not all of them."""
    channels: tuple[str, ...]
    """The channels that there are sessions of, as far as was looked."""
    agents: tuple[str, ...]


class QueueSettings(Result):
    mode: str
    """What becomes of messages while the session is busy: aside, collect, followup, steer or
    interrupt."""
    debounce_ms: int
    cap: int
    drop: str
    gather_ms: int
    gather_most_ms: int
    own: tuple[str, ...]
    """Which of these are the session's own, and not the configuration's."""


class SessionDetails(SessionFacts):
    label: str | None = None
    title: str | None = None
    model: str | None = None
    """The model that its next turn asks for; absent for the CLI's own choice."""
    project: str | None = None
    started_by: str | None = None
    """The key of the session that has started it."""
    has_started: tuple[str, ...] = ()
    host: str | None = None
    postponed: str | None = None
    """Why it waits although there is work."""
    postponed_until_ms: int | None = None
    queue: QueueSettings
    usage: dict[str, Any] | None = None
    """What its turns took: turns, tokens, milliseconds and US dollars."""


class EndedConversation(Result):
    ended_ms: int
    """The time of its end, which names it."""
    messages: int
    """How many messages of people it has."""
    why: str
    """The word that ended it, or another reason."""


class ArchiveResult(Result):
    ended: tuple[EndedConversation, ...]
    """Newest first."""


class ArchivedParams(HistoryParams):
    ended_ms: int
    """Which of the ended conversations, as `sessions.archive` names them."""


class TraceParams(Params):
    what: Id
    """A message's reference, or a session: then its newest message."""
    limit: Annotated[int, Field(ge=1, le=20)] = 1
    """The number of messages: this one, and those before it."""


class TraceStep(Result):
    at_ms: int
    name: str
    attempt: int | None = None
    detail: str


class MessageTrace(Result):
    reference: str
    status: str
    turn: str | None = None
    """The reference of the turn that answered it."""
    steps: tuple[TraceStep, ...]
    error: dict[str, Any] | None = None
    """`category` and `detail` of a failure."""
    usage: dict[str, Any] | None = None
    """What its turn took."""


class TraceResult(Result):
    session_key: str | None = None
    messages: tuple[MessageTrace, ...]
    """Newest first."""
    before: str | None = None
    """The reference of the message before these, of which more may be known."""


class LabelParams(Params):
    session_key: SessionKeyText
    label: Label | None = None
    """Its name, which no other session of the agent has; without one, it has none any more."""


class Labelled(Result):
    session_key: str
    label: str | None = None


class QueueParams(Params):
    session_key: SessionKeyText
    mode: Literal["aside", "collect", "followup", "steer", "interrupt"] | None = None
    debounce_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    cap: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    drop: Literal["old", "new", "summarize"] | None = None
    gather_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    gather_most_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    reset: bool = False
    """Whether its own settings are taken away before."""


class WriteParams(Params):
    session_key: SessionKeyText
    message: Text


class Written(Result):
    session_key: str
    run_id: str
    """Names the message: `agent.wait` and `sessions.trace` take it."""
    who: str
    """Who has written it, as the agent, the chat and the record are told."""


METHODS = (
    Method(
        name="sessions.search",
        description="Find sessions by name, state, channel, agent, or what was said in them: those "
        "that wait for a person first.",
        params=SearchParams,
        result=SearchResult,
        scope="read",
    ),
    Method(
        name="sessions.show",
        description="Show what is known of a session, and its settings.",
        params=SessionParams,
        result=SessionDetails,
        scope="read",
    ),
    Method(
        name="sessions.archive",
        description="List a session's ended conversations.",
        params=SessionParams,
        result=ArchiveResult,
        scope="read",
    ),
    Method(
        name="sessions.archived",
        description="Read what was said in an ended conversation, as `chat.history` reads the "
        "current one.",
        params=ArchivedParams,
        result=HistoryResult,
        scope="read",
    ),
    Method(
        name="sessions.trace",
        description="Show every state that messages of a session passed through, with times, and "
        "what people were asked for meanwhile.",
        params=TraceParams,
        result=TraceResult,
        scope="read",
    ),
    Method(
        name="sessions.label",
        description="Give a session a label, or take it away.",
        params=LabelParams,
        result=Labelled,
        scope="write",
        effect="session",
    ),
    Method(
        name="sessions.queue",
        description="Say what becomes of messages that come while a session is busy. It holds from "
        "the session's next turn on.",
        params=QueueParams,
        result=QueueSettings,
        scope="admin",
        effect="session",
    ),
    Method(
        name="sessions.write",
        description="Write in a session, as an operator: the agent and the people in its chat are "
        "told who has. The answer goes to that chat.",
        params=WriteParams,
        result=Written,
        scope="admin",
        effect="session",
    ),
)
