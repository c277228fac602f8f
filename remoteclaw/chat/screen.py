"""The screen of a chat: what has been said goes up, what is going on stands above the input line.

A live answer is shown block by block: a block that is complete is painted once and goes up, the
open one is painted again with each change. Live text and the final text are one message.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.chat.indicator import Indicator, duration, ending
from remoteclaw.chat.paint import Painter
from remoteclaw.host.terminal import one_line, printable
from remoteclaw.markdown import MarkdownStream
from remoteclaw.messages import stream_order

#: How many rows are left to the input line, the indicator and what stands above both.
ROWS_BELOW = 8
#: How many times as long as painting a block takes, it is not painted again: a long table takes 10
#: to 40 ms, and comes in 30 times a second.
PAINTING = 10
#: How long the head of a table may be to be shown above its end, in characters.
MAX_HEAD = 500
#: The line below it.
_TABLE_RULE = re.compile(r"[\s|:-]*-[\s|:-]*")
#: A message's place: its turn's stream id, the attempt, and its number in the turn.
_Position = tuple[tuple[int, ...], int, int]


@dataclass(slots=True)
class _Answer:
    """The message that is being written."""

    position: _Position
    origin: str = ""
    """What it answers, in words, where no person has asked."""
    stream: MarkdownStream = field(default_factory=MarkdownStream)
    has_begun: bool = False
    """Whether a block of it was the last thing that has gone up."""


@dataclass(frozen=True, slots=True)
class _Painted:
    """The end of the block that is open, as it stands above the input line."""

    shown: tuple[str, int, int]
    """The block, the columns and the rows for which it was painted."""
    lines: Sequence[str]
    until: float
    """When it is painted again at the soonest, on the screen's clock."""


