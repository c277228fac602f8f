"""Methods about RemoteClaw itself, and those that only operators have."""

from typing import Annotated, Any, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, NoParams, Params, Result, Text
from remoteclaw.tools.sessions import MAX_WAIT_S, SendResult, SessionKeyText

__all__ = ["METHODS"]


class ConfigGetParams(Params):
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")] | None = None
    """A part of it, such as agents.main.model; else all of it."""


class ConfigResult(Result):
    config: Any
    """The configuration, without what is secret; null for a key that is not set."""
    hash: str | None = None
    """Changes with the file; absent if it can't be used."""
    problem: str | None = None
    """What is wrong with the file, if it is not what holds."""


class SchemaResult(Result):
    schema_: Annotated[dict[str, Any], Field(serialization_alias="schema")]
    """The JSON schema of the configuration."""


Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ApplyParams(Params):
    config: dict[str, Any]
    """All of it; what gateway_config_get shows as *** and is left so stays."""
    base_hash: Hash
    """The hash from gateway_config_get; refused if the file has changed since."""


class PatchParams(Params):
    patches: dict[str, Any]
    """A JSON merge patch: null removes a key, a list replaces the one before."""
    base_hash: Hash | None = None
    """The hash from gateway_config_get; refused if the file has changed since."""


class Changed(Result):
    status: Literal["applied", "unchanged", "needs_confirmation"]
    hash: str
    """What the file's hash is now."""
    changed: tuple[str, ...] = ()
    """The keys that are, or would be, changed."""
    needs_restart: tuple[str, ...] = ()
    """Those of them that hold after a restart, each with what has to be restarted; all others hold
    with the next call or turn."""
    overridden_by: tuple[str, ...] = ()
    """Variables of the gateway's environment that hide what was changed."""
    confirmation_id: str | None = None
    """Under which a person confirms it, if they have to."""
    detail: str | None = None


class PendingChange(Result):
    """A change that an agent has asked for, and a person has to confirm."""

    id: str
    host: str
    """The host whose configuration file it changes."""
    tool: str
    patch: Any
    """The change, as a JSON merge patch."""
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]
    session_key: str
    senders: tuple[str, ...]
    """The ids of those for whom the agent asks."""
    asked_ms: int
    expires_ms: int


class PendingResult(Result):
    changes: tuple[PendingChange, ...]
    """Oldest first."""


class ChangeParams(Params):
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]


class Rejected(Result):
    status: Literal["rejected"]


class Restarted(Result):
    status: Literal["restarting"]
    detail: str


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


class SubscribeParams(Params):
    session_key: SessionKeyText


class Subscribed(Result):
    session_key: str


class Stopped(Result):
    stopped: int
    """How many messages are not answered any more."""


class ToolDescription(Result):
    name: str
    title: str
    description: str
    groups: tuple[str, ...]
    """The groups that it belongs to, in policies."""
    owner_only: bool
    """Whether agents may use it only in turns of the owner."""


class Catalog(Result):
    tools: tuple[ToolDescription, ...]


def _tool(name: str, tool: str, title: str, description: str, **more: Any) -> Method:
    return Method(
        name=name,
        tool=tool,
        title=title,
        description=description,
        **more,
    )


METHODS = (
    _tool(
        "gateway.restart",
        "gateway_restart",
        "Restart the gateway",
        "Restart the gateway of this host, which answers these tools, and nothing"
        " else. Use it when `needsRestart` of a change names it. Tools work again"
        " a moment later.",
        params=NoParams,
        result=Restarted,
        scope="admin",
        effect="system",
    ),
    _tool(
        "config.get",
        "gateway_config_get",
        "Read the configuration",
        "Read RemoteClaw's configuration, without secrets, with the `hash` for a "
        "change. Use it before a change, or to say how something is set. Example:"
        ' {"key": "queue.mode"}.',
        params=ConfigGetParams,
        result=ConfigResult,
        scope="read",
    ),
    _tool(
        "config.apply",
        "gateway_config_apply",
        "Replace the configuration",
        "Replace the whole configuration. For some settings, gateway_config_patch"
        " is simpler; what it says of agents and results holds here too.",
        params=ApplyParams,
        result=Changed,
        scope="admin",
        effect="system",
        destroys=True,
    ),
    _tool(
        "config.patch",
        "gateway_config_patch",
        "Change the configuration",
        "Change settings of RemoteClaw ('use another model'). Agents may change "
        "only what gateway_config_schema marks with agentsMayChange. Returns what"
        " changed, what needs a restart, and whether a person must confirm it. "
        'Example: {"patches": {"queue": {"mode": "steer"}}}.',
        params=PatchParams,
        result=Changed,
        scope="admin",
        effect="system",
        destroys=True,
    ),
    _tool(
        "config.schema",
        "gateway_config_schema",
        "Show all settings",
        "Show all that can be configured, as a JSON schema with descriptions. Use"
        " it to find a setting's name and values before a change. It is long.",
        params=NoParams,
        result=SchemaResult,
        scope="read",
    ),
    Method(
        name="config.pending",
        description="List the changes of configurations that wait to be confirmed.",
        params=NoParams,
        result=PendingResult,
        scope="read",
    ),
    Method(
        name="config.confirm",
        description="Do a change that waits, if the file is still what it was made for.",
        params=ChangeParams,
        result=Changed,
        scope="admin",
        effect="system",
        destroys=True,
    ),
    Method(
        name="config.reject",
        description="Have a change that waits never done.",
        params=ChangeParams,
        result=Rejected,
        scope="admin",
        effect="system",
    ),
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
        name="tools.catalog",
        description="List the tools that agents can be given.",
        params=NoParams,
        result=Catalog,
        scope="read",
    ),
    Method(
        name="agent",
        description="Give a message to an agent, as a channel's adapter would; its reply is for "
        "whoever waits for the run.",
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
        params=SubscribeParams,
        result=Stopped,
        scope="write",
        effect="session",
    ),
    Method(
        name="sessions.subscribe",
        description="Have events of a session sent over this connection: its answers as far as "
        "they have come, and each outcome.",
        params=SubscribeParams,
        result=Subscribed,
        scope="read",
    ),
    Method(
        name="sessions.unsubscribe",
        description="Have no more events of a session sent over this connection.",
        params=SubscribeParams,
        result=Subscribed,
        scope="read",
    ),
)
