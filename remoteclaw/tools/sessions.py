"""Methods about sessions, which are conversations of people with agents."""

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
#: The maximum `timeout` of a call that waits, in seconds.
MAX_WAIT_S = 110.0
#: The maximum time that sessions_send waits, in seconds. claude and gemini (over HTTP) and opencode
#: abandon a call after 60; the model would believe that it failed, and ask the other agent again.
SEND_WAIT_S = 50.0


class ListSessionsParams(Params):
    filter: Annotated[str, Field(max_length=200)] | None = None
    """Only sessions whose key, label or title contains this, in any case."""
    limit: Limit = 50
    """The maximum number of sessions."""


class SessionFacts(Result):
    key: str
    """The session's key: agent/channel/account/chat:user:thread."""
    id: str
    agent: str
    channel: str
    state: str
    """`idle`, `scheduled` (a worker will take it), `running`, or `terminal` while it is open in a
    terminal."""
    waiting: int
    """How many messages have no answer yet, including those of the running turn."""
    last_message_ms: int
    """The time of the session's last message, in milliseconds since 1970."""


class PauseFacts(Result):
    """Fields of results about a session whose messages may be postponed."""

    postponed: str | None = None
    """Why the session's messages wait although a worker may be free, as the category of an error;
    absent if they don't."""
    postponed_for: str | None = None
    """The same, as people read it."""
    postponed_until_ms: int | None = None
    """Until when they wait, in milliseconds since 1970."""


class SessionSummary(SessionFacts):
    is_self: bool
    """Whether this is the session of the call."""
    label: str | None = None
    title: str | None = None
    """The first words of the session's conversation."""


class SessionsResult(Result):
    sessions: tuple[SessionSummary, ...]
    """The sessions, newest first."""
    is_complete: bool
    """False if there are more sessions than `limit`."""


class SessionHistoryParams(Params):
    session_key: SessionKeyText
    limit: Limit = 50
    """How many of the newest items."""
    before: Annotated[int, Field(ge=10**12, lt=10**14)] | None = None
    """The `before` of the last result, for older items."""


class HistoryStep(Result):
    text: str
    state: str
    """`pending`, `in_progress` or `completed`."""


class HistoryItem(Result):
    at: int
    """The time of the item, in milliseconds since 1970."""
    role: str
    """`user`, `agent`, `tool` or `error`; for operators also `plan` and `notice`."""
    text: str = ""
    """The text of a message; the result of a tool."""
    from_: Annotated[str | None, Field(serialization_alias="from")] = None
    """The sender's name, which people choose themselves; absent if it is unknown."""
    from_id: str | None = None
    """The sender's id, which identifies a person."""
    tool: str | None = None
    """The name of the tool that was used."""
    turn: str | None = None
    """The id of the item's turn. This field and those below it are for operators; agents don't get
    them."""
    id: str | None = None
    """The id of a person's message, of a tool's call as in live text, or of an item of a terminal
    as in its events."""
    argument: str | None = None
    """A tool's main argument, on one line."""
    input: str | None = None
    """A tool's arguments as JSON, or the beginning of it."""
    is_error: bool | None = None
    """Whether a tool failed."""
    since_ms: int | None = None
    """When a tool began, in milliseconds since 1970."""
    seconds: float | None = None
    """How long a tool ran."""
    steps: tuple[HistoryStep, ...] | None = None
    """The steps of a plan."""
    is_terminal: bool | None = None
    """Whether the item is of the session's terminal, and so not of its chat."""


class HistoryResult(Result):
    session_key: str
    items: tuple[HistoryItem, ...]
    """The items, oldest first. There can be more than `limit`: items of the same millisecond are
    never split."""
    before: int | None = None
    """The value of `before` for a call that returns older items; absent if there are none."""


class SendToSessionParams(Params):
    session_key: SessionKeyText | None = None
    label: Label | None = None
    """Or the session's label."""
    message: Text
    """What to say to the session's agent."""
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 30
    """How many seconds to wait for the answer, 50 at most; 0 does not wait."""


class SendResult(Result):
    status: Literal["answered", "accepted", "failed"]
    """`answered`: see `reply`. `accepted`: the session has the message, and hasn't answered yet.
    `failed`: see `error`."""
    session_key: str
    run_id: str
    """The id of the message, for `agent.wait` and `sessions.trace`."""
    reply: str | None = None
    """The agent's answer."""
    error: str | None = None
    """Why there is no answer."""
    note: str | None = None
    """Why the call did not wait as long as `timeout` says."""


class StatusParams(Params):
    session_key: SessionKeyText | None = None
    """Another session's key; else this session."""


class StatusResult(SessionFacts):
    turn: str | None = None
    """The reference of the running turn."""
    phase: str | None = None
    """How far the running turn is: `accepted`, `spawned` (the agent has the message), `output` (it
    answers), `tool` (it has used a tool), or `postponed`."""
    host: str | None = None
    """The host on which the session's agent runs."""


class AgentSummary(Result):
    id: str
    """The agent's name."""
    runtime: str
    """The agent's CLI."""
    model: str | None = None
    """The configured model; absent if the CLI chooses."""
    is_self: bool
    """Whether this is the agent of the call."""


class AgentsResult(Result):
    agents: tuple[AgentSummary, ...]


#: A tool for sessions, which is for everybody.
_tool = partial(Tool, groups=("sessions",), owner_only=False, approvable=False)

METHODS = (
    _tool(
        name="sessions.list",
        tool="sessions_list",
        title="List sessions",
        description="List the sessions (conversations) that you may see, newest first: key, "
        'channel, state, label. Use it to find a sessionKey. Example: {"filter": '
        '"telegram"}.',
        params=ListSessionsParams,
        result=SessionsResult,
        scope="read",
        effect="none",
    ),
    _tool(
        name="sessions.history",
        tool="sessions_history",
        title="Read a session's history",
        description="Read what was said in a session, oldest first: time, role, text, tools "
        "used. Use it to catch up, or for an answer that sessions_send did not "
        'wait for. Example: {"sessionKey": "3f9a1c2b"}.',
        params=SessionHistoryParams,
        result=HistoryResult,
        scope="read",
        effect="none",
    ),
    _tool(
        name="sessions.send",
        tool="sessions_send",
        title="Send to a session",
        description="Ask another session's agent and wait for its answer, which is returned "
        "as `reply`. Nothing goes to that session's chat. With status "
        '`accepted`, it comes later: see `note`. Example: {"label": "research", '
        '"message": "What have you found?"}.',
        params=SendToSessionParams,
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
