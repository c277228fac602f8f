"""Input lines of the console."""

import os
import time
from collections.abc import Callable

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

__all__ = ["PROMPT", "Editor", "Interrupts"]

PROMPT = "you> "
#: How soon after the first a Ctrl-C leaves, in seconds; a later one is a first one again.
TWICE_S = 2.0


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


class Editor:
    """The line editor of prompt_toolkit, with text above the line."""

    def __init__(self, above: Callable[[], str], interrupt: Callable[[], None]) -> None:
        """`above` returns what stands above the line, and `interrupt` takes a Ctrl-C."""
        self._above = above
        self._interrupt = interrupt
        self._style = "" if os.environ.get("NO_COLOR") else "bold"
        self._has_left = False
        self._session: PromptSession[str] = PromptSession(self._message, key_bindings=self._keys())
        # Else an answer's unfinished line, which stands above the prompt, would stay there.
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
