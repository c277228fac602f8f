"""Methods about sessions, which are conversations of people with agents."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from remoteclaw.tools.base import (
    Id,
    Limit,
    MessageText,
    Method,
    Params,
    Result,
    SentFile,
    Text,
    Tool,
    check_characters,
)

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


class SessionParams(Params):
    session_key: SessionKeyText


class ListSessionsParams(Params):
    filter: Annotated[str, Field(max_length=200)] | None = None
    """Only sessions whose key, label or title contains this, in any case."""
    limit: Limit = 50
    """The maximum number of sessions."""


class SearchParams(ListSessionsParams):
    """The parameters of operators: agents have those of `ListSessionsParams`."""

    filter: Annotated[str, Field(max_length=200)] | None = None
    """Only sessions whose key, label, title or messages contain this, in any case."""
    state: Literal["idle", "scheduled", "running", "terminal", "requests"] | None = None
    """Only sessions in this state; `requests`: whose agent waits for a person's answer."""
    channel: Id | None = None
    """Only sessions on this channel."""
    agent: Id | None = None
    """Only sessions of this agent."""
    usage: bool = False
    """Whether to return the usage of each session."""


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
    is_postponed: bool = False
    """Whether the session waits itself, and not only the turn that is kept behind its terminal."""


class Excerpt(Result):
    """The newest match of a query in the record of a session."""

    at: int
    """The time of the message, in milliseconds since 1970."""
    who: str
    """The sender's name; `agent` for the agent."""
    text: str
    """The part of the message around the match."""


class ContextUse(Result):
    """The size of a conversation after its last turn."""

    used: int
    """In tokens."""
    limit: int
    """The number of tokens that the model takes."""
    percent: int


class FoundSession(SessionFacts, PauseFacts):
    is_self: bool
    """Whether this is the session of the call."""
    label: str | None = None
    title: str | None = None
    """The first words of the session's conversation."""
    requests: int | None = None
    """How many requests of the session's agent wait for a person's answer. This field and those
    below it are for operators, as is why and until when messages wait."""
    model: str | None = None
    """The model of the next turn; absent if the CLI chooses."""
    context: ContextUse | None = None
    """The size of the conversation; absent if it is new, or if the CLI does not report it."""
    usage: dict[str, Any] | None = None
    """The usage of the session, if it was asked for: turns, asides, tokens, milliseconds and US
    dollars."""
    excerpt: Excerpt | None = None
    """The newest match in a message; absent if only the key, label or title has the query."""


class SessionsResult(Result):
    sessions: tuple[FoundSession, ...]
    """The sessions, newest first; for operators, first those that wait for a person's answer."""
    is_complete: bool
    """False if there are more sessions than `limit`."""
    searched: int | None = None
    """How many of the newest sessions were searched; absent if all were."""
    channels: tuple[str, ...] | None = None
    """The configured channels, and those of the searched sessions; only for operators."""
    agents: tuple[str, ...] | None = None
    """The configured agents, and those of the searched sessions; only for operators."""


class ShowParams(Params):
    session_key: SessionKeyText | None = None
    """Another session's key; else this session."""


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
    turn: str | None = None
    """The reference of the running turn."""
    phase: str | None = None
    """How far the running turn is: `accepted`, `spawned` (the agent has the message), `output` (it
    answers), `tool` (it has used a tool), or `postponed`."""
    host: str | None = None
    """The host on which the session's agent runs."""
    label: str | None = None
    """The session's label. This field and those below it are for operators, as is why and until
    when messages wait."""
    title: str | None = None
    """The first words of the session's conversation."""
    model: str | None = None
    """The model of the next turn; absent if the CLI chooses."""
    context: ContextUse | None = None
    """The size of the conversation; absent if it is new, or if the CLI does not report it."""
    fallback_by: str | None = None
    """The fallback that was asked last in place of the agent or its model, as in the agent's
    `fallbacks`; absent if none was."""
    fallback_for: str | None = None
    """Why it was asked, as people read it."""
    fallback_until_ms: int | None = None
    """When the provider accepts requests again, in milliseconds since 1970; absent if unknown."""
    project: str | None = None
    """The project in which the agent works; absent for its workspace."""
    started_by: str | None = None
    """The key of the session that has started this one as a task."""
    has_started: tuple[StartedTask, ...] | None = None
    """The tasks that this session has started."""
    worker: str | None = None
    """The process that runs the session's turn."""
    lane: str | None = None
    """The lane of the session's messages, `agents` or `background`."""
    conversations: dict[str, str] | None = None
    """The conversations that agents' CLIs have of the session: ids, by AGENT|RUNTIME|WORKSPACE."""
    identity: str | None = None
    """Which identity files have changed since the conversation began."""
    queue: QueueSettings | None = None
    usage: dict[str, Any] | None = None
    """The usage of the session: turns, asides, tokens, milliseconds and US dollars."""


class SessionHistoryParams(Params):
    session_key: SessionKeyText
    limit: Limit = 50
    """How many of the newest items."""
    before: Annotated[int, Field(ge=10**12, lt=10**14)] | None = None
    """The `before` of the last result, for older items."""


