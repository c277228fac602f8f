"""The console's screen: answers while they are written, and the tools that run meanwhile."""

from collections.abc import Callable, Iterator
from typing import Any

from remoteclaw.host.terminal import one_line, printable
from remoteclaw.messages import stream_order

__all__ = ["RunningTools", "Transcript"]

#: How long a line about a tool may be, in characters.
MOST_LINE = 200

#: A message's place: its turn's stream id, the attempt, and its number in the turn. All are
#: numbers, because as text "…-10" comes before "…-9".
_Position = tuple[tuple[int, ...], int, int]


class Transcript:
    """The answers on the terminal: complete lines go up, the last one stays apart.

    Live text and the final text are one message: only what was not shown yet is added.
    """

    def __init__(self, label: str, write: Callable[[str], None]) -> None:
        self._label = label
        self._write = write
        self._shown: _Position | None = None
        self._text = ""
        self._done: _Position | None = None
        self.line = ""
        """The line that is still being written."""

    def live(self, turn: str, attempt: int, index: int, text: str) -> None:
        """Show a message as far as it has come; one that is complete already stays as it is."""
        position = stream_order(turn), attempt, index
        if self._done is None or position > self._done:
            self._show(position, text)

    def complete(self, turn: str, attempt: int, index: int, text: str) -> None:
        """Show the whole message and end its last line."""
        position = stream_order(turn), attempt, index
        self._done = position
        if text.strip():
            self._show(position, text)
        self.end_line()
        self._shown, self._text = None, ""

    def message(self, text: str) -> None:
        """Show a message that is no part of an answer: above the line that is being written."""
        for line in f"{self._label}{printable(text).expandtabs()}".split("\n"):
            self._write(line)

    def end_line(self) -> None:
        """Write the line that is still being written, as far as it has come."""
        if self.line:
            self._write(self.line)
        self.line = ""

    def _show(self, position: _Position, text: str) -> None:
        text = printable(text).expandtabs()
        if self._shown == position and text.startswith(self._text.rstrip()):
            added = text[len(self._text) :]
        else:
            self.end_line()  # another message, or the agent took back what it had said
            added = f"{self._label}{text}"
        self._shown, self._text = position, text
        *lines, self.line = (self.line + added).split("\n")
        for line in lines:
            self._write(line)


class RunningTools:
    """A line for each tool that an agent uses, until its turn is over."""

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
