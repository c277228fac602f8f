"""Input lines of the console: an editor, and a plain reader for terminals that can only print."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

__all__ = ["PROMPT", "Editor", "Interrupts", "PlainEditor", "PromptEditor"]

PROMPT = "you> "
#: The most that a terminal gives at once, in bytes: a line.
READ_BYTES = 4096
#: How soon after the first a Ctrl-C leaves, in seconds; a later one is a first one again.
TWICE_S = 2.0


class Editor(Protocol):
    """A line to type in, with text above it."""

    keeps_typed: bool
    """Whether a line that was typed stays on the screen."""

    async def read(self) -> str:
        """Return the next line; raises EOFError when the person leaves."""

    async def write(self, print_lines: Callable[[], None]) -> None:
        """Call a function that prints complete lines."""

    def redraw(self) -> None:
        """Draw again what is above the line."""

    def leave(self) -> None:
        """Let `read()` raise EOFError, now and from now on."""


class Interrupts:
    """Tells a Ctrl-C that stops the answer from one soon after it, which leaves."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def press(self) -> bool:
        """Take a Ctrl-C; return whether it is the second one."""
        before, self._last = self._last, self._clock()
        return before is not None and self._last - before <= TWICE_S

    def forget(self) -> None:
        """Let the next one be the first: the person has done something else."""
        self._last = None


class PromptEditor:
    """The line editor of prompt_toolkit."""

    # Else an answer's unfinished line, which stands above the prompt, would stay there.
    keeps_typed = False

    def __init__(self, above: Callable[[], str], interrupt: Callable[[], None]) -> None:
        """`above` returns what stands above the line, and `interrupt` takes a Ctrl-C."""
        self._above = above
        self._interrupt = interrupt
        self._style = "" if os.environ.get("NO_COLOR") else "bold"
        self._has_left = False
        self._session: PromptSession[str] = PromptSession(self._message, key_bindings=self._keys())
        self._session.app.erase_when_done = True

    async def read(self) -> str:
        """Return the next line; raises EOFError when the person leaves."""
        if self._has_left:
            raise EOFError
        return await self._session.prompt_async(handle_sigint=False)

    async def write(self, print_lines: Callable[[], None]) -> None:
        """Print lines above the prompt."""
        await run_in_terminal(print_lines)

    def redraw(self) -> None:
        """Draw again what is above the line."""
        self._session.app.invalidate()

    def leave(self) -> None:
        """End the reading."""
        self._has_left = True
        app = self._session.app
        if app.is_running and app.future and not app.future.done():
            app.exit(exception=EOFError)

    def _message(self) -> StyleAndTextTuples:
        above = self._above()
        return [("", f"{above}\n" if above else ""), (self._style, PROMPT)]

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._interrupt()

        return keys


class PlainEditor:
    """Reads the lines of a terminal like TERM=dumb, which lets the person edit them itself."""

    keeps_typed = True

    def __init__(self) -> None:
        self._typed = b""
        self._has_ended = False
        self._arrived = asyncio.Event()
        self._is_reading = False

    async def read(self) -> str:
        """Return the next line; raises EOFError at the end of the input, and after `leave()`."""
        loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()
        loop.add_reader(stdin, self._take, stdin)
        self._is_reading = True
        try:
            self._print(PROMPT)
            while b"\n" not in self._typed:
                if self._has_ended:
                    raise EOFError
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self._is_reading = False
            loop.remove_reader(stdin)
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace")

    async def write(self, print_lines: Callable[[], None]) -> None:
        """Print lines, and the prompt again behind them."""
        if self._is_reading:
            self._print("\n")
        print_lines()
        if self._is_reading:
            self._print(PROMPT)

    def redraw(self) -> None:
        """Do nothing: what is printed stays."""

    def leave(self) -> None:
        """End the reading."""
        self._has_ended = True
        self._arrived.set()

    def _take(self, stdin: int) -> None:
        try:
            data = os.read(stdin, READ_BYTES)
        except OSError:
            data = b""  # the terminal was closed
        self._typed += data
        self._has_ended |= not data
        self._arrived.set()

    def _print(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
