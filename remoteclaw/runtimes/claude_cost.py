"""The cost of claude's turns: claude tells that of its whole process, with what was asked beside.

It doesn't tell what an answer beside a turn has cost. A turn then has its part by tokens, which are
told of both, and the rest is counted nowhere.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.events import AgentUsage
from remoteclaw.runtimes.claude_progress import usage_of
from remoteclaw.runtimes.wire import count, mapping


@dataclass
class Costs:
    """The sums of the process so far."""

    usd: float = 0.0
    weight: float = 0.0
    """The tokens, each kind at its price."""
    has_asides: bool = False
    """Whether something was answered beside a turn since the last one was counted."""

    def of_turn(self, result: Mapping[str, Any]) -> float | None:
        """Return what a turn cost in US dollars, by the result with which it ends."""
        total = result.get("total_cost_usd")
        if not isinstance(total, int | float) or not math.isfinite(total):
            return None
        models = mapping(result.get("modelUsage")).values()
        weight = sum(_weight(_of_model(mapping(model))) for model in models)
        spent, weighed = max(0.0, total - self.usd), weight - self.weight
        if self.has_asides and weighed > 0:
            spent *= min(1.0, _weight(usage_of(mapping(result.get("usage")))) / weighed)
        self.usd, self.weight, self.has_asides = float(total), weight, False
        return spent


def _of_model(usage: Mapping[str, Any]) -> AgentUsage:
    return AgentUsage(
        count(usage.get("inputTokens")),
        count(usage.get("outputTokens")),
        count(usage.get("cacheReadInputTokens")),
        count(usage.get("cacheCreationInputTokens")),
    )


def _weight(usage: AgentUsage) -> float:
    """Return the tokens as multiples of one that is read, by the prices of claude's models."""
    written = usage.cache_write_tokens * 1.25 + usage.output_tokens * 5
    return usage.input_tokens + usage.cache_read_tokens * 0.1 + written
