"""Methods about a host: drain it before it is stopped, look at it, and let it work again."""

from remoteclaw.tools.base import Id, Method, Params, Result
from remoteclaw.tools.fleet import SessionAtWork, Worker


class HostParams(Params):
    host: Id | None = None
    """The name of a host with workers, or the start of its id; else the gateway's host."""


class OpenTerminalOnHost(Result):
    session_key: str
    name: str
    """The session's label or title; empty if it has neither."""
    opened_by: str
    """The name of the user who opened the terminal."""
    viewers: int
    """The number of connections that watch the terminal."""


class DrainedHost(Result):
    host: str
    """The host's name."""
    id: str
    """The id of the host's state directory."""
    since_ms: int | None
    """Since when the host is drained, in milliseconds since 1970; null if it isn't."""
    workers: tuple[Worker, ...]
    """The workers of the host that have not ended yet."""
    turns: tuple[SessionAtWork, ...]
    """The sessions whose turn runs on the host."""
    terminals: tuple[OpenTerminalOnHost, ...]
    """The open terminals on the host, which end when it goes down."""


METHODS = (
    Method(
        name="hosts.drain",
        description="Drain a host: its workers finish their turns and end, and new ones wait. The "
        "result says what still runs; `hosts.get` shows the progress.",
        params=HostParams,
        result=DrainedHost,
        scope="admin",
        effect="system",
    ),
    Method(
        name="hosts.get",
        description="Return whether a host is drained, and what runs there.",
        params=HostParams,
        result=DrainedHost,
        scope="admin",
    ),
    Method(
        name="hosts.resume",
        description="Undo `hosts.drain`: the workers of a host take work again.",
        params=HostParams,
        result=DrainedHost,
        scope="admin",
        effect="system",
    ),
)
