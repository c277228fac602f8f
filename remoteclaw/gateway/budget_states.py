"""What is left of budgets, in the form that clients and the command line receive."""

from collections.abc import Iterable

from remoteclaw.config.model import Config
from remoteclaw.fleet.budgets.budgets import Budgets
from remoteclaw.fleet.budgets.standing import Standing
from remoteclaw.fleet.budgets.words import left_text
from remoteclaw.fleet.sessions.sessions import Sessions
from remoteclaw.messages import SessionKey
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


async def tree_budgets(
    sessions: Sessions, budgets: Budgets, config: Config, session: SessionKey
) -> tuple[BudgetState, ...]:
    """Return the state of the budget of a session's conversation with its tasks, if it has one."""
    root = await sessions.root(session)
    standings = await budgets.of_session(config, session, root, ())
    return budget_states(each for each in standings if each.applied.budget.of == "tree")


def _scope_of(standing: Standing) -> str:
    kind, _, name = standing.applied.scope.partition(" ")
    return f"{kind}:{name}" if kind in ("agent", "person") else kind
