"""The screen of a chat: complete text scrolls up, current activity is shown above the input line.

A live answer is shown block by block. A complete block is painted once and printed. The open block
is shown above the input line and painted again when it changes. The live text and the final text
of a message are shown as one message.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.chat.indicator import Indicator, ending
from remoteclaw.chat.paint import MarkdownPainter
from remoteclaw.clock import format_exact_duration
from remoteclaw.host.terminal import one_line, printable
from remoteclaw.markdown import MarkdownStream
from remoteclaw.messages import stream_order

#: The rows that are reserved for the input line and the indicator.
RESERVED_ROWS = 8
#: After painting an open block, wait this many times as long as that took before painting it again.
#: A long table takes 10 to 40 ms and arrives in 30 updates a second.
REPAINT_FACTOR = 10
#: The longest head of a table that is shown above the table's end, in characters.
MAX_HEAD_CHARS = 500
#: The line between the head and the rows of a table.
_TABLE_RULE = re.compile(r"[\s|:-]*-[\s|:-]*")
#: A message's position: the stream id of its turn, the attempt, and the index in the turn.
_Position = tuple[tuple[int, ...], int, int]


@dataclass(slots=True)
class _LiveMessage:
    """The message that is being written."""

    position: _Position
    origin: str = ""
    """A description of what the message answers, such as a cron job; empty for a person."""
    stream: MarkdownStream = field(default_factory=MarkdownStream)
    has_head: bool = False
    """Whether the head was printed, and only blocks of this message since."""


@dataclass(frozen=True, slots=True)
class _PaintedBlock:
    """The painted end of the open block."""

    source: tuple[str, int, int]
    """The block's text, and the columns and rows for which it was painted."""
    lines: Sequence[str]
    until: float
    """The earliest time at which it may be painted again, on the screen's clock."""


