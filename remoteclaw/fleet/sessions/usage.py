"""The usage of turns and asides: tokens, time and cost, summed by agent, session, day and hour.

Each script that learns of usage adds it to all sums in the same step, so each counts once. Days are
those of Redis' clock in one time zone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from datetime import date, timedelta
from typing import Any, Literal, Self

from remoteclaw.clock import local_day, local_time, now_ms, zone_offsets
from remoteclaw.config.budgets import person_names
from remoteclaw.config.model import Config, Price
from remoteclaw.events import AgentRunResult, AgentUsage, AsideAnswer, format_cost
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.lua import Values
from remoteclaw.messages import Entry, payers_of
from remoteclaw.protocols import ModelRequest

#: The sums of a session are kept for this many days, a quarter, at about 150 bytes per day.
USAGE_DAYS = 92
#: The sums of hours are kept for this many days at least: a week, and today.
HOUR_DAYS = 8
#: The usual prices of tokens that a model reads from a cache, and that it writes, in proportion to
#: those of tokens that it reads.
CACHED_PRICE, OUTPUT_PRICE = 0.1, 5
#: An hour, in milliseconds.
HOUR_MS = 3600 * 1000
#: The usage of a day is kept for this long, in milliseconds.
USAGE_MS = (USAGE_DAYS + 1) * 24 * HOUR_MS


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
    """The cost in millionths of a US dollar; 0 if neither the CLI nor `[prices]` has one."""
    asides: int = 0
    """The number of messages that the agent answered or judged during a turn."""
    estimated_tokens: int = 0
    """How many of the tokens are an estimate."""

    @classmethod
    def of(cls, run: AgentRunResult, price: Price | None = None) -> Self:
        """Return the usage of one turn; `price` counts if the CLI reports no cost."""
        numbers = _numbers(run.usage, run.total_cost_usd, price)
        return cls(turns=1, duration_ms=run.duration_ms, **numbers)

    @classmethod
    def of_tokens(cls, usage: AgentUsage, price: Price | None = None, *, since_ms: int) -> Self:
        """Return the usage of a turn that goes on, and has worked since `since_ms`."""
        duration_ms = max(0, now_ms() - since_ms)
        return cls(duration_ms=duration_ms, **_numbers(usage, None, price))

    @classmethod
    def of_aside(cls, answer: AsideAnswer, price: Price | None = None) -> Self:
        """Return the usage of one aside."""
        usage = answer.usage or AgentUsage()
        estimated = usage.tokens if answer.is_estimated else 0
        numbers = _numbers(usage, answer.cost_usd, price)
        return cls(asides=1, estimated_tokens=estimated, **numbers)

    @classmethod
    def of_request(cls, request: ModelRequest, price: Price | None = None) -> Self:
        """Return the usage of one request of a terminal's program."""
        return cls(**_numbers(request.usage, request.cost_usd, price))

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


def usual_price(usage: Usage) -> Price | None:
    """Return what the tokens in `usage` have cost, with usual ratios; None if it is unknown."""
    weighted = (
        usage.input_tokens
        + usage.cache_write_tokens
        + CACHED_PRICE * usage.cache_read_tokens
        + OUTPUT_PRICE * usage.output_tokens
    )
    if not (usage.cost_micro_usd and weighted):
        return None
    each = usage.cost_micro_usd / weighted  # dollars for a million
    return Price(input=each, cached=each * CACHED_PRICE, output=each * OUTPUT_PRICE)


def _numbers(usage: AgentUsage, cost_usd: float | None, price: Price | None) -> dict[str, int]:
    """Return the fields of `Usage` for tokens and their cost in US dollars."""
    cost = cost_usd or (price.cost_usd(usage) if price else 0)
    return {**asdict(usage), "cost_micro_usd": round(cost * 1_000_000)}


@dataclass(frozen=True, slots=True)
class UsageScopes:
    """Whose usage something is."""

    agent: str
    root: str
    """The id of the conversation's own session, which is above all its tasks and branches."""
    payers: tuple[str, ...] = ()
    """The names of the people who share it (`person_names()`)."""
    zone: str | None = None
    """The time zone of days; None for this computer's."""

    @classmethod
    def of(cls, config: Config, agent: str, root: str, entries: Iterable[Entry]) -> Self:
        """Return the scopes of a turn, or an aside, of `entries`."""
        payers = person_names(config, payers_of(entries))
        return cls(agent, root, tuple(payers), config.fleet.timezone)


def usage_args(usage: Usage | None, scopes: UsageScopes) -> Values:
    """Return what a script that uses `_usage.lua` needs to add usage; None adds nothing."""
    return {
        "usage": usage.encode() if usage else None,
        "agent": scopes.agent,
        "root": scopes.root,
        "payers": "\n".join(scopes.payers) or None,
        "usage_ms": USAGE_MS,
        "zone_offsets": zone_offsets(now_ms(), scopes.zone),
        "usage_day": keys.usage_day(""),
        "usage_hour": keys.usage_hour(""),
        "spent": keys.spent(""),
    }


@dataclass(frozen=True, slots=True)
class SessionDay:
    """The usage of one session on one day, in the time zone of the installation."""

    day: date
    agent: str
    sid: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class PeriodUsage:
    """The usage of all agents on one day or in one hour."""

    name: str
    """The day, or the start of the hour in the time zone of the installation, as ISO 8601."""
    agents: Mapping[str, Usage]
    wait_ms: int | None
    """How long a message whose turn ended in this period had waited for it at most, in
    milliseconds; None if it is not known."""

    @property
    def total(self) -> Usage:
        """The usage of all agents together."""
        return not_negative(sum(self.agents.values(), Usage()))


