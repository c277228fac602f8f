"""The person's view of a far screen: the part that fits, or what has left it at its top."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.attach.paint import Run

Frame = dict[str, Any]

#: How many rows of the past are asked for at once.
PAGE = 200


@dataclass(slots=True)
class View:
    """A window onto the screen and its past.

    Rows are counted from the oldest one that is kept.
    """

    frame: Frame | None = None
    """The whole state of the screen; None before it is known."""
    top: int | None = None
    """The first row that is shown; None to see what goes on."""
    _past: dict[int, Sequence[Run]] = field(default_factory=dict)

    @property
    def is_back(self) -> bool:
        """Whether the person looks at what was, and not at what goes on."""
        return self.top is not None

    @property
    def history(self) -> int:
        """How many rows have left the screen."""
        return int(self.frame["history"]) if self.frame else 0

    def scroll(self, rows: int, *, height: int) -> None:
        """Go up by rows, or down by fewer than none; at the end it is what goes on again."""
        if self.frame is None:
            return
        last = self._last(height)
        top = (last if self.top is None else self.top) - rows
        if top >= last:
            self.follow()
        else:
            self.top = max(top, 0)

    def follow(self) -> None:
        """See what goes on."""
        self.top = None
        self._past.clear()

    def missing(self, height: int) -> int | None:
        """Return the first row that is to be asked for, None if all are there."""
        if self.top is None:
            return None
        for row in range(self.top, min(self.top + height, self.history)):
            if row not in self._past:
                return max(row - PAGE // 2, 0)
        return None

    def learn(self, told: Mapping[str, Any]) -> None:
        """Take rows of the past; what isn't there any more is empty."""
        start, rows = int(told["start"]), told["rows"]
        for row in range(start, start + PAGE):
            self._past[row] = rows[row - start] if row - start < len(rows) else []

    def rows(self, height: int) -> list[Sequence[Run]]:
        """Return the rows that the person sees."""
        if self.frame is None:
            return [[] for _ in range(height)]
        first = self._first(height)
        return [self._row(row) for row in range(first, first + height)]

    def cursor(self, cols: int, height: int) -> tuple[int, int] | None:
        """Return where the cursor is in the window, None if it is not to be seen."""
        if self.frame is None or self.is_back or not self.frame["cursor"]["visible"]:
            return None
        at = self.frame["cursor"]
        row, col = self.history + at["row"] - self._first(height), at["col"]
        return (row, col) if 0 <= row < height and 0 <= col < cols else None

    def cut(self, cols: int, height: int) -> str:
        """Return in words that the screen doesn't fit; empty if it does."""
        if self.frame is None or (self.frame["cols"] <= cols and self.frame["rows"] <= height):
            return ""
        return f"cut: it has {self.frame['cols']} × {self.frame['rows']}"

    def _last(self, height: int) -> int:
        """Return the first row of what goes on; of a screen that is too high, around the cursor."""
        assert self.frame is not None, "there is a screen"
        spare = self.frame["rows"] - height
        above = min(max(self.frame["cursor"]["row"] + 2 - height, 0), spare) if spare > 0 else 0
        return self.history + above

    def _first(self, height: int) -> int:
        return self._last(height) if self.top is None else self.top

    def _row(self, row: int) -> Sequence[Run]:
        assert self.frame is not None, "there is a screen"
        if row < self.history:
            return self._past.get(row, [])
        found: Sequence[Run] = self.frame["lines"].get(str(row - self.history), [])
        return found
