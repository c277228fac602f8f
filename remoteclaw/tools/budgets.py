"""Budgets in the results of methods."""

from typing import Literal

from remoteclaw.tools.base import Result


class BudgetLimit(Result):
    unit: Literal["usd", "tokens", "minutes"]
    spent: float
    limit: float
    """The limit, with what owners have added."""


class BudgetState(Result):
    scope: str
    """What is limited, as in the configuration: `all`, `agent:NAME`, `person:NAME` or `tree`."""
    period: str
    """The day or the month, as 2026-11-26 or 2026-11; empty for a tree."""
    limits: tuple[BudgetLimit, ...]
    verdict: Literal["", "lifted", "stopped"]
    """Whether an owner has lifted the limit or stopped the agents until the period ends."""
    left: str
    """What is left, as people read it."""
