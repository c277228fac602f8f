"""The part of a remote screen, or of its scrollback, that the user's window shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.attach.paint import Run

Frame = dict[str, Any]

#: How many rows of the scrollback are requested at once.
PAGE_ROWS = 200


@dataclass(slots=True)
class View:
    """The visible part of the screen and its scrollback.

    Row 0 is the oldest row of the scrollback; the rows of the screen follow the last one.
    """

    frame: Frame | None = None
    """The state of the screen, as a full frame; None until the first frame arrives."""
    top: int | None = None
    """The first visible row; None to show the live screen."""
    _scrollback: dict[int, Sequence[Run]] = field(default_factory=dict)
    """The rows that were received while scrolled back."""

    @property
    def is_scrolled_back(self) -> bool:
        """Whether the window shows the scrollback instead of the live screen."""
        return self.top is not None

    @property
    def history(self) -> int:
        """The number of rows in the scrollback."""
        return int(self.frame["history"]) if self.frame else 0

    def scroll(self, rows: int, *, height: int) -> None:
        """Scroll up by `rows`, or down if negative; the end is the live screen."""
        if self.frame is None:
            return
        last = self._last(height)
        top = (last if self.top is None else self.top) - rows
        if top >= last:
            self.follow()
        else:
            self.top = max(top, 0)

    def follow(self) -> None:
        """Show the live screen again."""
        self.top = None
        self._scrollback.clear()

    def first_missing(self, height: int) -> int | None:
        """Return the first row to request, None if all visible rows are known."""
        if self.top is None:
            return None
        for row in range(self.top, min(self.top + height, self.history)):
            if row not in self._scrollback:
                return max(row - PAGE_ROWS // 2, 0)
        return None

    def add_scrollback(self, reply: Mapping[str, Any]) -> None:
        """Add the rows of a reply to `terminals.history`; rows that are gone become empty."""
        start, rows = int(reply["start"]), reply["rows"]
        for row in range(start, start + PAGE_ROWS):
            self._scrollback[row] = rows[row - start] if row - start < len(rows) else []

    def rows(self, height: int) -> list[Sequence[Run]]:
        """Return the `height` visible rows."""
        if self.frame is None:
            return [[] for _ in range(height)]
        first = self._first(height)
        return [self._row(row) for row in range(first, first + height)]

    def cursor(self, cols: int, height: int) -> tuple[int, int] | None:
        """Return the cursor's row and column in the window, None if it is not visible."""
        if self.frame is None or self.is_scrolled_back or not self.frame["cursor"]["visible"]:
            return None
        cursor = self.frame["cursor"]
        row, col = self.history + cursor["row"] - self._first(height), cursor["col"]
        return (row, col) if 0 <= row < height and 0 <= col < cols else None

    def cut_note(self, cols: int, height: int) -> str:
        """Return the note that the screen doesn't fit into the window; empty if it does."""
        if self.frame is None or (self.frame["cols"] <= cols and self.frame["rows"] <= height):
            return ""
        return f"cut: screen is {self.frame['cols']} × {self.frame['rows']}"

    def _last(self, height: int) -> int:
        """Return the first visible row of the live screen; a cut screen shows its cursor."""
        assert self.frame is not None, "a frame has arrived"
        spare = self.frame["rows"] - height
        above = min(max(self.frame["cursor"]["row"] + 2 - height, 0), spare) if spare > 0 else 0
        return self.history + above

    def _first(self, height: int) -> int:
        return self._last(height) if self.top is None else self.top

    def _row(self, row: int) -> Sequence[Run]:
        assert self.frame is not None, "a frame has arrived"
        if row < self.history:
            return self._scrollback.get(row, [])
        runs: Sequence[Run] = self.frame["lines"].get(str(row - self.history), [])
        return runs
