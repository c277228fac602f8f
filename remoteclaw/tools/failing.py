"""The part of `fleet.status` about turns that failed lately."""

from remoteclaw.tools.base import Result


class FailedTurns(Result):
    """The turns of an agent that failed with one category, and the newest of them."""

    category: str
    count: int
    """How many turns failed; the other fields are about the newest one."""
    at_ms: int
    """When it failed."""
    reference: str
    """Its reference, for `remoteclaw sessions trace` and `remoteclaw logs --session`."""
    session_key: str | None = None
    """Its session; absent if its state has expired."""
    title: str | None = None
    """The session's label or title."""
    host: str
    """The host on which it ran."""
    reason: str
    """Why it failed, as the agent's CLI has said, without secrets; may be empty."""


class FailingAgent(Result):
    """An agent of which turns failed within the last day; of all agents, the last 200 are known."""

    agent: str
    failed: int
    answered: int
    """How many turns were answered since the first of those that failed."""
    in_a_row: int
    """How many turns have failed since the last answer."""
    line: str
    """How many of its last turns failed, in words."""
    categories: tuple[FailedTurns, ...]
    """The failed turns by category, the newest first."""
