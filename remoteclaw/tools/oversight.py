"""Methods for operators to find sessions, inspect and configure them, and write in them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Limit, Method, Params, Result, Text
from remoteclaw.tools.operators import SessionParams
from remoteclaw.tools.sessions import (
    HistoryResult,
    Label,
    PauseFacts,
    SessionFacts,
    SessionHistoryParams,
    SessionKeyText,
)


class SearchParams(Params):
    query: Annotated[str, Field(max_length=200)] = ""
    """Only sessions whose key, label, title or messages contain this, in any case."""
    state: Literal["idle", "scheduled", "running", "terminal", "requests"] | None = None
    """Only sessions in this state; `requests`: whose agent waits for a person's answer."""
    channel: Id | None = None
    """Only sessions on this channel."""
    agent: Id | None = None
    """Only sessions of this agent."""
    limit: Limit = 50
    """The maximum number of sessions."""
    usage: bool = False
    """Whether to return the usage of each session."""


class Excerpt(Result):
    """The newest match of a query in the record of a session."""

    at: int
    """The time of the message, in milliseconds since 1970."""
    who: str
    """The sender's name; `agent` for the agent."""
    text: str
    """The part of the message around the match."""


class FoundSession(SessionFacts, PauseFacts):
    label: str | None = None
    title: str | None = None
    """The first words of the session's conversation."""
    model: str | None = None
    """The model of the next turn; absent if the CLI chooses."""
    requests: int
    """How many requests of the session's agent wait for a person's answer."""
    usage: dict[str, Any] | None = None
    """The usage of the session, if it was asked for: turns, asides, tokens, milliseconds and US
    dollars."""
    excerpt: Excerpt | None = None
    """The newest match in a message; absent if only the key, label or title has the query."""


class SearchResult(Result):
    sessions: tuple[FoundSession, ...]
    """The sessions: first those that wait for a person's answer, then by activity."""
    is_complete: bool
    """False if there are more sessions than `limit`."""
    searched: int | None = None
    """How many of the newest sessions were searched; absent if all were."""
    channels: tuple[str, ...]
    """The configured channels, and those of the searched sessions."""
    agents: tuple[str, ...]
    """The configured agents, and those of the searched sessions."""


class QueueSettings(Result):
    """The settings in effect; `[queue]` of the configuration explains them."""

    mode: str
    """What happens to messages while the session is busy: `aside`, `collect`, `followup`, `steer`
    or `interrupt`."""
    debounce_ms: int
    """As in `[queue]`, in milliseconds."""
    cap: int
    """As in `[queue]`: the maximum number of waiting messages; 0 for no limit."""
    drop: str
    """As in `[queue]`: `old`, `new` or `summarize`."""
    gather_ms: int
    """As in `[queue]`, in milliseconds."""
    gather_most_ms: int
    """As in `[queue]`, in milliseconds."""
    own: tuple[str, ...]
    """The names of the fields above that the session overrides."""


class StartedTask(Result):
    key: str
    state: str
    """As in `state` of the session."""


class SessionDetails(SessionFacts, PauseFacts):
    label: str | None = None
    title: str | None = None
    """The first words of the session's conversation."""
    model: str | None = None
    """The model of the next turn; absent if the CLI chooses."""
    project: str | None = None
    """The project in which the agent works; absent for its workspace."""
    started_by: str | None = None
    """The key of the session that has started this one as a task."""
    has_started: tuple[StartedTask, ...] = ()
    """The tasks that this session has started."""
    worker: str | None = None
    """The process that runs the session's turn."""
    host: str | None = None
    """The host on which the session's agent runs."""
    lane: str
    """The lane of the session's messages, `agents` or `background`."""
    turn: str | None = None
    """The reference of the running turn."""
    phase: str | None = None
    """How far the running turn is, as in `sessions.status`."""
    conversations: dict[str, str]
    """The conversations that agents' CLIs have of the session: ids, by RUNTIME|WORKSPACE."""
    queue: QueueSettings
    usage: dict[str, Any] | None = None
    """The usage of the session: turns, asides, tokens, milliseconds and US dollars."""


class EndedConversation(Result):
    ended_ms: int
    """The time at which the conversation ended, in milliseconds since 1970; it is also its id."""
    messages: int
    """The number of people's messages in the conversation."""
    why: str
    """The command that ended the conversation, or another reason such as `idle`."""


class ArchiveResult(Result):
    ended: tuple[EndedConversation, ...]
    """The ended conversations, newest first."""


class ArchivedParams(SessionHistoryParams):
    ended_ms: int
    """The id of an ended conversation, from `sessions.archive`."""


class TraceParams(Params):
    what: Id
    """The reference of a message, a reply as CHANNEL/ACCOUNT/CHAT/MESSAGE_ID, or a session, for its
    newest message."""
    limit: Annotated[int, Field(ge=1, le=20)] = 1
    """The number of messages: this one and earlier ones."""


class TraceStep(Result):
    at_ms: int
    """The time of the step, in milliseconds since 1970."""
    name: str
    """The state that the message reached, or another event."""
    attempt: int | None = None
    """The attempt at the turn, counted from 1."""
    detail: str


