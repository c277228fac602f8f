"""Rows of the table: a number beside its floor, both of the same run."""

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One number and its floor, in seconds."""

    name: str
    floor_name: str
    ours: list[float]
    floor: list[float]
    goal: str

    def as_json(self) -> dict[str, object]:
        """Return it for a file."""
        ours, floor = statistics.median(self.ours), statistics.median(self.floor)
        return {
            "name": self.name,
            "ours_ms": round(ours * 1000, 3),
            "ours_p95_ms": round(p95(self.ours) * 1000, 3),
            "floor": self.floor_name,
            "floor_ms": round(floor * 1000, 3),
            "ratio": round(ours / floor, 2),
            "ratio_p95": round(p95(self.ours) / p95(self.floor), 2),
            "added_ms": round((ours - floor) * 1000, 3),
            "goal": self.goal,
            "rounds": len(self.ours),
        }


def p95(values: list[float]) -> float:
    """Return the 95th percentile, one of the values."""
    return sorted(values)[max(0, round(len(values) * 0.95) - 1)]


def table(rows: list[Row]) -> str:
    """Return rows as text."""
    lines = [
        f"{'':34} {'n':>4} {'ours':>9} {'p95':>9} {'floor':>9} {'ratio':>6} {'added':>9}  goal"
    ]
    lines += [
        f"{row['name']:34} {row['rounds']:>4} {row['ours_ms']:>6} ms {row['ours_p95_ms']:>6} ms "
        f"{row['floor_ms']:>6} ms {row['ratio']:>6} {row['added_ms']:>6} ms  {row['goal']}"
        f" ({row['floor']})"
        for row in (row.as_json() for row in rows)
    ]
    return "\n".join(lines)
