"""An answer that is printed while it is written."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remoteclaw.host.terminal import printable

if TYPE_CHECKING:
    from remoteclaw.chat.paint import Painter
    from remoteclaw.markdown import MarkdownStream


class AnswerStream:
    """Prints the messages of an answer as far as they have come, each word once.

    On a terminal the Markdown is painted, a block when it is complete; elsewhere the text is
    printed as it comes. Live text may be missed: what did not come before comes with the outcome.
    """

    def __init__(self) -> None:
        self._painter = _painter() if sys.stdout.isatty() else None
        self.turn: str | None = None
        """The turn whose answer it is; what comes before it is known is not printed."""
        self._attempt: int | None = None
        self._whole: list[str] = []
        """The messages of the turn that stand there."""
        self._text = ""
        """The message that is being written, as far as it was taken."""
        self._printed = ""
        """The part that is printed, where it is not painted."""
        self._stream = self._new_stream()
        self._has_printed = False
        self._is_torn = False
        """Whether the agent has taken back what stands there."""

    def live(self, told: Mapping[str, Any]) -> None:
        """Take a message as far as it has come (`session.live`)."""
        if told["turn"] != self.turn:
            return  # that of a message before
        if told["attempt"] != self._attempt:
            self._attempt = told["attempt"]
            self._is_torn = bool(self._whole or self._text)
        if self._is_torn or told["index"] != len(self._whole) or not told["text"]:
            return
        if not self._continue(told["text"]):
            self._is_torn = True
        elif told.get("is_complete"):
            self._complete()

    def end(self, texts: Sequence[str]) -> None:
        """Print what is missing of the whole answer."""
        count = len(self._whole)
        if self._whole != list(texts[:count]) or self._is_torn or not self._goes_on(texts[count:]):
            self._text = self._printed = ""
            self._stream = self._new_stream()
            count = 0
        for text in texts[count:]:
            self._continue(text)
            self._complete()
        if self._has_printed:
            self._write("\n")

    def _goes_on(self, rest: Sequence[str]) -> bool:
        return not self._text or bool(rest and self._begins(rest[0]))

    def _begins(self, text: str) -> bool:
        """Return whether a text begins with what stands there of the current message."""
        if self._stream:
            return self._stream.continues(text)
        return printable(text).startswith(self._printed)

    def _continue(self, text: str) -> bool:
        """Print what is new of the current message; return whether it is the same one."""
        if not self._begins(text):
            return False
        self._text = text
        if self._stream:
            self._paint(self._stream.feed(text))
        else:
            shown = printable(text)
            self._apart(is_new=not self._printed, has_more=len(shown) > len(self._printed))
            self._write(shown[len(self._printed) :])
            self._printed = shown
        return True

    def _complete(self) -> None:
        """Print the rest of the current message."""
        if self._stream:
            self._paint(self._stream.finish())
        self._whole.append(self._text)
        self._text = self._printed = ""
        self._stream = self._new_stream()

    def _paint(self, blocks: Sequence[Any]) -> None:
        if blocks and self._painter:
            self._apart(is_new=True, has_more=True)
            self._write(self._painter.blocks(blocks, shutil.get_terminal_size().columns))

    def _apart(self, *, is_new: bool, has_more: bool) -> None:
        if is_new and has_more:
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


def _painter() -> "Painter":
    from remoteclaw.chat.paint import Look, Painter

    return Painter(Look.of())
