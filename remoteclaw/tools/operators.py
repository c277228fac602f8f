"""Methods for operators: read the state, send messages, stop, reset and follow sessions."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, NoParams, Params, Result, Text
from remoteclaw.tools.sessions import MAX_WAIT_S, SendResult, SessionKeyText


class Health(Result):
    status: Literal["ok"]
    version: str


class FleetStatus(Result):
    workers: int
    """The number of workers that `remoteclaw worker` or `remoteclaw up` has started."""
    hints: int
    """The number of hints that wait for a worker."""
    busy_sessions: int
    """The number of sessions that run a turn or wait for a worker."""
    dead_letters: int
    """The number of dead letters."""
    has_sweeper: bool
    """Whether a sweeper runs."""
    config_problem: str | None
    """What is wrong with the configuration file of the gateway's host; running processes keep the
    last valid configuration. Null if the file is valid."""


class AgentParams(Params):
    message: Text
    channel: Id
    """The channel on which the message counts as sent."""
    from_: Annotated[Id, Field(validation_alias="from", serialization_alias="from")]
    """The sender's id on the channel."""
    to: Id | None = None
    """The chat; else the direct chat of the sender."""
    account: Id = "default"
    """The account of the channel."""
    thread_id: Id | None = None
    """The thread or topic of the chat."""
    agent_id: Id | None = None
    """The agent; else `main`, or the first agent if there is no `main`."""
    message_id: Id | None = None
    """The message's id: a second call with the same id does not send the message again."""


class AgentAccepted(Result):
    session_key: str
    run_id: str
    """The id of the message, for `agent.wait` and `sessions.trace`."""
    is_duplicate: bool
    """Whether a message with the same `messageId` was accepted before; nothing was sent now."""


class WaitParams(Params):
    run_id: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}-\d{1,20}-\d{1,20}$")]
    """The id of a message."""
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 30
    """How many seconds to wait for the reply."""


class SessionParams(Params):
    session_key: SessionKeyText


class Subscribed(Result):
    session_key: str


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


METHODS = (
    Method(
        name="health",
        description="Return `ok` and the version of the gateway.",
        params=NoParams,
        result=Health,
        scope="read",
    ),
    Method(
        name="status",
        description="Show the numbers of workers, waiting hints, busy sessions and dead letters, "
        "and problems.",
        params=NoParams,
        result=FleetStatus,
        scope="read",
    ),
    Method(
        name="agent",
        description="Send a message to an agent, as if it had arrived on a channel; `agent.wait` "
        "returns the reply.",
        params=AgentParams,
        result=AgentAccepted,
        scope="write",
        effect="session",
    ),
    Method(
        name="agent.wait",
        description="Wait for the outcome of a message, and return it.",
        params=WaitParams,
        result=SendResult,
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
)
