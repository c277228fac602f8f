"""The method about what turns took: tokens, time and cost."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Method, Params, Result


class UsageParams(Params):
    by: Literal["agent", "session", "day"] = "agent"
    """What to add up for."""
    days: Annotated[int, Field(ge=1, le=92)] = 30
    """How many days, today included, in the workers' time zone."""


class UsageRow(Result):
    name: str
    """The agent; the session's key, or its id if no more is known of it; the day as ISO 8601."""
    title: str | None = None
    """What the session is called."""
    turns: int
    input_tokens: int
    """Tokens that the model read and that were in no cache."""
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    duration_ms: int
    cost_usd: float | None
    """Where the agent's CLI says what a turn costs."""


class UsageResult(Result):
    rows: tuple[UsageRow, ...]
    """Days in their order; agents and sessions by how much they read and wrote."""


METHODS = (
    Method(
        name="usage",
        description="Add up the tokens, the time and the cost of turns by agent, session or day.",
        params=UsageParams,
        result=UsageResult,
        scope="read",
    ),
)
