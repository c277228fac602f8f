"""The method `usage`: the tokens, the time and the cost of turns."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Method, Params, Result
from remoteclaw.tools.budgets import BudgetState


class UsageParams(Params):
    by: Literal["agent", "session", "day", "hour"] = "agent"
    """What a row is the sum of."""
    days: Annotated[int, Field(ge=1, le=92)] = 30
    """The number of days, including today, in the time zone of the installation. By `hour`, each
    day is 24 hours, of which the current one is the last; the last eight days are known."""


class UsageShare(Result):
    """One agent's part of a day or an hour."""

    agent: str
    turns: int
    tokens: int
    """The tokens that were read, from a cache or not, and written."""
    cost_usd: float | None


class UsageRow(Result):
    name: str
    """The agent; the session's key, or its id if the key has expired; or the day, or the start of
    the hour, as ISO 8601."""
    title: str | None = None
    """The session's label or title."""
    turns: int
    asides: int
    """The number of messages that were answered or judged during a turn."""
    input_tokens: int
    """The tokens that the model read and that were in no cache."""
    cache_read_tokens: int
    """The tokens that the model read from the provider's cache."""
    cache_write_tokens: int
    """The tokens that were written to the provider's cache."""
    output_tokens: int
    estimated_tokens: int
    """How many of the tokens are estimated, because the agent's CLI doesn't report them."""
    duration_ms: int
    """The duration of the turns."""
    cost_usd: float | None
    """The cost of the turns; null if the agent's CLI doesn't report costs."""
    wait_ms: int | None = None
    """Of a day or an hour: how long the first message of a turn that ended then had waited for the
    turn to begin, at most. Known for the last eight days."""
    agents: tuple[UsageShare, ...] | None = None
    """Of a day or an hour: the part of each agent."""


class UsageResult(Result):
    rows: tuple[UsageRow, ...]
    """Days and hours in their order, without those in which nothing was used; agents and sessions
    by their tokens, largest first."""
    periods: tuple[str, ...] = ()
    """By day or hour: the names of all that were asked for, in their order."""
    budgets: tuple[BudgetState, ...] = ()
    """The budgets of this day and this month, in the order of the configuration; of `person:*`,
    those of the 50 people who have used the most tokens this month."""


METHODS = (
    Method(
        name="usage",
        description="Return the tokens, the time and the cost of turns by agent, session, day or "
        "hour.",
        params=UsageParams,
        result=UsageResult,
        scope="read",
    ),
)
