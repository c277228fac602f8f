"""What is left of budgets, in the form that clients and the command line receive."""

from collections.abc import Iterable

from remoteclaw.fleet.budgets.standing import Standing
from remoteclaw.fleet.budgets.words import left_text
from remoteclaw.tools.budgets import BudgetLimit, BudgetState


def budget_states(standings: Iterable[Standing]) -> tuple[BudgetState, ...]:
    """Return the states of budgets, in their order."""
    return tuple(
        BudgetState(
            scope=_scope_of(standing),
            period=standing.applied.period,
            limits=tuple(
                BudgetLimit(unit=unit, spent=spent, limit=limit)
                for unit, (spent, limit) in standing.measures.items()
            ),
            verdict=standing.verdict,
            left=left_text(standing),
        )
        for standing in standings
    )


def _scope_of(standing: Standing) -> str:
    kind, _, name = standing.applied.scope.partition(" ")
    return f"{kind}:{name}" if kind in ("agent", "person") else kind
