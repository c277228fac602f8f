"""Methods about sessions: conversations of people with agents."""

from functools import partial
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from remoteclaw.tools.base import Id, Limit, NoParams, Params, Result, Text, Tool, check_characters

SessionKeyText = Annotated[
    Id, Field(description="A session's key from sessions_list, or the start of its id.")
]
Label = Annotated[
    str,
    BeforeValidator(check_characters),
    Field(min_length=1, max_length=64, description="A session's label."),
]
#: The longest wait that can be asked for, in seconds.
MAX_WAIT_S = 110.0
#: How long sessions_send waits at most, in seconds. claude and gemini (over HTTP) and opencode give
#: a call up after 60; then the model believes that it failed, and asks the other agent again.
SEND_WAIT_S = 50.0


class ListParams(Params):
    filter: Annotated[str, Field(max_length=200)] | None = None
    """Only sessions whose key, label or title contains this, in any case."""
    limit: Limit = 50
    """How many at most."""


class SessionFacts(Result):
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


class SessionSummary(SessionFacts):
    is_self: bool
    """Whether it is the session of this call."""
    label: str | None = None
    title: str | None = None
    """The first words of its conversation."""


class SessionsResult(Result):
    sessions: tuple[SessionSummary, ...]
    is_complete: bool
    """False if there are more than were asked for."""


class HistoryParams(Params):
    session_key: SessionKeyText
    limit: Limit = 50
    """How many of the newest items."""
    before: Annotated[int, Field(ge=10**12, lt=10**14)] | None = None
    """The `before` of the last result, for older items."""


class HistoryStep(Result):
    text: str
    state: str
    """pending, in_progress or completed."""


class HistoryItem(Result):
    at: int
    """When, in milliseconds since 1970."""
    role: str
    """user, agent, tool or error; to others than agents also plan and notice."""
    text: str = ""
    """What was said; of a tool, what it gave back."""
    from_: Annotated[str | None, Field(serialization_alias="from")] = None
    """The name of who said it, where that is known; people choose theirs themselves."""
    from_id: str | None = None
    """The id of the person who said it, which tells people apart."""
    tool: str | None = None
    """The name of the tool that was used."""
    turn: str | None = None
    """The turn that it belongs to."""
    id: str | None = None
    """Of a person's message, its own; of a tool, that of its call, as in live text. This and what
    follows is for others than agents."""
    argument: str | None = None
    """Of a tool: the argument that tells most, on one line."""
    input: str | None = None
    """Of a tool: its arguments as JSON, or their beginning."""
    is_error: bool | None = None
    """Of a tool: whether it failed."""
    since_ms: int | None = None
    """Of a tool: its start, in milliseconds since 1970."""
    seconds: float | None = None
    """Of a tool: its duration."""
    steps: tuple[HistoryStep, ...] | None = None
    """Of a plan."""


class HistoryResult(Result):
    session_key: str
    items: tuple[HistoryItem, ...]
    """Oldest first; what is of the same moment as the oldest of `limit` items comes with them."""
    before: int | None = None
    """With this, a call returns what came before these items; absent if nothing did."""


class SendParams(Params):
    session_key: SessionKeyText | None = None
    label: Label | None = None
    """Or the session's label."""
    message: Text
    """What to say to the session's agent."""
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 30
    """How many seconds to wait for the answer, of which 50 count; 0 does not wait."""


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


class StatusParams(Params):
    session_key: SessionKeyText | None = None
    """Another session's key; else this session."""


class StatusResult(SessionFacts):
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


#: A tool for sessions; all may use it.
_tool = partial(Tool, groups=("sessions",), owner_only=False, approvable=False)

METHODS = (
    _tool(
        name="sessions.list",
        tool="sessions_list",
        title="List sessions",
        description="List the sessions (conversations) that you may see, newest first: key, "
        'channel, state, label. Use it to find a sessionKey. Example: {"filter": '
        '"telegram"}.',
        params=ListParams,
        result=SessionsResult,
        scope="read",
        effect="none",
    ),
    _tool(
        name="chat.history",
        tool="sessions_history",
        title="Read a session's history",
        description="Read what was said in a session, oldest first: time, role, text, tools "
        "used. Use it to catch up, or for an answer that sessions_send did not "
        'wait for. Example: {"sessionKey": "3f9a1c2b"}.',
        params=HistoryParams,
        result=HistoryResult,
        scope="read",
        effect="none",
    ),
    _tool(
        name="sessions.send",
        tool="sessions_send",
        title="Send to a session",
        description="Ask another session's agent and wait for its answer, which comes back "
        "here as `reply`. Nothing goes to that session's chat. With status "
        '`accepted`, it comes later: see `note`. Example: {"label": "research", '
        '"message": "What have you found?"}.',
        params=SendParams,
        result=SendResult,
        scope="write",
        effect="session",
    ),
    _tool(
        name="sessions.status",
        tool="session_status",
        title="Show a session's status",
        description="Show what a session does now: agent, channel, state, running turn, "
        "waiting messages. Use it to see whether one is busy. Example: "
        '{"sessionKey": "3f9a1c2b"}.',
        params=StatusParams,
        result=StatusResult,
        scope="read",
        effect="none",
    ),
    Tool(
        name="agents.list",
        tool="agents_list",
        title="List agents",
        groups=("agents",),
        owner_only=False,
        approvable=False,
        description="List the agents with runtime and model; `isSelf` marks yours. Use it to "
        "choose an agentId for sessions_spawn.",
        params=NoParams,
        result=AgentsResult,
        scope="read",
        effect="none",
    ),
)
