"""The fleet's counters and histograms, which scripts keep in Redis in the step that they count.

They are in one hash, so every gateway reads the same numbers, and a process that dies loses none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: The upper bounds of all histograms, in seconds: from a delivery to a turn that takes an hour.
BUCKETS_S = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
#: The same as the scripts get them, in milliseconds.
BUCKETS = ",".join(str(round(bound * 1000)) for bound in BUCKETS_S)


@dataclass(slots=True)
class Histogram:
    """Durations, counted by their size."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    """How many durations are in each bucket: up to the bounds `BUCKETS_S`, and longer ones."""
    sum_ms: int = 0
    """The sum of all, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted since the fleet has this Redis."""

    turns: Mapping[tuple[str, str, str], int]
    """Ended turns, by agent, status of the outcome, and category of the error, empty without."""
    histograms: Mapping[str, Mapping[str, Histogram]]
    """`wait`, `duration` and `first_text` of turns by agent, and `delivery` by channel."""


class Metrics:
    """Reads what was counted."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def read(self) -> Counts:
        """Return the counts; a field of another version is left out."""
        client = self._scripts.client
        stored = await self._scripts.call(client.hgetall, keys.METRICS)
        turns: dict[tuple[str, str, str], int] = {}
        histograms: dict[str, dict[str, Histogram]] = {
            name: {} for name in ("wait", "duration", "first_text", "delivery")
        }
        positions = {
            bound: position for position, bound in enumerate([*BUCKETS.split(","), "more"])
        }
        for name, number in stored.items():
            match name.decode().split("/"):
                case "turns", agent, status, category:
                    turns[agent, status, category] = int(number)
                case kind, label, part if kind in histograms:
                    histogram = histograms[kind].setdefault(label, Histogram())
                    if part == "sum":
                        histogram.sum_ms = int(number)
                    elif part in positions:
                        histogram.counts[positions[part]] = int(number)
        return Counts(turns, histograms)
