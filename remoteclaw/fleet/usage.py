"""Usage of turns: tokens, time and cost, summed by agent, session and day.

`finish` adds a turn's numbers in the step that ends it, so that each turn counts once.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import date, timedelta
from typing import Any, Literal, Self

from remoteclaw.events import AgentRunResult
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: How many days the sums of single sessions are kept: a quarter, at about 150 bytes each.
USAGE_DAYS = 92


@dataclass(frozen=True, slots=True)
class Usage:
    """What one or more turns took."""

    turns: int = 0
    input_tokens: int = 0
    """Tokens that the model read and that were in no cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    duration_ms: int = 0
    """Milliseconds from the begin of each turn to its end."""
    cost_micro_usd: int = 0
    """Millionths of a US dollar, where the CLI says what a turn costs; else 0."""

    @classmethod
    def of(cls, run: AgentRunResult) -> Self:
        """Return the usage of one turn."""
        used = run.usage
        return cls(
            turns=1,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cache_read_tokens=used.cache_read_tokens,
            cache_write_tokens=used.cache_write_tokens,
            duration_ms=run.duration_ms,
            cost_micro_usd=round((run.total_cost_usd or 0) * 1_000_000),
        )

    @classmethod
    def decode(cls, numbers: bytes | str | None) -> Self:
        """Return the usage that Redis keeps as numbers, in the order of the fields."""
        return cls(*map(int, (numbers or "").split()))

    def encode(self) -> str:
        """Return it as Redis keeps it."""
        return " ".join(map(str, astuple(self)))

    def plain(self) -> dict[str, Any]:
        """Return it as programs read it: tokens, milliseconds, US dollars."""
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
        """US dollars; None where no CLI has said what a turn costs."""
        return self.cost_micro_usd / 1_000_000 or None

    @property
    def new_tokens(self) -> int:
        """All tokens that were read or written, without those from a cache."""
        return self.input_tokens + self.cache_write_tokens + self.output_tokens

    @property
    def read_tokens(self) -> int:
        """All tokens that the model read, from a cache or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True)
class SessionDay:
    """What one session took on one day, in the time zone of the worker."""

    day: date
    agent: str
    sid: str
    usage: Usage


def added_up(
    found: Sequence[SessionDay], *, by: Literal["agent", "session", "day"]
) -> dict[str, Usage]:
    """Return the sums: days in their order, everything else by how much was read and written."""
    sums: dict[str, Usage] = {}
    for part in found:
        name = {"agent": part.agent, "session": part.sid, "day": part.day.isoformat()}[by]
        sums[name] = sums.get(name, Usage()) + part.usage
    if by == "day":
        return sums
    by_size = sorted(sums.items(), key=lambda row: row[1].read_tokens + row[1].output_tokens)
    return dict(reversed(by_size))


class UsageLedger:
    """Reads the sums."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def days(self, *, days: int) -> list[SessionDay]:
        """Return what each session took on each of the last days, today included, oldest first."""
        since, found = last_days(days), []
        sums = await self._scripts.together(
            lambda ask: [ask.hgetall(keys.usage_day(day.isoformat())) for day in since]
        )
        for day, by_session in zip(since, sums, strict=True):
            for field, numbers in by_session.items():
                agent, _, sid = field.decode().rpartition(" ")
                found.append(SessionDay(day, agent, sid, Usage.decode(numbers)))
        return found

    async def by_session(self) -> dict[str, Usage]:
        """Return what each session took in the days that are kept, by its id."""
        sums: dict[str, Usage] = {}
        for part in await self.days(days=USAGE_DAYS):
            sums[part.sid] = sums.get(part.sid, Usage()) + part.usage
        return sums

    async def session(self, agent: str, sid: str) -> Usage:
        """Return what one session took in the days that are kept."""
        days, field = last_days(USAGE_DAYS), f"{agent} {sid}"
        found = await self._scripts.together(
            lambda ask: [ask.hget(keys.usage_day(day.isoformat()), field) for day in days]
        )
        return sum((Usage.decode(numbers) for numbers in found), Usage())

    async def agents(self) -> dict[str, Usage]:
        """Return what each agent took since its first turn."""
        client = self._scripts.client
        found = await self._scripts.call(client.hgetall, keys.USAGE)
        return {agent.decode(): Usage.decode(numbers) for agent, numbers in found.items()}


def last_days(count: int) -> list[date]:
    """Return the last days, oldest first; a worker of another zone may be a day ahead."""
    tomorrow = date.today() + timedelta(days=1)  # noqa: DTZ011 - people read local days
    return [tomorrow - timedelta(days=back) for back in range(count, -1, -1)]
