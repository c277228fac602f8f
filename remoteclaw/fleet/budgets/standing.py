"""The standing of a budget: what was spent of it in its period, and what owners have decided."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import orjson

from remoteclaw.clock import local_time, now_ms
from remoteclaw.config.budgets import AppliedBudget
from remoteclaw.config.model import Config
from remoteclaw.fleet import keys
from remoteclaw.fleet.lua import Values
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.messages import Entry

#: What is decided about the budget of a tree, which has no period, and the request about it are
#: kept for this long, in milliseconds.
TREE_MS = 31 * 24 * 3600 * 1000
#: The part of a budget after which owners are warned, once.
WARN_AT = 0.8


@dataclass(frozen=True, slots=True)
class Standing:
    """A budget that limits a turn, at one moment."""

    applied: AppliedBudget
    spent: Usage
    halves: int = 0
    """How often owners have added half of the limit."""
    verdict: Literal["", "lifted", "stopped"] = ""
    """What owners have decided until the period ends: that nothing is limited, or that messages are
    refused."""
    has_warned: bool = False
    """Whether owners know that most of it is spent."""

    @property
    def id(self) -> str:
        """The id of the budget in its period."""
        return budget_id(self.applied)

    @property
    def part(self) -> float:
        """The part that was spent: 1 at the limit."""
        parts = (spent / limit for spent, limit in self.measures.values())
        return max(parts, default=0.0)

    @property
    def measures(self) -> dict[Literal["usd", "tokens", "minutes"], tuple[float, float]]:
        """What was spent and what may be, in each unit that has a limit.

        A day on which an estimate of the day before is corrected may have a negative sum; nothing
        is spent then.
        """
        budget, factor = self.applied.budget, 1 + self.halves / 2
        spent: dict[Literal["usd", "tokens", "minutes"], tuple[float, float | None]] = {
            "usd": (self.spent.cost_micro_usd / 1_000_000, budget.usd),
            "tokens": (self.spent.new_tokens, budget.tokens),
            "minutes": (self.spent.duration_ms / 60_000, budget.minutes),
        }
        return {
            unit: (max(0, sum_), limit * factor) for unit, (sum_, limit) in spent.items() if limit
        }

    @property
    def asks(self) -> bool:
        """Whether owners may be asked for more; else messages are refused."""
        return self.applied.budget.at_limit == "ask" and self.verdict != "stopped"

    @property
    def is_due_for_warning(self) -> bool:
        """Whether owners are to be warned now."""
        return WARN_AT <= self.part < 1 and not (self.verdict or self.has_warned)


class LimitReached(Exception):
    """Raised for a turn that can't begin, because the limit of a budget is reached."""

    def __init__(self, standing: Standing) -> None:
        super().__init__(standing.id)
        self.standing = standing


@dataclass(frozen=True, slots=True)
class Refused:
    """Entries that are dropped because the limit of a budget is reached."""

    standing: Standing
    entries: Sequence[Entry]
    notice: str
    day: str
    people: Sequence[str]
    """The people who get the notice once on that day; without people, it is always sent."""


def budget_id(applied: AppliedBudget) -> str:
    """Return the id of a budget in its period; a budget with other limits is another one."""
    budget = applied.budget
    limits = [f"{limit:g}" for limit in (budget.usd, budget.tokens, budget.minutes) if limit]
    return " ".join(filter(None, (applied.scope, applied.period, *limits)))


def limit_args(applied: Sequence[AppliedBudget]) -> Values:
    """Return what a script needs to check budgets."""
    limits = [
        (each.scope, round((b.usd or 0) * 1_000_000), b.tokens or 0, (b.minutes or 0) * 60_000)
        for each in applied
        for b in (each.budget,)
    ]
    return {
        "spent_in": [_spent_in(each) for each in applied],
        "budgets": [keys.budget(budget_id(each)) for each in applied],
        "limits": orjson.dumps(limits) if limits else None,
    }


def standings(applied: Sequence[AppliedBudget], found: str | bytes | None) -> list[Standing]:
    """Return the standings of budgets from what a script has found; None if it has not looked."""
    if not found:
        return []
    return [
        Standing(each, Usage.decode(spent), halves, verdict, bool(has_warned))
        for each, (spent, halves, verdict, has_warned) in zip(
            applied, orjson.loads(found), strict=True
        )
    ]


def of_reached(
    applied: Sequence[AppliedBudget], reached: int | str | None, found: str | bytes | None
) -> Standing | None:
    """Return the budget whose limit is reached, from what a script has found."""
    return standings(applied, found)[int(reached) - 1] if reached else None


def refused_args(refused: Refused | None) -> Values:
    """Return what a script needs to drop entries for a budget."""
    if refused is None:
        return {"budget": None, "refused": ()}
    texts = (refused.notice, refused.day, *refused.people)
    return {"budget": keys.budget(refused.standing.id), "refused": texts}


def tree_keys(config: Config, sid: str) -> list[str]:
    """Return the keys of what is decided about the budgets of a conversation with its tasks."""
    trees = (each for each in config.budgets if each.of == "tree")
    return [keys.budget(budget_id(AppliedBudget(each, f"tree {sid}", ""))) for each in trees]


def end_of(applied: AppliedBudget, zone: str | None) -> datetime | None:
    """Return the end of a budget's period in the time zone of the days; None for that of a tree."""
    if not applied.period:
        return None
    year, month, *days = map(int, applied.period.split("-"))
    begin = datetime(year, month, days[0] if days else 1)  # noqa: DTZ001 - the zone is added below
    after = begin + timedelta(days=1 if days else 32)
    end = after if days else after.replace(day=1)
    # The clock of that day, which may have another offset than today.
    tz = local_time(0, zone).tzinfo if zone else None
    return end.replace(tzinfo=tz) if tz else end.astimezone()


def end_ms(applied: AppliedBudget, zone: str | None) -> int:
    """Return the end of a budget's period; for a tree, until when its request is kept."""
    end = end_of(applied, zone)
    return int(end.timestamp() * 1000) if end else now_ms() + TREE_MS


def _spent_in(applied: AppliedBudget) -> str:
    """Return the key of the hash with the sum."""
    if applied.period:
        return keys.spent(applied.period)
    return keys.state(applied.scope.removeprefix("tree "))