class ChatScreen:
    """Everything that a chat shows. Complete text is passed to `write`, one block at a time."""

    def __init__(
        self,
        painter: MarkdownPainter,
        write: Callable[[str], None],
        *,
        size: Callable[[], tuple[int, int]],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`size` returns the terminal's columns and rows. The clocks return seconds."""
        self._painter = painter
        self._write = write
        self._size = size
        self._clock = clock
        self._wall = wall
        self.indicator = Indicator(painter, clock=clock, wall=wall)
        self._live: _LiveMessage | None = None
        self._last_shown: _Position | None = None
        """The position of the last complete message."""
        self._last_ended: tuple[int, ...] = ()
        """The stream id of the last turn that ended. Live text that arrives late is not shown."""
        self._unfinished: dict[_Position, _LiveMessage] = {}
        """The messages whose final text has not arrived when the next one has begun, as happens
        while no gateway delivers; empty while final texts don't arrive at all."""
        self.gets_final_texts = True
        """Whether each message arrives as a final text, and not only as the answer of its turn."""
        self._earlier_texts: list[str] = []
        """The live texts of the turn's messages before the one that is being written."""
        self._painted_block = _PaintedBlock(("", 0, 0), (), 0.0)
        self.problem = ""
        """The reason why the chat does not work at the moment; empty while it works."""
        self.agent = "agent"
        """The agent's name, which is shown above its messages."""

    # -- messages ------------------------------------------------------------------------------

    def begin(self) -> None:
        """End the display of another conversation, whose turns may be newer than this one's."""
        self._flush()
        self._unfinished.clear()
        self._last_shown, self._last_ended = None, ()
        self.indicator.end_turn()

    def show_user_message(self, text: str) -> None:
        """Show a message of the person."""
        self._interrupt_live()
        lines = self._painter.wrap(printable(text).expandtabs(4), self._size()[0] - 2)
        marks = ("› ", *["  "] * (len(lines) - 1))
        self._print(
            "\n".join(
                self._painter.styled(mark + line, "bold")
                for mark, line in zip(marks, lines, strict=True)
            )
        )

    def show_live(self, live: Mapping[str, Any]) -> None:
        """Show a message's partial text, and what the agent is doing (`session.live`)."""
        turn = stream_order(live["turn"])
        if turn <= self._last_ended:
            return
        self.indicator.update(live)
        position = turn, int(live["attempt"]), int(live["index"])
        if live.get("text") and (self._last_shown is None or position > self._last_shown):
            self._show(position, str(live["text"]), origin=str(live.get("origin") or ""))

    def show_message(self, message: Mapping[str, Any]) -> None:
        """Show a complete message (`chat.message`)."""
        text = str(message.get("text") or "")
        if message.get("turn") is None:
            self._interrupt_live()
            self._print_head(str(message.get("origin") or ""))
            self._print(self._paint(text))
            return
        position = stream_order(message["turn"]), int(message["attempt"]), int(message["index"])
        if self._last_shown is None or position > self._last_shown:
            if live := self._unfinished.pop(position, None):
                self._finish(live, text)
            elif text.strip():
                origin = str(message.get("origin") or "")
                self._show(position, text, origin=origin, is_error=bool(message.get("isError")))
            if live is None:
                self._flush()
            self._last_shown = position
            self._unfinished = {at: own for at, own in self._unfinished.items() if at > position}
        if message.get("isFinal"):
            self.end_turn(message["turn"], note=ending(message))

    def show_reply(self, turn: str | None, text: str) -> None:
        """Show the whole answer of a turn whose messages are delivered in another chat."""
        live, order = self._live, stream_order(turn) if turn else ()
        earlier = "".join(f"{part.rstrip()}\n\n" for part in self._earlier_texts)
        if live and live.position[0] == order and text.startswith(earlier):
            self._show(live.position, text[len(earlier) :], origin=live.origin)
            self._flush()
        else:
            self._live = None
            self._print_head()
            self._print(self._paint(text))

    def end_turn(self, turn: str | None, *, note: str = "") -> None:
        """Record that `turn` is over, and show `note` below its answer."""
        if turn is not None:
            self._last_ended = max(self._last_ended, stream_order(turn))
        if self._live and self._live.position[0] > self._last_ended:
            self._interrupt_live()  # the next turn writes already
        else:
            self._flush()
            self.indicator.end_turn()
        if note:
            self._print(self._painter.styled(note, "dim"))

    def show_earlier(
        self, items: Sequence[Mapping[str, Any]], *, is_cut: bool = False
    ) -> Sequence[Mapping[str, Any]]:
        """Show messages from before this chat was opened; return those that were shown.

        If they are to be cut (`is_cut`), the newest ones that fit on the screen are shown.
        """
        messages: Sequence[Mapping[str, Any]]
        messages = [item for item in items if item["role"] in ("user", "agent")]
        if is_cut:
            messages = self._newest_that_fit(messages)
        if not messages:
            return ()
        ago = self._wall() - messages[0]["at"] / 1000
        self._print(
            self._painter.styled(
                f"(earlier: {format_exact_duration(round(ago) * 1000)} ago)", "dim"
            )
        )
        for message in messages:
            if message["role"] == "user":
                self.show_user_message(str(message.get("text") or ""))
            else:
                self._print_head(str(message.get("origin") or ""))
                self._print(self._paint(str(message.get("text") or "")))
        return messages

    def _newest_that_fit(
        self, messages: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """Return the newest messages that fit on the screen together, and at least one."""
        room = self._size()[1] - RESERVED_ROWS
        for index in reversed(range(len(messages))):
            room -= self._paint(str(messages[index].get("text") or "")).count("\n") + 3
            if room < 0:
                return messages[min(index + 1, len(messages) - 1) :]
        return messages

    def show_notice(self, text: str) -> None:
        """Show a sentence of the chat's own."""
        self._interrupt_live()
        lines = self._painter.wrap(printable(text), self._size()[0])
        self._print("\n".join(self._painter.styled(line, "dim") for line in lines))

    def show_command_reply(self, markdown: str) -> None:
        """Show the reply to a command."""
        self._interrupt_live()
        self._print(self._paint(markdown))

    # -- the text above the input line ---------------------------------------------------------

    def above(self) -> str:
        """Return the open block and the indicator, as painted lines; empty if there is neither."""
        columns, rows = self._size()
        lines: list[str] = []
        if self._live and self._live.stream.open_text.strip():
            if not self._live.has_head:
                lines.append(self._head(self._live.origin))
            lines += self._open_lines(self._live, columns, rows)
        if self.problem:
            problem = self._painter.wrap(printable(self.problem), columns - 1)
            lines += [self._painter.styled(line, "yellow") for line in problem]
        elif self.indicator.is_busy:
            lines += self.indicator.lines(columns)
        return "\n".join(lines)

    def _open_lines(self, live: _LiveMessage, columns: int, rows: int) -> Sequence[str]:
        """Return the painted end of the open block.

        The result is cached until the block changes, and for `REPAINT_FACTOR` times the duration of
        the last painting.
        """
        max_rows = max(rows - RESERVED_ROWS, 3) - (not live.has_head)
        text, last, now = live.stream.open_text, self._painted_block, self._clock()
        source = text, columns, max_rows
        is_continued = text.startswith(last.source[0]) and last.source[1:] == source[1:]
        if last.source == source or (is_continued and now < last.until):
            return last.lines
        tail = _tail(text, max_rows, columns)
        lines = self._painter.paint(tail, columns).split("\n")[-max_rows:]
        until = now + (self._clock() - now) * REPAINT_FACTOR
        self._painted_block = _PaintedBlock(source, lines, until)
        return lines

    # -- helpers -------------------------------------------------------------------------------

    def _show(self, position: _Position, text: str, *, origin: str, is_error: bool = False) -> None:
        """Show the text of a turn's message: print its complete blocks, keep the open one."""
        live = self._live
        if live is None or live.position != position or not live.stream.continues(text):
            if live is None or live.position[:2] != position[:2]:
                self._earlier_texts = []
            elif live.position < position:
                self._earlier_texts.append(live.stream.text)
            if live and self.gets_final_texts and _follows(position, live.position):
                self._unfinished[live.position] = live
                live.has_head, self._live = False, None
            self._flush()  # another message, or the agent has retracted its text
            live = self._live = _LiveMessage(position, origin)
        blocks = live.stream.feed(text)
        if blocks:
            self._begin(live, is_error=is_error)
            self._print(self._painter.paint_blocks(blocks, self._size()[0]))

    def _begin(self, live: _LiveMessage, *, is_error: bool = False) -> None:
        if not live.has_head:
            live.has_head = True
            self._print_head(live.origin, is_error=is_error)

    def _print_head(self, origin: str = "", *, is_error: bool = False) -> None:
        self._write(self._head(origin, is_error=is_error))

    def _head(self, origin: str, *, is_error: bool = False) -> str:
        """Return the line above a message: the agent's name and the message's origin."""
        head = self._painter.styled(printable(self.agent), "red" if is_error else "green")
        room = self._size()[0] - len(self.agent) - 4
        about = one_line(origin, max_chars=max(room, 10))
        return head + self._painter.styled(f" · {about}", "dim") if about else head

    def _interrupt_live(self) -> None:
        """Have the live message's head printed again, because other text is printed now."""
        if self._live:
            self._live.has_head = False

    def _finish(self, live: _LiveMessage, text: str) -> None:
        """Print the rest of a message after the next one has begun; `text` is its final text."""
        self._interrupt_live()
        stream = live.stream if live.stream.continues(text) else MarkdownStream()
        if blocks := [*stream.feed(text), *stream.finish()]:
            self._begin(live)
            self._print(self._painter.paint_blocks(blocks, self._size()[0]))

    def _flush(self) -> None:
        """Print the rest of the live message, and end it."""
        live, self._live = self._live, None
        if live and (blocks := live.stream.finish()):
            self._begin(live)
            self._print(self._painter.paint_blocks(blocks, self._size()[0]))

    def _print(self, painted: str) -> None:
        self._write(f"{painted}\n")

    def _paint(self, markdown: str) -> str:
        return self._painter.paint(markdown, self._size()[0])


def _follows(position: _Position, earlier: _Position) -> bool:
    """Whether a message comes after an earlier one of the same attempt, or of an earlier turn."""
    is_same_turn, is_same_attempt = position[0] == earlier[0], position[1] == earlier[1]
    return position > earlier and (is_same_attempt or not is_same_turn)


def _tail(text: str, rows: int, columns: int) -> str:
    """Return the end of an open block that fits into `rows`.

    It begins with the fence of a code block or the head of a table, so that it is painted as one.
    """
    end = text[-rows * columns :]
    lines = end.split("\n")[-rows:]
    if (shown := "\n".join(lines)) == text:
        return text
    first, second = [*text[: 2 * MAX_HEAD_CHARS].split("\n"), ""][:2]
    if first.lstrip().startswith(("```", "~~~")):
        lines = [first, *lines[1:]]
    elif _TABLE_RULE.fullmatch(second):
        lines = [first, second, *lines[3:]]
    elif len(shown) == len(end):  # the cut is in the middle of a line
        lines[0] = lines[0].partition(" ")[2] or lines[0]
    return "\n".join(lines)