class Screen:
    """Everything that a chat shows; `write` gets what goes up, a block at a time."""

    def __init__(
        self,
        painter: Painter,
        write: Callable[[str], None],
        *,
        size: Callable[[], tuple[int, int]],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`size` returns the terminal's columns and rows."""
        self._painter = painter
        self._write = write
        self._size = size
        self._clock = clock
        self._wall = wall
        self.indicator = Indicator(painter, clock=clock, wall=wall)
        self._answer: _Answer | None = None
        self._done: _Position | None = None
        self._ended: tuple[int, ...] = ()
        """The last turn that is over: what comes late of it is not shown."""
        self._parts: list[str] = []
        """The live texts of the turn's messages before the one that is being written."""
        self._open = _Painted(("", 0, 0), (), 0.0)
        self.problem = ""
        """What keeps the chat from working at the moment."""
        self.agent = "agent"
        """The name that stands above what the agent says."""

    # -- what the person does ------------------------------------------------------------------

    def typed(self, text: str) -> None:
        """Show what the person has sent."""
        self._interject()
        lines = self._painter.words(printable(text).expandtabs(4), self._size()[0] - 2)
        marks = ("› ", *["  "] * (len(lines) - 1))
        self._up(
            "\n".join(
                self._painter.styled(mark + line, "bold")
                for mark, line in zip(marks, lines, strict=True)
            )
        )

    # -- what the agent does -------------------------------------------------------------------

    def live(self, told: Mapping[str, Any]) -> None:
        """Show a message as far as it has come, and what the agent does meanwhile."""
        turn = stream_order(told["turn"])
        if turn <= self._ended:
            return
        self.indicator.live(told)
        position = turn, int(told["attempt"]), int(told["index"])
        if told.get("text") and (self._done is None or position > self._done):
            self._show(position, str(told["text"]), origin=str(told.get("origin") or ""))

    def message(self, told: Mapping[str, Any]) -> None:
        """Show a complete message."""
        text = str(told.get("text") or "")
        if told.get("turn") is None:
            self._interject()
            self._head(str(told.get("origin") or ""))
            self._up(self._painted(text))
            return
        position = stream_order(told["turn"]), int(told["attempt"]), int(told["index"])
        if self._done is None or position > self._done:
            if text.strip():
                origin = str(told.get("origin") or "")
                self._show(position, text, origin=origin, is_error=bool(told.get("isError")))
            self._flush()
            self._done = position
        if told.get("isFinal"):
            self.ended(told["turn"], note=ending(told))

    def reply(self, turn: str | None, text: str) -> None:
        """Show the whole answer of a turn, whose messages are delivered in another chat."""
        answer, place = self._answer, stream_order(turn) if turn else ()
        before = "".join(f"{part.rstrip()}\n\n" for part in self._parts)
        if answer and answer.position[0] == place and text.startswith(before):
            self._show(answer.position, text[len(before) :], origin=answer.origin)
            self._flush()
        else:
            self._answer = None
            self._head()
            self._up(self._painted(text))

    def ended(self, turn: str | None, *, note: str = "") -> None:
        """Note that a turn is over; a note about it stands below its answer."""
        if turn is not None:
            self._ended = max(self._ended, stream_order(turn))
        self._flush()
        self.indicator.ended()
        if note:
            self._up(self._painter.styled(note, "dim"))

    def earlier(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Show an exchange from before this chat was opened: what was asked, and the answer."""
        said = [item for item in items if item["role"] in ("user", "agent")]
        if not said:
            return
        ago = self._wall() - said[0]["at"] / 1000
        self._up(self._painter.styled(f"(earlier: {duration(max(ago, 0.0))} ago)", "dim"))
        for item in said:
            if item["role"] == "user":
                self.typed(str(item.get("text") or ""))
            else:
                self._head()
                self._up(self._painted(str(item.get("text") or "")))

    def say(self, words: str) -> None:
        """Show a sentence of the chat's own."""
        self._interject()
        lines = self._painter.words(printable(words), self._size()[0])
        self._up("\n".join(self._painter.styled(line, "dim") for line in lines))

    def answer(self, markdown: str) -> None:
        """Show the answer to a command."""
        self._interject()
        self._up(self._painted(markdown))

    # -- what stands above the input line ------------------------------------------------------

    def above(self) -> str:
        """Return the open block and the indicator, as painted lines; empty if nothing goes on."""
        columns, rows = self._size()
        lines: list[str] = []
        if self._answer and self._answer.stream.open_text.strip():
            if not self._answer.has_begun:
                lines.append(self._name(self._answer.origin))
            lines += self._open_lines(self._answer, columns, rows)
        if self.problem:
            words = self._painter.words(printable(self.problem), columns - 1)
            lines += [self._painter.styled(line, "yellow") for line in words]
        elif self.indicator.is_busy:
            lines += self.indicator.lines(columns)
        return "\n".join(lines)

    def _open_lines(self, answer: _Answer, columns: int, rows: int) -> Sequence[str]:
        """Return the end of the open block, painted.

        It is painted once for all drawings until it changes, and no sooner than `PAINTING` times as
        long after the last time as that took.
        """
        room = max(rows - ROWS_BELOW, 3) - (not answer.has_begun)
        text, before, now = answer.stream.open_text, self._open, self._clock()
        shown = text, columns, room
        goes_on = text.startswith(before.shown[0]) and before.shown[1:] == shown[1:]
        if before.shown == shown or (goes_on and now < before.until):
            return before.lines
        tail = _tail(text, room, columns)
        lines = self._painter.text(tail, columns).split("\n")[-room:]
        until = now + (self._clock() - now) * PAINTING
        self._open = _Painted(shown, lines, until)
        return lines

    # -- helpers -------------------------------------------------------------------------------

    def _show(self, position: _Position, text: str, *, origin: str, is_error: bool = False) -> None:
        answer = self._answer
        if answer is None or answer.position != position or not answer.stream.continues(text):
            if answer is None or answer.position[:2] != position[:2]:
                self._parts = []
            elif answer.position < position:
                self._parts.append(answer.stream.text)
            self._flush()  # another message, or the agent took back what it had said
            answer = self._answer = _Answer(position, origin)
        blocks = answer.stream.feed(text)
        if blocks:
            self._begin(answer, is_error=is_error)
            self._up(self._painter.blocks(blocks, self._size()[0]))

    def _begin(self, answer: _Answer, *, is_error: bool = False) -> None:
        if not answer.has_begun:
            answer.has_begun = True
            self._head(answer.origin, is_error=is_error)

    def _head(self, origin: str = "", *, is_error: bool = False) -> None:
        self._write(self._name(origin, is_error=is_error))

    def _name(self, origin: str, *, is_error: bool = False) -> str:
        head = self._painter.styled(printable(self.agent), "red" if is_error else "green")
        room = self._size()[0] - len(self.agent) - 4
        about = one_line(origin, most=max(room, 10))
        return head + self._painter.styled(f" · {about}", "dim") if about else head

    def _interject(self) -> None:
        """Make room for something else, above the block that is open."""
        if self._answer:
            self._answer.has_begun = False

    def _flush(self) -> None:
        """Let what is left of the open message go up."""
        answer, self._answer = self._answer, None
        if answer and (blocks := answer.stream.finish()):
            self._begin(answer)
            self._up(self._painter.blocks(blocks, self._size()[0]))

    def _up(self, painted: str) -> None:
        self._write(f"{painted}\n")

    def _painted(self, markdown: str) -> str:
        return self._painter.text(markdown, self._size()[0])


def _tail(text: str, rows: int, columns: int) -> str:
    """Return the end of an open block, as much as the rows may hold, behind what says what it is.

    That is the fence of a block of code, and the head of a table.
    """
    end = text[-rows * columns :]
    lines = end.split("\n")[-rows:]
    if (shown := "\n".join(lines)) == text:
        return text
    first, second = [*text[: 2 * MAX_HEAD].split("\n"), ""][:2]
    if first.lstrip().startswith(("```", "~~~")):
        lines = [first, *lines[1:]]
    elif _TABLE_RULE.fullmatch(second):
        lines = [first, second, *lines[3:]]
    elif len(shown) == len(end):  # the cut is in the middle of a line
        lines[0] = lines[0].partition(" ")[2] or lines[0]
    return "\n".join(lines)
