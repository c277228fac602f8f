"""Lines about running tools, for a terminal that shows live text."""

from collections.abc import Iterator
from typing import Any

from remoteclaw.host.terminal import one_line

__all__ = ["ActivityView"]

#: How long a line may be, in characters.
MOST_LINE = 200


class ActivityView:
    """The activity of one session, until its turn is over."""

    def __init__(self) -> None:
        self._tools: list[dict[str, Any]] = []
        self._ended: tuple[int, ...] = ()
        """The last turn that is over: what comes late of it is not shown."""

    @property
    def is_running(self) -> bool:
        """Whether a tool runs, so that its seconds go on."""
        return any(tool.get("seconds") is None for tool in self._tools)

    def show(self, turn: tuple[int, ...], tools: list[dict[str, Any]]) -> None:
        """Take what a turn's live text says of its tools; each replaces the one before."""
        if turn > self._ended:
            self._tools = tools

    def end(self, turn: tuple[int, ...]) -> None:
        """Show nothing more of a turn that is over."""
        self._ended = max(self._ended, turn)
        self._tools = []

    def lines(self, now_s: float) -> Iterator[str]:
        """Yield a line for each tool; `now_s` is in seconds since 1970."""
        for tool in self._tools:
            took = tool.get("seconds")
            # Clocks of two hosts differ.
            seconds = max(0.0, now_s - tool["since_ms"] / 1000 if took is None else took)
            words = one_line(f"{tool['tool']} {tool['argument']}", most=MOST_LINE)
            yield f"· {words} ({int(seconds)} s)"
