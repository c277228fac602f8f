"""Budgets in tests: what was spent, as finished turns would have written it."""

from typing import Any

from remoteclaw.clock import local_day
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.sessions.usage import Usage

#: A budget of a thousand tokens.
DAY = {"of": "agent:main", "tokens": 1000, "per": "day"}


async def spend(
    fleet: Fleet, tokens: int = 0, *, scope: str = "agent main", micro_usd: int = 0
) -> None:
    """Add to today's sum of a scope."""
    client: Any = fleet.scripts.client
    day = local_day(await fleet.scripts.now_ms(), None)
    before = Usage.decode(await client.hget(keys.spent(day.isoformat()), scope))
    after = before + Usage(input_tokens=tokens, cost_micro_usd=micro_usd)
    await client.hset(keys.spent(day.isoformat()), scope, after.encode())
