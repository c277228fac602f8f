"""The handler of the method `usage`."""

from collections.abc import Mapping

from remoteclaw.fleet.sessions.usage import HOUR_DAYS, PeriodUsage, Usage, not_negative, sum_usage
from remoteclaw.gateway.budget_states import budget_states
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.tools import usage as contract

#: The usage of at most this many agents, sessions or days is returned.
MAX_ROWS = 1000


async def _usage(call: Call, params: contract.UsageParams) -> contract.UsageResult:
    budgets = budget_states(await call.fleet.budgets.current(call.config))
    ledger, zone = call.fleet.usage, call.config.fleet.timezone
    if params.by in ("agent", "session"):
        sums = sum_usage(await ledger.days(days=params.days, zone=zone), by=params.by)
        return contract.UsageResult(rows=await _sum_rows(call, params.by, sums), budgets=budgets)
    if params.by == "day":
        periods = await ledger.by_day(params.days, zone=zone)
    else:
        periods = await ledger.by_hour(24 * min(params.days, HOUR_DAYS), zone=zone)
    return contract.UsageResult(
        rows=tuple(_period_row(period, used) for period in periods if (used := period.total)),
        periods=tuple(period.name for period in periods),
        budgets=budgets,
    )


async def _sum_rows(
    call: Call, by: str, sums: Mapping[str, Usage]
) -> tuple[contract.UsageRow, ...]:
    rows = list(sums.items())[:MAX_ROWS]
    sids = [name.encode() for name, _ in rows if by == "session"]
    views = {view.sid: view for view in await call.fleet.sessions.views(sids)}
    return tuple(
        contract.UsageRow.of(
            used,
            name=str(view.key) if (view := views.get(name)) else name,
            title=view.name if view else None,
            wait_ms=None,
            agents=None,
        )
        for name, used in rows
    )


def _period_row(period: PeriodUsage, used: Usage) -> contract.UsageRow:
    return contract.UsageRow.of(
        used,
        name=period.name,
        title=None,
        wait_ms=period.wait_ms,
        agents=tuple(
            contract.UsageShare(
                agent=agent,
                turns=share.turns,
                tokens=share.read_tokens + share.output_tokens,
                cost_usd=share.cost_usd,
            )
            for agent, used_by in sorted(period.agents.items())
            if (share := not_negative(used_by))
        ),
    )


HANDLERS: Mapping[str, Handler] = {"usage": _usage}
