"""The usage of turns: tokens, time and cost, summed by agent, session and day.

The script `finish` adds the usage of a turn in the step that ends the turn, so each turn counts
once.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import date, timedelta
from typing import Any, Literal, Self

from remoteclaw.events import AgentRunResult
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: The sums of a session are kept for this many days, a quarter, at about 150 bytes per day.
USAGE_DAYS = 92


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of one or more turns."""

    turns: int = 0
    input_tokens: int = 0
    """Input tokens that were not read from a cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    duration_ms: int = 0
    """The sum of the turns' durations, in milliseconds."""
    cost_micro_usd: int = 0
    """The cost in millionths of a US dollar; 0 if the CLI reports none."""

    @classmethod
    def of(cls, run: AgentRunResult) -> Self:
        """Return the usage of one turn."""
        usage = run.usage
        return cls(
            turns=1,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            duration_ms=run.duration_ms,
            cost_micro_usd=round((run.total_cost_usd or 0) * 1_000_000),
        )

    @classmethod
    def decode(cls, numbers: bytes | str | None) -> Self:
        """Return the usage from its stored form: the numbers in the order of the fields."""
        return cls(*map(int, (numbers or "").split()))

    def encode(self) -> str:
        """Return the stored form."""
        return " ".join(map(str, astuple(self)))

    def plain(self) -> dict[str, Any]:
        """Return the usage as JSON for programs: tokens, milliseconds, US dollars."""
        return {
            "turns": self.turns,
            "inputTokens": self.input_tokens,
            "cacheReadTokens": self.cache_read_tokens,
            "cacheWriteTokens": self.cache_write_tokens,
            "outputTokens": self.output_tokens,
            "durationMs": self.duration_ms,
            "costUsd": self.cost_usd,
        }

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Usage(*(one + another for one, another in pairs))

    @property
    def cost_usd(self) -> float | None:
        """The cost in US dollars; None if no CLI reported a cost."""
        return self.cost_micro_usd / 1_000_000 or None

    @property
    def new_tokens(self) -> int:
        """The input and output tokens, without those that were read from a cache."""
        return self.input_tokens + self.cache_write_tokens + self.output_tokens

    @property
    def read_tokens(self) -> int:
        """All input tokens, from a cache or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True)
class SessionDay:
    """The usage of one session on one day, in the time zone of the worker."""

    day: date
    agent: str
    sid: str
    usage: Usage


def sum_usage(
    session_days: Sequence[SessionDay], *, by: Literal["agent", "session", "day"]
) -> dict[str, Usage]:
    """Return the sums by agent, session id or day.

    Days are in chronological order, agents and sessions in descending order of their tokens.
    """
    sums: dict[str, Usage] = {}
    for each in session_days:
        name = {"agent": each.agent, "session": each.sid, "day": each.day.isoformat()}[by]
        sums[name] = sums.get(name, Usage()) + each.usage
    if by == "day":
        return sums
    by_size = sorted(sums.items(), key=lambda row: row[1].read_tokens + row[1].output_tokens)
    return dict(reversed(by_size))


class UsageLedger:
    """Reads the stored sums."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def days(self, *, days: int) -> list[SessionDay]:
        """Return the usage of each session on each of the last `days`, oldest first."""
        dates, session_days = last_days(days), []
        sums = await self._scripts.run_pipeline(
            lambda ask: [ask.hgetall(keys.usage_day(day.isoformat())) for day in dates]
        )
        for day, by_session in zip(dates, sums, strict=True):
            for field, numbers in by_session.items():
                agent, _, sid = field.decode().rpartition(" ")
                session_days.append(SessionDay(day, agent, sid, Usage.decode(numbers)))
        return session_days

    async def by_session(self) -> dict[str, Usage]:
        """Return the usage of each session within `USAGE_DAYS`, by session id."""
        return sum_usage(await self.days(days=USAGE_DAYS), by="session")

    async def session(self, agent: str, sid: str) -> Usage:
        """Return the usage of one session within `USAGE_DAYS`."""
        dates, field = last_days(USAGE_DAYS), f"{agent} {sid}"
        sums = await self._scripts.run_pipeline(
            lambda ask: [ask.hget(keys.usage_day(day.isoformat()), field) for day in dates]
        )
        return sum((Usage.decode(numbers) for numbers in sums), Usage())

    async def agents(self) -> dict[str, Usage]:
        """Return the usage of each agent since its first turn."""
        client = self._scripts.client
        sums = await self._scripts.call(client.hgetall, keys.USAGE)
        return {agent.decode(): Usage.decode(numbers) for agent, numbers in sums.items()}


def last_days(count: int) -> list[date]:
    """Return the last `count` days, today included, and tomorrow; oldest first.

    Tomorrow is included since a worker in another time zone may be a day ahead.
    """
    tomorrow = date.today() + timedelta(days=1)  # noqa: DTZ011 - people read local days
    return [tomorrow - timedelta(days=back) for back in range(count, -1, -1)]
