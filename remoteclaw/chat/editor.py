"""The input line of a chat: editing, completion, history and keys."""

import itertools
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
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth

from remoteclaw.chat.paint import TerminalFeatures
from remoteclaw.host.terminal import printable

PROMPT = "› "
#: The prompt of each further line of a message.
CONTINUATION = "  "
#: The help on keys, in Markdown.
KEYS = (
    "**Keys**: on an empty line, Esc or Ctrl-C to stop the answer; Alt-Enter or Ctrl-J for a new "
    "line, Tab to complete a `/command` or an `@file`, Ctrl-D or `exit` to leave."
)
#: The words that close the chat.
EXIT_WORDS = ("exit", "quit", "/exit", "/quit")
#: A second Ctrl-C within this time leaves the chat, in seconds.
TWICE_S = 2.0
#: The time to wait for the rest of an escape sequence after an Esc, in seconds. Terminals send the
#: sequence at once, but a network may split it.
ESCAPE_S = 0.1
#: At most this many files are offered as completions.
MAX_OFFERED = 50
#: At most this many files are searched for completions: a home directory may have a million.
MAX_SEARCHED = 20_000
#: Directories that are not searched for completions.
_SKIPPED = frozenset((".git", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache"))

_ENTER = KeyPress(Keys.ControlM, "\r")


class Interrupts:
    """Distinguishes a single Ctrl-C, which stops the answer, from a double one, which leaves."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def press(self) -> bool:
        """Record a Ctrl-C. Return whether it is the second one within `TWICE_S`."""
        previous, self._last = self._last, self._clock()
        return previous is not None and self._last - previous <= TWICE_S

    def reset(self) -> None:
        """Make the next Ctrl-C count as the first one."""
        self._last = None


class ChatCompleter(Completer):
    """Completes commands after a `/` at the beginning of a message, and files after an `@`."""

    def __init__(
        self, commands: Callable[[], Iterable[tuple[str, str]]], directory: Callable[[], Path]
    ) -> None:
        """`commands` returns the commands, with their `/`, and their descriptions.

        Files are searched in the directory that `directory` returns, and below.
        """
        self._commands = commands
        self._directory = directory

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterator[Completion]:
        """Yield completions of the word before the cursor."""
        before = document.text_before_cursor
        word = before.rsplit(None, 1)[-1] if before and not before[-1].isspace() else ""
        if before.startswith("/") and word == before:
            for name, description in self._commands():
                if name.startswith(word):
                    yield Completion(name, -len(word), display_meta=description)
        elif word.startswith("@"):
            for path in self._files(word[1:]):
                yield Completion(f"@{path}", -len(word), display=path)

    def _files(self, text: str) -> Iterator[str]:
        """Yield files and directories whose path contains `text`, those higher up first."""
        text = text.casefold()
        matches = (path for path in self._walk() if text in path.casefold())
        yield from itertools.islice(matches, MAX_OFFERED)

    def _walk(self) -> Iterator[str]:
        """Yield files and directories, breadth first."""
        directory = self._directory()
        searched = 0
        level = [""]
        while level:
            next_level = []
            for prefix in level:
                try:
                    entries = sorted(os.scandir(directory / prefix), key=lambda e: e.name)
                except OSError:
                    continue
                for entry in entries:
                    searched += 1
                    if searched > MAX_SEARCHED:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _SKIPPED:
                            next_level.append(f"{prefix}{entry.name}/")
                            yield next_level[-1]
                    else:
                        yield f"{prefix}{entry.name}"
            level = next_level


class Editor:
    """The editor of the input line, by prompt_toolkit, with painted text above it."""

    def __init__(
        self,
        above: Callable[[], str],
        interrupt: Callable[[], None],
        stop: Callable[[], None],
        *,
        completer: Completer,
        history: Path | None,
        features: TerminalFeatures,
    ) -> None:
        """`above` returns the painted text to show above the input line.

        `interrupt` is called for Ctrl-C and `stop` for Esc, both on an empty line. Messages are
        kept in the file `history`, which only this user may read; None to forget them at the end.
        """
        self._above = above
        self._interrupt = interrupt
        self._stop = stop
        self._style = "bold" if features.has_colours else ""
        self._has_left = False
        self._cached_prompt = "", FormattedText()
        """The text above the input line, and the prompt with it."""
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            key_bindings=self._keys(),
            multiline=True,
            prompt_continuation=CONTINUATION,
            completer=ThreadedCompleter(completer),
            complete_while_typing=True,
            history=_history(history),
            enable_history_search=False,
            reserve_space_for_menu=4,
            color_depth=None if features.has_colours else ColorDepth.MONOCHROME,
        )
        # Otherwise the unfinished block of an answer, which is part of the prompt, would stay.
        self._session.app.erase_when_done = True
        self._session.app.ttimeoutlen = ESCAPE_S
        self._redraw_resized = self._session.app._on_resize
        self._session.app._on_resize = self._on_resize  # type: ignore[method-assign]
        self._session.app.before_render += lambda _: self._erase_wrapped()

    async def read(self) -> str:
        """Return the next message. Raises `EOFError` when the person leaves."""
        if self._has_left:
            raise EOFError
        terminal = self._session.app.input
        with terminal.raw_mode():
            # What was typed before this has its Enter as Ctrl-J: the terminal was not raw yet.
            ahead = terminal.read_keys()
            store_typeahead(
                terminal, [_ENTER if key.key == Keys.ControlJ else key for key in ahead]
            )
            text = await self._session.prompt_async(handle_sigint=False)
        # Input that is no UTF-8 arrives as lone surrogates, which neither JSON nor Redis accepts.
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    async def write(self, print_lines: Callable[[], None]) -> None:
        """Call `print_lines`, which prints lines above the prompt."""
        app = self._session.app
        if not app.is_running:
            print_lines()
            return
        # `run_in_terminal()` would restore the terminal's mode for a moment, in which an Enter
        # arrives as Ctrl-J and inserts a newline instead of sending the message.
        self._erase_wrapped()
        app.renderer.erase()
        print_lines()
        app.invalidate()

    def redraw(self) -> None:
        """Redraw the prompt with the text above it."""
        self._session.app.invalidate()

    def leave(self) -> None:
        """Make the current and each later `read()` raise `EOFError`."""
        self._has_left = True
        app = self._session.app
        if app.is_running and app.future and not app.future.done():
            app.exit(exception=EOFError)

    def _on_resize(self) -> None:
        """Redraw the prompt after a change of the terminal's size."""
        self._erase_wrapped()
        self._redraw_resized()

    def _erase_wrapped(self) -> None:
        """Erase the prompt if it was drawn in another size.

        prompt_toolkit erases a prompt at its original rows. A terminal that has become narrower has
        wrapped the prompt's lines, so it takes more rows above the cursor. This is also called
        before each rendering, because the indicator may be drawn before the resize signal arrives.
        """
        app = self._session.app
        drawn, size = app.renderer.last_rendered_screen, app.output.get_size()
        if drawn and size != app.renderer._last_size:
            cursor = drawn.get_cursor_position(app.layout.current_window)
            above = (drawn.data_buffer[row] for row in range(cursor.y))
            widths = [max((x for x in row if row[x].char.strip()), default=0) for row in above]
            app.output.cursor_up(sum(last // size.columns for last in (*widths, cursor.x)))
            app.renderer.erase(leave_alternate_screen=False)

    def _prompt(self) -> AnyFormattedText:
        # Cached, because prompt_toolkit calls this several times for each rendering.
        if (above := self._above()) != self._cached_prompt[0] or not self._cached_prompt[1]:
            painted = to_formatted_text(ANSI(f"{above}\n" if above else ""))
            self._cached_prompt = above, FormattedText([*painted, (self._style, PROMPT)])
        return self._cached_prompt[1]

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        # The search line of Ctrl-R has its own Enter and Ctrl-C.
        in_message = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=in_message)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state and buffer.complete_state.current_completion:
                buffer.complete_state = None  # Enter accepts the chosen completion
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

        # Eager: otherwise an Esc waits for a second key that might form a sequence with it.
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
        """Whether only Esc was pressed, on an empty line. Alt-Enter arrives as Esc and Enter."""
        keys = self._session.app.key_processor
        is_alone = not keys.input_queue and len(keys.key_buffer) == 1
        return is_alone and not self._session.default_buffer.text


def _history(path: Path | None) -> History:
    """Return the history in the file `path`, created for this user only.

    Without a path, or if the file can't be created, return a history in memory.
    """
    if path is None:
        return InMemoryHistory()
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return _FileHistory(str(path))


class _FileHistory(FileHistory):
    """A history that keeps working in memory if its file can't be written."""

    def append_string(self, string: str) -> None:
        """Add a message, unless it is one of `EXIT_WORDS`."""
        if string.strip().casefold() not in EXIT_WORDS:
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Write a message to the file. If that fails, only this run remembers the message."""
        try:
            super().store_string(printable(string))
        except OSError:
            return
