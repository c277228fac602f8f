"""Methods about sessions: conversations of people with agents."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from remoteclaw.contract.base import (
    Id,
    Limit,
    Method,
    NoParams,
    Params,
    Result,
    Text,
    check_characters,
)

__all__ = ["METHODS"]

SessionKeyText = Annotated[
    Id, Field(description="A session's key, as sessions_list gives it, or the start of its id.")
]
Label = Annotated[
    str,
    BeforeValidator(check_characters),
    Field(min_length=1, max_length=64, description="A session's label."),
]
#: How long a call may wait for another session's answer, in seconds.
MAX_WAIT_S = 110.0


class ListParams(Params):
    filter: Annotated[str, Field(max_length=200)] | None = None
    """Only sessions whose key or label contains this, in any case."""
    limit: Limit = 50
    """How many at most, those with the newest messages first."""


class SessionSummary(Result):
    key: str
    """Its key: agent/channel/account/chat:user:thread."""
    id: str
    agent: str
    channel: str
    state: str
    """idle, scheduled or running."""
    waiting: int
    """How many messages wait for an answer."""
    last_message_ms: int
    """When it got its last message, in milliseconds since 1970."""
    is_self: bool
    """Whether it is the session of this call."""
    label: str | None = None
    parent: str | None = None
    """The key of the session that has started it."""


class SessionsResult(Result):
    sessions: tuple[SessionSummary, ...]
    is_complete: bool
    """False if there are more than were asked for."""


class HistoryParams(Params):
    session_key: SessionKeyText
    limit: Limit = 50
    """How many items, the newest; with them come those of the same moment as the oldest of them."""
    before: Annotated[int, Field(ge=10**12, lt=10**14)] | None = None
    """Turns the page: `before` of the page so far, in milliseconds since 1970."""


class HistoryItem(Result):
    at: int
    """When, in milliseconds since 1970."""
    role: str
    """user, agent, tool or note."""
    text: str = ""
    from_: Annotated[str | None, Field(serialization_alias="from")] = None
    """Who said it, where that is known."""
    tool: str | None = None
    """The name of the tool that was used."""


class HistoryResult(Result):
    session_key: str
    items: tuple[HistoryItem, ...]
    """Oldest first."""
    before: int | None = None
    """With this, a call returns what came before these items; absent if nothing did."""


class SendParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"timeoutSeconds": "timeout"}

    session_key: SessionKeyText | None = None
    label: Label | None = None
    """A session's label, in place of its key: one of the same agent's."""
    message: Text
    """What to say to the session's agent."""
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 30
    """How long to wait for its answer, in seconds; 0 doesn't wait."""


class SendResult(Result):
    status: Literal["answered", "accepted", "failed"]
    """`accepted`: it has the message, and there is no answer yet."""
    session_key: str
    run_id: str
    """Names the message; the trace of it is under this name."""
    reply: str | None = None
    error: str | None = None
    note: str | None = None
    """Why there is no answer yet, if it was not waited for as long as was asked."""


class SpawnParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"task": "prompt"}

    prompt: Text
    """What the new session's agent is to do. It knows nothing of this conversation."""
    agent_id: Id | None = None
    """The agent that does it; else the same as this one."""
    channel: Id | None = None
    """The chat that its messages are about, as CHANNEL:CHAT; else this one. Only for owners."""
    label: Label | None = None
    """A name for it, which no other session of the agent has."""


class SpawnResult(Result):
    status: Literal["accepted"]
    """It has begun, or will; its result comes as a message of its own, however long it takes."""
    run_id: str
    """Names the task: subagents shows and cancels it."""
    child_session_key: str
    label: str | None = None


class ResetParams(Params):
    session_key: SessionKeyText
    reason: Literal["new", "reset"] = "reset"
    """What the list of ended conversations says of it."""


class ResetResult(Result):
    session_key: str


class StatusParams(Params):
    session_key: SessionKeyText | None = None
    """Another session; else that of this call."""


class StatusResult(Result):
    key: str
    id: str
    agent: str
    channel: str
    state: str
    waiting: int
    last_message_ms: int
    turn: str | None = None
    """The reference of the running turn."""
    phase: str | None = None
    host: str | None = None


class AgentSummary(Result):
    id: str
    runtime: str
    model: str | None = None
    is_self: bool


class AgentsResult(Result):
    agents: tuple[AgentSummary, ...]


class SubagentsTarget(Params):
    run_id: Id | None = None
    """One of those that this session has started, as sessions_spawn names it."""
    session_key: SessionKeyText | None = None
    """The same, by its session."""
    label: Label | None = None
    """The same, by its label."""


class SubagentsParams(Params):
    action: Literal["list", "status", "cancel"] = "list"
    """`cancel` ends a session's task and those of all that it has started; there is no result."""
    params: SubagentsTarget = Field(default_factory=SubagentsTarget)
    """Which one: for status one of the three, for cancel one or, without any, all of them."""


class Subagent(Result):
    run_id: str
    session_key: str
    agent: str
    state: str
    """How its task ended (done, failed, stopped, dead), else running or accepted; unknown after
    a week."""
    started_ms: int
    """When it was started, in milliseconds since 1970."""
    label: str | None = None
    parent: str | None = None
    """The session that has started it, where that is not this one."""
    result: str | None = None
    """What it answered; only in `status`."""


class SubagentsResult(Result):
    action: str
    runs: tuple[Subagent, ...] = ()
    """Oldest first, each before those that it has started."""
    cancelled: int = 0
    """How many entries of them are stopped."""


METHODS = (
    Method(
        name="sessions.list",
        tool="sessions_list",
        title="List sessions",
        description="List conversations that this agent may see, newest first.",
        params=ListParams,
        result=SessionsResult,
        scope="read",
    ),
    Method(
        name="chat.history",
        tool="sessions_history",
        title="Read a session's history",
        description="Read what was said in a conversation, from RemoteClaw's own record.",
        params=HistoryParams,
        result=HistoryResult,
        scope="read",
    ),
    Method(
        name="sessions.send",
        tool="sessions_send",
        title="Send to a session",
        description="Send a message to another session's agent and wait for its answer. "
        "The answer comes back here; nothing is sent to that session's chat.",
        params=SendParams,
        result=SendResult,
        scope="write",
        effect="session",
    ),
    Method(
        name="sessions.spawn",
        tool="sessions_spawn",
        title="Start a session",
        description="Have another session work on a task while this one goes on. It returns at "
        "once; the result comes to this session as a message, whatever restarts meanwhile.",
        params=SpawnParams,
        result=SpawnResult,
        scope="write",
        effect="session",
    ),
    Method(
        name="sessions.status",
        tool="session_status",
        title="Show a session's status",
        description="Show the state of this session, or of another one.",
        params=StatusParams,
        result=StatusResult,
        scope="read",
    ),
    Method(
        name="sessions.reset",
        description="End a session's conversation: stop what it has accepted so far, put away what "
        "was said, and have the next message begin a new one. If that takes longer than 15 "
        "seconds, the answer is UNAVAILABLE, and it happens as soon as it can.",
        params=ResetParams,
        result=ResetResult,
        scope="admin",
        effect="session",
        destroys=True,
    ),
    Method(
        name="agents.list",
        tool="agents_list",
        title="List agents",
        description="List the configured agents.",
        params=NoParams,
        result=AgentsResult,
        scope="read",
    ),
    Method(
        name="sessions.subagents",
        tool="subagents",
        title="Look after spawned sessions",
        description="List, look at or cancel the sessions that this one has started.",
        params=SubagentsParams,
        result=SubagentsResult,
        scope="write",
        effect="session",
    ),
)
