"""Prints an answer while the agent writes it."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remoteclaw.host.terminal import printable

if TYPE_CHECKING:
    from remoteclaw.chat.paint import MarkdownPainter
    from remoteclaw.markdown import MarkdownStream


class AnswerStream:
    """Prints the messages of an answer while they are written, each word once.

    On a terminal, Markdown is painted, each block when it is complete. Elsewhere, text is printed
    as it arrives. Live text may be missed: `end()` prints what is missing.
    """

    def __init__(self) -> None:
        self._painter = _painter() if sys.stdout.isatty() else None
        self.turn: str | None = None
        """The turn that is answered; live text is printed only once it is known."""
        self._attempt: int | None = None
        self._complete: list[str] = []
        """The messages of the turn that are printed completely."""
        self._text = ""
        """The newest text of the current message."""
        self._printed = ""
        """The printed part of the current message, if Markdown is not painted."""
        self._stream = self._new_stream()
        self._has_printed = False
        self._is_outdated = False
        """Whether printed text was replaced by the agent: `end()` then prints the whole answer."""

    def live(self, event: Mapping[str, Any]) -> None:
        """Print the new text of an event `session.live`."""
        if event["turn"] != self.turn:
            return  # of an earlier message
        if event["attempt"] != self._attempt:
            self._attempt = event["attempt"]
            self._is_outdated = bool(self._complete or self._text)
        if self._is_outdated or event["index"] != len(self._complete) or not event["text"]:
            return
        if not self._print_current(event["text"]):
            self._is_outdated = True
        elif event.get("is_complete"):
            self._finish_current()

    def end(self, texts: Sequence[str]) -> None:
        """Print the rest of the answer, or all of it if it differs from what is printed.

        `texts` are the messages of the answer.
        """
        count = len(self._complete)
        is_same = self._complete == list(texts[:count]) and not self._is_outdated
        if not is_same or not self._is_continued_by(texts[count:]):
            self._text = self._printed = ""
            self._stream = self._new_stream()
            count = 0
        for text in texts[count:]:
            self._print_current(text)
            self._finish_current()
        if self._has_printed:
            self._write("\n")

    def _is_continued_by(self, rest: Sequence[str]) -> bool:
        """Return whether the first of `rest` continues the current message, if there is one."""
        return not self._text or bool(rest and self._continues(rest[0]))

    def _continues(self, text: str) -> bool:
        """Return whether `text` begins with the printed part of the current message."""
        if self._stream:
            return self._stream.continues(text)
        return printable(text).startswith(self._printed)

    def _print_current(self, text: str) -> bool:
        """Print what `text` adds to the current message; return False if it is another message."""
        if not self._continues(text):
            return False
        self._text = text
        if self._stream:
            self._paint(self._stream.feed(text))
        else:
            shown = printable(text)
            if shown and not self._printed:
                self._separate()
            self._write(shown[len(self._printed) :])
            self._printed = shown
        return True

    def _finish_current(self) -> None:
        """Print the rest of the current message, and begin the next one."""
        if self._stream:
            self._paint(self._stream.finish())
        self._complete.append(self._text)
        self._text = self._printed = ""
        self._stream = self._new_stream()

    def _paint(self, blocks: Sequence[Any]) -> None:
        if blocks and self._painter:
            self._separate()
            self._write(self._painter.paint_blocks(blocks, shutil.get_terminal_size().columns))

    def _separate(self) -> None:
        """Print an empty line, unless nothing is printed yet."""
        if self._has_printed:
            self._write("\n\n")
        self._has_printed = True

    def _new_stream(self) -> "MarkdownStream | None":
        if self._painter is None:
            return None
        from remoteclaw.markdown import MarkdownStream

        return MarkdownStream()

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _painter() -> "MarkdownPainter":
    from remoteclaw.chat.paint import MarkdownPainter, TerminalFeatures

    return MarkdownPainter(TerminalFeatures.of())