class MessageTrace(Result):
    reference: str
    """The reference of the message."""
    status: str
    """The current status of the message."""
    turn: str | None = None
    """The reference of the turn that answers the message."""
    steps: tuple[TraceStep, ...]
    """The steps, oldest first."""
    error: dict[str, Any] | None = None
    """The `category` and the `detail` of a failure."""
    usage: dict[str, Any] | None = None
    """The tokens, the time and the cost of the turn or aside that answered the message."""
    aside_usage: dict[str, Any] | None = None
    """Those of the aside about the message, also if a turn answered it."""


class TraceResult(Result):
    session_key: str | None = None
    messages: tuple[MessageTrace, ...]
    """The messages, newest first."""
    before: str | None = None
    """The reference of the next earlier message, if any; its trace may have expired."""


class LabelParams(Params):
    session_key: SessionKeyText
    label: Label | None = None
    """The new label, which no other session of the agent may have; without it, the session's label
    is removed."""


class Labelled(Result):
    session_key: str
    label: str | None = None


class QueueParams(Params):
    """Overrides of `[queue]` for a session; an absent setting stays as it is."""

    session_key: SessionKeyText
    mode: Literal["aside", "collect", "followup", "steer", "interrupt"] | None = None
    """The session's `mode` of `[queue]`; absent to leave it as it is, like the settings below."""
    debounce_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    """The session's `debounce_ms`, in milliseconds."""
    cap: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    """The session's `cap`; 0 for no limit."""
    drop: Literal["old", "new", "summarize"] | None = None
    """The session's `drop`."""
    gather_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    """The session's `gather_ms`, in milliseconds."""
    gather_most_ms: Annotated[int, Field(ge=0, le=60_000)] | None = None
    """The session's `gather_most_ms`, in milliseconds."""
    reset: bool = False
    """Whether to remove all of the session's overrides first."""


class ForkParams(Params):
    session_key: SessionKeyText
    thread_id: Id | None = None
    """The thread of the new session; else the same."""
    user: Id | None = None
    """The user of the new session; else the same."""


class Forked(Result):
    session_key: str
    """The key of the new session."""


class ExportParams(Params):
    session_key: SessionKeyText
    archived: Annotated[int, Field(ge=1)] | None = None
    """The number of an ended conversation, 1 for the newest; absent for the current one."""
    format: Literal["json", "markdown"] = "json"
    """JSON lines for programs, or Markdown for people."""


class Exported(Result):
    text: str
    """The record, oldest message first; empty if nothing is recorded."""


class Forgotten(Result):
    was_recorded: bool
    """Whether there was anything to delete."""


class WriteParams(Params):
    session_key: SessionKeyText
    message: Text
    """The text of the message."""


class Written(Result):
    session_key: str
    run_id: str
    """The id of the message, for `agent.wait` and `sessions.trace`."""
    who: str
    """The sender's name, as the agent, the chat and the record have it."""


METHODS = (
    Method(
        name="sessions.search",
        description="Find sessions by name, state, channel, agent, or the text of their messages. "
        "Sessions that wait for a person's answer are first.",
        params=SearchParams,
        result=SearchResult,
        scope="read",
    ),
    Method(
        name="sessions.show",
        description="Show a session's state, settings and usage.",
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
        description="Read the record of an ended conversation, in the form in which "
        "`sessions.history` returns the current one.",
        params=ArchivedParams,
        result=HistoryResult,
        scope="read",
    ),
    Method(
        name="sessions.trace",
        description="Show the states that messages of a session passed through, with times, and "
        "the requests to people in their turns.",
        params=TraceParams,
        result=TraceResult,
        scope="read",
    ),
    Method(
        name="sessions.label",
        description="Set or remove the label of a session.",
        params=LabelParams,
        result=Labelled,
        scope="write",
        effect="session",
    ),
    Method(
        name="sessions.queue",
        description="Set what happens to messages that arrive while a session is busy. The "
        "session's next turn applies it.",
        params=QueueParams,
        result=QueueSettings,
        scope="admin",
        effect="session",
    ),
    Method(
        name="sessions.write",
        description="Send a message to a session as an operator. The agent and the people in the "
        "chat see the operator's name, and the answer goes to that chat.",
        params=WriteParams,
        result=Written,
        scope="admin",
        effect="session",
    ),
    Method(
        name="sessions.fork",
        description="Begin a session with a copy of another session's conversation.",
        params=ForkParams,
        result=Forked,
        scope="admin",
        effect="session",
    ),
    Method(
        name="sessions.export",
        description="Return the record of a session's conversation as a text: JSON lines, each "
        "with `at`, in milliseconds since 1970, `role`, and the content; or Markdown.",
        params=ExportParams,
        result=Exported,
        scope="read",
    ),
    Method(
        name="sessions.forget",
        description="Delete the record of a session, with its archive and the history of its chat.",
        params=SessionParams,
        result=Forgotten,
        scope="admin",
        effect="session",
        destroys=True,
    ),
)
