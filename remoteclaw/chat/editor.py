"""The input line of a chat."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, FormattedText, to_formatted_text
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth

from remoteclaw.chat.paint import Look
from remoteclaw.host.terminal import printable

PROMPT = "› "
#: What stands before each further line of a message.
CONTINUED = "  "
#: What the keys do, as Markdown.
KEYS = (
    "**Keys**: Esc or Ctrl-C to stop the answer, Alt-Enter or Ctrl-J for a new line, Tab to "
    "complete a `/command` or an `@file`, Ctrl-D or `exit` to leave."
)
#: What leaves the chat.
LEAVING = ("exit", "quit", "/exit", "/quit")
#: How soon after the first a Ctrl-C leaves, in seconds; a later one is a first one again.
TWICE_S = 2.0
#: How long after an Esc the rest of a key that begins with one may come, in seconds: terminals send
#: both at once, and a network may part them.
ESCAPE_S = 0.1
#: How many files are offered, and looked at for that: a home directory may have a million.
MAX_OFFERED, MAX_LOOKED_AT = 50, 20_000
#: Directories that nobody names a file of.
_SKIPPED = frozenset((".git", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache"))


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


class ChatCompleter(Completer):
    """Completes commands behind a `/` at the beginning, and files behind an `@`."""

    def __init__(self, commands: Callable[[], Iterable[tuple[str, str]]], directory: Path) -> None:
        """`commands` returns names, with their `/`, and what each does; files are below
        `directory`."""
        self._commands = commands
        self._directory = directory

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterator[Completion]:
        """Yield what may stand in place of the word before the cursor."""
        before = document.text_before_cursor
        word = before.rsplit(None, 1)[-1] if before and not before[-1].isspace() else ""
        if before.startswith("/") and word == before:
            for name, meaning in self._commands():
                if name.startswith(word):
                    yield Completion(name, -len(word), display_meta=meaning)
        elif word.startswith("@"):
            for path in self._files(word[1:]):
                yield Completion(f"@{path}", -len(word), display=path)

    def _files(self, wanted: str) -> Iterator[str]:
        """Yield files and directories with a text in their path, those in `directory` first."""
        offered = 0
        wanted = wanted.casefold()
        for path in self._walk():
            if wanted in path.casefold():
                yield path
                offered += 1
                if offered == MAX_OFFERED:
                    return

    def _walk(self) -> Iterator[str]:
        looked_at = 0
        level = [""]
        while level:
            below = []
            for prefix in level:
                try:
                    entries = sorted(os.scandir(self._directory / prefix), key=lambda e: e.name)
                except OSError:
                    continue
                for entry in entries:
                    looked_at += 1
                    if looked_at > MAX_LOOKED_AT:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _SKIPPED:
                            below.append(f"{prefix}{entry.name}/")
                            yield below[-1]
                    else:
                        yield f"{prefix}{entry.name}"
            level = below


class Editor:
    """The editor of prompt_toolkit, with text above its lines."""

    def __init__(
        self,
        above: Callable[[], str],
        interrupt: Callable[[], None],
        stop: Callable[[], None],
        *,
        completer: Completer,
        history: Path | None,
        look: Look,
    ) -> None:
        """`above` returns painted lines that stand above the line.

        `interrupt` takes a Ctrl-C and `stop` an Esc, both on an empty line. What is typed is kept
        in the file `history`, which only this user may read.
        """
        self._above = above
        self._interrupt = interrupt
        self._stop = stop
        self._look = look
        self._style = "bold" if look.has_colours else ""
        self._has_left = False
        self._drawn = "", FormattedText()
        """The lines above the line, and both as they are drawn."""
        self._session: PromptSession[str] = PromptSession(
            self._message,
            key_bindings=self._keys(),
            multiline=True,
            prompt_continuation=CONTINUED,
            completer=ThreadedCompleter(completer),
            complete_while_typing=True,
            history=_history(history),
            enable_history_search=False,
            reserve_space_for_menu=4,
            color_depth=None if look.has_colours else ColorDepth.MONOCHROME,
        )
        # Else the open block of an answer, which stands above the prompt, would stay there.
        self._session.app.erase_when_done = True
        self._session.app.ttimeoutlen = ESCAPE_S
        self._draw_resized = self._session.app._on_resize
        self._session.app._on_resize = self._resized  # type: ignore[method-assign]
        self._session.app.before_render += lambda _: self._unwrap()

    async def read(self) -> str:
        """Return the next message; raises EOFError when the person leaves."""
        if self._has_left:
            raise EOFError
        text = await self._session.prompt_async(handle_sigint=False)
        # Bytes that are no UTF-8 come as halves of UTF-16 pairs, which nothing else takes.
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    async def write(self, print_lines: Callable[[], None]) -> None:
        """Print lines above the prompt."""
        app = self._session.app
        if not app.is_running:
            print_lines()
            return
        # Not `run_in_terminal()`, which gives the terminal back for that moment: an Enter that is
        # pressed then comes as Ctrl-J, which breaks the line.
        self._unwrap()
        app.renderer.erase()
        print_lines()
        app.invalidate()

    def redraw(self) -> None:
        """Draw again what is above the line."""
        self._session.app.invalidate()

    def leave(self) -> None:
        """End the reading."""
        self._has_left = True
        app = self._session.app
        if app.is_running and app.future and not app.future.done():
            app.exit(exception=EOFError)

    def _resized(self) -> None:
        """Draw again in another size."""
        self._unwrap()
        self._draw_resized()

    def _unwrap(self) -> None:
        """Erase what was drawn in another size, if it was.

        prompt_toolkit erases what it has drawn as if it stood where it did. A narrower terminal has
        wrapped its lines, and what is above the cursor takes more rows now. Whatever is drawn next
        may be it: the indicator moves before the signal of the new size is heard.
        """
        app = self._session.app
        drawn, size = app.renderer.last_rendered_screen, app.output.get_size()
        if drawn and size != app.renderer._last_size:
            cursor = drawn.get_cursor_position(app.layout.current_window)
            above = (drawn.data_buffer[row] for row in range(cursor.y))
            widths = [max((x for x in row if row[x].char.strip()), default=0) for row in above]
            app.output.cursor_up(sum(last // size.columns for last in (*widths, cursor.x)))
            app.renderer.erase(leave_alternate_screen=False)

    def _message(self) -> AnyFormattedText:
        # It is asked for several times for each drawing.
        if (above := self._above()) != self._drawn[0] or not self._drawn[1]:
            painted = to_formatted_text(ANSI(f"{above}\n" if above else ""))
            self._drawn = above, FormattedText([*painted, (self._style, PROMPT)])
        return self._drawn[1]

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        # Not in the line of Ctrl-R, which has an Enter and a Ctrl-C of its own.
        in_message = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=in_message)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state and buffer.complete_state.current_completion:
                buffer.complete_state = None  # it was chosen from the list
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter", filter=in_message)
        @keys.add("c-j", filter=in_message)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=in_message)
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._interrupt()

        # At once, instead of waiting for what Esc and another key would do.
        @keys.add("escape", filter=in_message & Condition(self._has_only_esc), eager=True)
        def _(_event: KeyPressEvent) -> None:
            self._stop()

        @keys.add("c-d", filter=in_message)
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.delete()
            else:
                self.leave()

        return keys

    def _has_only_esc(self) -> bool:
        """Whether Esc was pressed on an empty line: Alt-Enter is an Esc with an Enter behind it."""
        keys = self._session.app.key_processor
        is_alone = not keys.input_queue and len(keys.key_buffer) == 1
        return is_alone and not self._session.default_buffer.text


def _history(path: Path | None) -> History:
    """Return the history in a file that only this user may read; one that can't be is forgotten."""
    if path is None:
        return InMemoryHistory()
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return _FileHistory(str(path))


class _FileHistory(FileHistory):
    """A history whose file may be lost while the chat goes on."""

    def append_string(self, string: str) -> None:
        """Keep what was typed, unless nobody wants to say it again."""
        if string.strip().casefold() not in LEAVING:
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Keep a message; without room for it, only this run remembers it."""
        try:
            super().store_string(printable(string))
        except OSError:
            return
