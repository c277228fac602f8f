"""The console's transcript: live text and the final text are one message."""

from collections.abc import Callable

from remoteclaw.host.terminal import printable

__all__ = ["Transcript"]

#: A message's place: its turn's stream id, the attempt, and its number in the turn. All are
#: numbers, because as text "…-10" comes before "…-9".
_Position = tuple[tuple[int, int], int, int]


class Transcript:
    """What the terminal shows of the answers: complete lines go up, the last one stays apart.

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
        position = _position(turn, attempt, index)
        if self._done is None or position > self._done:
            self._show(position, text)

    def complete(self, turn: str, attempt: int, index: int, text: str) -> None:
        """Show the whole message and end its last line."""
        position = _position(turn, attempt, index)
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


def _position(turn: str, attempt: int, index: int) -> _Position:
    milliseconds, _, sequence = turn.partition("-")
    return (int(milliseconds), int(sequence or 0)), attempt, index