class AnyHistoryParams(SessionHistoryParams):
    """The parameters of operators: agents have those of `SessionHistoryParams`."""

    ended_ms: Annotated[int, Field(ge=10**12, lt=10**14)] | None = None
    """The id of an ended conversation, from `sessions.archive`; else the current one is read."""


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
    """The id of the message, for `outcomes.wait` and `sessions.trace`."""
    reply: str | None = None
    """The agent's answer."""
    error: str | None = None
    """Why there is no answer."""
    note: str | None = None
    """Why the call did not wait as long as `timeout` says."""


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
    """A message to a session as an operator, or in the name of a sender."""

    message: MessageText
    """The text of the message."""
    session_key: SessionKeyText | None = None
    """The session to write in as an operator, instead of `channel` and `from`."""
    to_caller: bool = False
    """With `sessionKey`: put the answer only into the message's outcome, and not into the chat."""
    channel: Id | None = None
    """The channel on which the message counts as sent. Its answer is only in its outcome."""
    from_: Annotated[Id | None, Field(validation_alias="from", serialization_alias="from")] = None
    """The sender's id on the channel."""
    to: Id | None = None
    """The sender's chat; else the direct chat of the sender. This parameter and those below it are
    for messages of a sender."""
    account: Id = "default"
    """The account of the channel."""
    thread_id: Id | None = None
    """The thread or topic of the chat."""
    agent_id: Id | None = None
    """The agent; else the one that answers in the chat."""
    message_id: Id | None = None
    """The message's id: a second call with the same id does not send the message again."""
    files: Annotated[list[SentFile], Field(max_length=10)] = Field(default_factory=list)
    """Files that were stored with `POST /files` before."""
    is_background: bool = False
    """Use the lane `background`, which runs after people's messages."""


class Written(Result):
    session_key: str
    run_id: str
    """The id of the message, for `outcomes.wait` and `sessions.trace`."""
    who: str | None = None
    """The operator's name, as the agent, the chat and the record have it; absent for a sender."""
    is_duplicate: bool | None = None
    """Whether a message of the sender with the same `messageId` was accepted before; nothing was
    sent now. Absent for an operator's message."""


class Stopped(Result):
    stopped: int
    """How many messages will not be answered."""
    unsent: int
    """How many messages of the answer were not sent yet, and are dropped."""


class Retried(Result):
    retried: bool
    """Whether the session was postponed."""


class ResetParams(Params):
    session_key: SessionKeyText
    reason: Literal["new", "reset"] = "reset"
    """The reason in the list of ended conversations."""


class ResetResult(Result):
    session_key: str


class Subscribed(Result):
    session_key: str


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


#: A tool for sessions, which is for everybody.
_tool = partial(Tool, groups=("sessions",), owner_only=False, approvable=False)


METHODS = (
    _tool(
        name="sessions.search",
        tool="sessions_list",
        title="List sessions",
        description="List the sessions (conversations) that you may see, newest first: key, "
        'channel, state, label. Use it to find a sessionKey. Example: {"filter": '
        '"telegram"}.',
        params=SearchParams,
        agent_params=ListSessionsParams,
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
        params=AnyHistoryParams,
        agent_params=SessionHistoryParams,
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
        name="sessions.show",
        tool="session_status",
        title="Show a session's status",
        description="Show what a session does now: agent, channel, state, running turn, "
        "waiting messages. Use it to see whether one is busy. Example: "
        '{"sessionKey": "3f9a1c2b"}.',
        params=ShowParams,
        result=SessionDetails,
        scope="read",
        effect="none",
    ),
    Method(
        name="sessions.write",
        description="Send a message to a session as an operator, or to an agent as if it had "
        "arrived on a channel. The agent and the people in the session's chat see the operator's "
        "name, and the answer goes to that chat. To write in a chat, or as an owner, the token "
        "needs the scope admin.",
        params=WriteParams,
        result=Written,
        scope="write",
        effect="session",
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
        name="sessions.archive",
        description="List a session's ended conversations.",
        params=SessionParams,
        result=ArchiveResult,
        scope="read",
    ),
    Method(
        name="sessions.stop",
        description="Stop the running turn of a session, and drop the messages that wait in it.",
        params=SessionParams,
        result=Stopped,
        scope="write",
        effect="session",
    ),
    Method(
        name="sessions.retry",
        description="Ask the agent of a postponed session again now, before the announced time.",
        params=SessionParams,
        result=Retried,
        scope="write",
        effect="session",
    ),
    Method(
        name="sessions.reset",
        description="End the conversation of a session: stop its turn, drop waiting messages, and "
        "archive the record; the next message begins a new conversation. If that takes longer than "
        "15 seconds, the answer is TIMEOUT, and the conversation ends as soon as possible.",
        params=ResetParams,
        result=ResetResult,
        scope="admin",
        effect="session",
        destroys=True,
    ),
    Method(
        name="sessions.subscribe",
        description="Subscribe this connection to the events of a session: the partial text of its "
        "answers, and each outcome.",
        params=SessionParams,
        result=Subscribed,
        scope="read",
    ),
    Method(
        name="sessions.unsubscribe",
        description="End this connection's subscription to the events of a session.",
        params=SessionParams,
        result=Subscribed,
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