def sum_usage(
    session_days: Sequence[SessionDay], *, by: Literal["agent", "session"]
) -> dict[str, Usage]:
    """Return the sums by agent or session id, in descending order of their tokens."""
    sums: dict[str, Usage] = {}
    for each in session_days:
        name = each.agent if by == "agent" else each.sid
        sums[name] = sums.get(name, Usage()) + each.usage
    sums = {name: not_negative(used) for name, used in sums.items()}
    by_size = sorted(sums.items(), key=lambda row: row[1].read_tokens + row[1].output_tokens)
    return dict(reversed(by_size))


def not_negative(usage: Usage) -> Usage:
    """Return `usage`, with 0 for what is less than nothing.

    A turn over midnight can correct on a day more than was used on it.
    """
    return Usage(*(max(0, number) for number in astuple(usage)))


class UsageLedger:
    """Reads the stored sums."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def days(self, *, days: int, zone: str | None = None) -> list[SessionDay]:
        """Return the usage of each session on each of the last `days`, oldest first."""
        dates, session_days = last_days(days, await self.today(zone)), []
        sums = await self._scripts.run_pipeline(
            lambda ask: [ask.hgetall(keys.usage_day(day.isoformat())) for day in dates]
        )
        for day, by_session in zip(dates, sums, strict=True):
            for field, numbers in by_session.items():
                agent, _, sid = field.decode().rpartition(" ")
                session_days.append(SessionDay(day, agent, sid, Usage.decode(numbers)))
        return session_days

    async def by_day(self, days: int, *, zone: str | None = None) -> list[PeriodUsage]:
        """Return the usage of the last `days`, today included, oldest first.

        Tomorrow is included if a host in another time zone has used something then.
        """
        agents: dict[str, dict[str, Usage]] = {
            day.isoformat(): {} for day in last_days(days, await self.today(zone))[:-1]
        }
        for each in await self.days(days=days, zone=zone):
            shares = agents.setdefault(each.day.isoformat(), {})
            shares[each.agent] = shares.get(each.agent, Usage()) + each.usage
        waits: dict[str, int] = {}
        for hour in await self.by_hour(24 * min(days, HOUR_DAYS), zone=zone):
            if hour.wait_ms is not None:
                day = hour.name.partition("T")[0]
                waits[day] = max(waits.get(day, 0), hour.wait_ms)
        return [PeriodUsage(day, shares, waits.get(day)) for day, shares in sorted(agents.items())]

    async def by_hour(self, count: int, *, zone: str | None = None) -> list[PeriodUsage]:
        """Return the usage of the last `count` hours, the current one included, oldest first.

        An hour that clocks repeat when summer ends is one hour.
        """
        now = await self._scripts.now_ms()
        times = [local_time(now - back * HOUR_MS, zone) for back in range(count - 1, -1, -1)]
        starts = {f"{time:%Y-%m-%dT%H}": time.replace(minute=0) for time in times}
        sums = await self._scripts.run_pipeline(
            lambda ask: [ask.hgetall(keys.usage_hour(hour)) for hour in starts]
        )
        return [
            PeriodUsage(
                start.isoformat(timespec="minutes"),
                {
                    field.decode().removeprefix("agent "): Usage.decode(numbers)
                    for field, numbers in fields.items()
                    if field != b"wait"
                },
                int(fields[b"wait"]) if b"wait" in fields else None,
            )
            for start, fields in zip(starts.values(), sums, strict=True)
        ]

    async def of_today(self, zone: str | None) -> Usage:
        """Return the usage of all agents today."""
        day, client = (await self.today(zone)).isoformat(), self._scripts.client
        numbers = await self._scripts.call(client.hget, keys.spent(day), "all")
        return not_negative(Usage.decode(numbers))

    async def today(self, zone: str | None) -> date:
        """Return the day in a time zone, on Redis' clock; None is this computer's zone."""
        return local_day(await self._scripts.now_ms(), zone)

    async def by_session(self) -> dict[str, Usage]:
        """Return the usage of each session within `USAGE_DAYS`, by session id."""
        return sum_usage(await self.days(days=USAGE_DAYS), by="session")

    async def session(self, agent: str, sid: str, *, also: Collection[str] = ()) -> Usage:
        """Return the usage of one session within `USAGE_DAYS`.

        It is that of its `agent`, and of other agents that may have worked in its place.
        """
        dates = last_days(USAGE_DAYS, await self.today(None))
        fields = [f"{name} {sid}" for name in {agent, *also}]
        sums = await self._scripts.run_pipeline(
            lambda ask: [ask.hmget(keys.usage_day(day.isoformat()), fields) for day in dates]
        )
        return sum((Usage.decode(numbers) for day in sums for numbers in day), Usage())

    async def agent(self, agent: str) -> Usage:
        """Return the usage of one agent since its first turn."""
        client = self._scripts.client
        return Usage.decode(await self._scripts.call(client.hget, keys.USAGE, agent))

    async def agents(self) -> dict[str, Usage]:
        """Return the usage of each agent since its first turn."""
        client = self._scripts.client
        sums = await self._scripts.call(client.hgetall, keys.USAGE)
        return {agent.decode(): Usage.decode(numbers) for agent, numbers in sums.items()}


def last_days(count: int, today: date) -> list[date]:
    """Return the last `count` days, today included, and tomorrow; oldest first.

    Tomorrow is included since a host in another time zone may be a day ahead.
    """
    tomorrow = today + timedelta(days=1)
    return [tomorrow - timedelta(days=back) for back in range(count, -1, -1)]
