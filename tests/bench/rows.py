"""Rows of the table: a number and its baseline, both of the same run."""

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Measurements of one number and of its baseline, in seconds."""

    name: str
    baseline_name: str
    ours: list[float]
    baseline: list[float]
    goal: str

    def as_json(self) -> dict[str, object]:
        """Return the row for a JSON file."""
        ours, baseline = statistics.median(self.ours), statistics.median(self.baseline)
        return {
            "name": self.name,
            "ours_ms": round(ours * 1000, 3),
            "ours_p95_ms": round(p95(self.ours) * 1000, 3),
            "baseline": self.baseline_name,
            "baseline_ms": round(baseline * 1000, 3),
            "ratio": round(ours / baseline, 2),
            "ratio_p95": round(p95(self.ours) / p95(self.baseline), 2),
            "added_ms": round((ours - baseline) * 1000, 3),
            "goal": self.goal,
            "rounds": len(self.ours),
        }


def p95(values: list[float]) -> float:
    """Return the 95th percentile, which is one of the values."""
    return sorted(values)[max(0, round(len(values) * 0.95) - 1)]


def table(rows: list[Row]) -> str:
    """Return rows as text."""
    lines = [
        f"{'':34} {'n':>4} {'ours':>9} {'p95':>9} {'baseline':>9} {'ratio':>6} {'added':>9}  goal"
    ]
    lines += [
        f"{row['name']:34} {row['rounds']:>4} {row['ours_ms']:>6} ms {row['ours_p95_ms']:>6} ms "
        f"{row['baseline_ms']:>6} ms {row['ratio']:>6} {row['added_ms']:>6} ms  {row['goal']}"
        f" ({row['baseline']})"
        for row in (row.as_json() for row in rows)
    ]
    return "\n".join(lines)
