"""Handler of the method about what turns took."""

from collections.abc import Mapping

from remoteclaw.fleet.usage import added_up
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.tools import usage as contract

__all__ = ["HANDLERS"]

#: How many agents or sessions are told: those who took most.
MOST_ROWS = 1000


async def _usage(call: Call, params: contract.UsageParams) -> contract.UsageResult:
    sums = added_up(await call.fleet.usage.days(days=params.days), by=params.by)
    told = list(sums.items())[:MOST_ROWS]
    sids = [name.encode() for name, _ in told if params.by == "session"]
    views = {view.sid: view for view in await call.fleet.sessions.views(sids)}
    return contract.UsageResult(
        rows=tuple(
            contract.UsageRow(
                name=str(view.key) if (view := views.get(name)) else name,
                title=view.name if view else None,
                turns=used.turns,
                input_tokens=used.input_tokens,
                cache_read_tokens=used.cache_read_tokens,
                cache_write_tokens=used.cache_write_tokens,
                output_tokens=used.output_tokens,
                duration_ms=used.duration_ms,
                cost_usd=used.cost_usd,
            )
            for name, used in told
        )
    )


HANDLERS: Mapping[str, Handler] = {"usage": _usage}
