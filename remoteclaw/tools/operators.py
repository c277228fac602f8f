"""Methods that only operators have: looking at the fleet, giving it messages, stopping."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, NoParams, Params, Result, Text
from remoteclaw.tools.sessions import MAX_WAIT_S, SendResult, SessionKeyText


class Health(Result):
    status: Literal["ok"]
    version: str


class FleetStatus(Result):
    workers: int
    """How many rq workers of ours serve the queues."""
    hints: int
    """How many hints wait for a worker."""
    busy_sessions: int
    dead_letters: int
    has_sweeper: bool
    config_problem: str | None
    """What is wrong with this host's configuration file; what runs goes on with what it had."""


class AgentParams(Params):
    message: Text
    channel: Id
    from_: Annotated[Id, Field(validation_alias="from", serialization_alias="from")]
    """Who says it, on that channel."""
    to: Id | None = None
    """The chat; else the sender's own."""
    account: Id = "default"
    thread_id: Id | None = None
    agent_id: Id | None = None
    message_id: Id | None = None
    """The message's own id: the same one again is the same message."""


class AgentAccepted(Result):
    session_key: str
    run_id: str
    is_duplicate: bool


class WaitParams(Params):
    run_id: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}-\d{1,20}-\d{1,20}$")]
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 30
    """In seconds."""


class SessionParams(Params):
    session_key: SessionKeyText


class Subscribed(Result):
    session_key: str


class Stopped(Result):
    stopped: int
    """How many messages are not answered any more."""


class ResetParams(Params):
    session_key: SessionKeyText
    reason: Literal["new", "reset"] = "reset"
    """What the list of ended conversations says of it."""


class ResetResult(Result):
    session_key: str


METHODS = (
    Method(
        name="health",
        description="Say that the gateway answers.",
        params=NoParams,
        result=Health,
        scope="read",
    ),
    Method(
        name="status",
        description="Say what runs: workers, hints that wait, sessions at work.",
        params=NoParams,
        result=FleetStatus,
        scope="read",
    ),
    Method(
        name="agent",
        description="Give a message to an agent, as a channel's adapter would; `agent.wait` "
        "returns its reply.",
        params=AgentParams,
        result=AgentAccepted,
        scope="write",
        effect="session",
    ),
    Method(
        name="agent.wait",
        description="Wait for what became of a message.",
        params=WaitParams,
        result=SendResult,
        scope="read",
    ),
    Method(
        name="sessions.stop",
        description="Stop what a session has accepted so far.",
        params=SessionParams,
        result=Stopped,
        scope="write",
        effect="session",
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
        name="sessions.subscribe",
        description="Have events of a session sent over this connection: its answers as far as "
        "they have come, and each outcome.",
        params=SessionParams,
        result=Subscribed,
        scope="read",
    ),
    Method(
        name="sessions.unsubscribe",
        description="Have no more events of a session sent over this connection.",
        params=SessionParams,
        result=Subscribed,
        scope="read",
    ),
)
