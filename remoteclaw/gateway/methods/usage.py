"""Handler of the method about what turns took."""

from collections.abc import Mapping

from remoteclaw.fleet.usage import added_up
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.tools import usage as contract

#: How many agents or sessions are told: those who took most.
MOST_ROWS = 1000


async def _usage(call: Call, params: contract.UsageParams) -> contract.UsageResult:
    sums = added_up(await call.fleet.usage.days(days=params.days), by=params.by)
    told = list(sums.items())[:MOST_ROWS]
    sids = [name.encode() for name, _ in told if params.by == "session"]
    views = {view.sid: view for view in await call.fleet.sessions.views(sids)}
    return contract.UsageResult(
        rows=tuple(
            contract.UsageRow.of(
                used,
                name=str(view.key) if (view := views.get(name)) else name,
                title=view.name if view else None,
            )
            for name, used in told
        )
    )


HANDLERS: Mapping[str, Handler] = {"usage": _usage}
