"""The usage of turns and asides: tokens, time and cost, summed by agent, session and day.

The script that ends a turn or an aside adds its usage in the same step, so each counts once.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from datetime import date, timedelta
from typing import Any, Literal, Self

from remoteclaw.events import AgentRunResult, AgentUsage, AsideAnswer, format_cost
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.lua import Values

#: The sums of a session are kept for this many days, a quarter, at about 150 bytes per day.
USAGE_DAYS = 92
#: The usage of a day is kept for this long, in milliseconds.
USAGE_MS = (USAGE_DAYS + 1) * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of any number of turns and asides."""

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
    asides: int = 0
    """The number of messages that the agent answered or judged during a turn."""
    estimated_tokens: int = 0
    """How many of the tokens are an estimate."""

    @classmethod
    def of(cls, run: AgentRunResult) -> Self:
        """Return the usage of one turn."""
        return cls(turns=1, duration_ms=run.duration_ms, **_numbers(run.usage, run.total_cost_usd))

    @classmethod
    def of_tokens(cls, usage: AgentUsage) -> Self:
        """Return the usage of a turn that goes on."""
        return cls(**_numbers(usage, None))

    @classmethod
    def of_aside(cls, answer: AsideAnswer) -> Self:
        """Return the usage of one aside."""
        usage = answer.usage or AgentUsage()
        estimated = usage.tokens if answer.is_estimated else 0
        return cls(asides=1, estimated_tokens=estimated, **_numbers(usage, answer.cost_usd))

    @classmethod
    def decode(cls, numbers: bytes | str | None) -> Self:
        """Return the usage from its stored form: the numbers in the order of the fields.

        An older version has stored fewer numbers, and a newer one may have stored more.
        """
        return cls(*map(int, (numbers or "").split()[: len(fields(cls))]))

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
            "asides": self.asides,
            "estimatedTokens": self.estimated_tokens,
        }

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Usage(*(one + another for one, another in pairs))

    def __bool__(self) -> bool:
        """Whether anything was used."""
        return any(astuple(self))

    @property
    def cost_usd(self) -> float | None:
        """The cost in US dollars; None if no CLI reported a cost."""
        return self.cost_micro_usd / 1_000_000 or None

    @property
    def cost_text(self) -> str | None:
        """The cost for people; None if no CLI reported a cost."""
        return format_cost(self.cost_usd)

    @property
    def new_tokens(self) -> int:
        """The input and output tokens, without those that were read from a cache."""
        return self.input_tokens + self.cache_write_tokens + self.output_tokens

    @property
    def read_tokens(self) -> int:
        """All input tokens, from a cache or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


def _numbers(usage: AgentUsage, cost_usd: float | None) -> dict[str, int]:
    """Return the fields of `Usage` for tokens and their cost in US dollars."""
    return {**asdict(usage), "cost_micro_usd": round((cost_usd or 0) * 1_000_000)}


def usage_args(usage: Usage | None, agent: str) -> Values:
    """Return what a script needs to add usage of `agent`, today on this worker's clock.

    None adds nothing.
    """
    return {
        "usage": usage.encode() if usage else None,
        "agent": agent,
        "usage_ms": USAGE_MS,
        "usage_day": keys.usage_day(time.strftime("%Y-%m-%d")),
    }


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
