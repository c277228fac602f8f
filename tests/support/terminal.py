"""A program in a terminal: input as a user types it, and output as the screen shows it."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pexpect
import pyte

from remoteclaw.config.home import Home
from tests.support.command import REMOTECLAW
from tests.support.waiting import HANG_S


def env(home: Home, **more: str) -> dict[str, str]:
    """Return the environment of a user without installed CLIs and without configuration."""
    directory = Path(REMOTECLAW).parent
    path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    return {
        **path,
        "HOME": os.environ["HOME"],
        "PATH": f"{directory}:/usr/bin:/bin",
        "REMOTECLAW_HOME": str(home.path),
        "REMOTECLAW__FLEET__WORKERS": "1",
        "REMOTECLAW__FLEET__STOP_S": "0",  # tests end `up` in the middle of turns
        "REMOTECLAW__GATEWAY__PORT": "0",
        "REMOTECLAW__TERMINALS__MAX_LOAD": "0",  # tests keep the machine busy
        "REMOTECLAW__AGENTS__MAIN__RUNTIME": "demo",
        **more,
    }


class Terminal:
    """A terminal with one program in it."""

    def __init__(self, child: "pexpect.spawn[bytes]", columns: int, rows: int) -> None:
        self._child = child
        self._screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        """Everything that the program has written."""
        self._shown: str | None = None
        """The cached result of `shown()`; None after new output."""

    @classmethod
    @contextlib.contextmanager
    def running(
        cls,
        *command: str,
        env: Mapping[str, str],
        directory: Path | None = None,
        columns: int = 100,
        rows: int = 40,
    ) -> Iterator["Terminal"]:
        """Run a program in a terminal, and kill it at exit if it is still running."""
        child = pexpect.spawn(
            command[0],
            list(command[1:]),
            env={"TERM": "xterm-256color", **env},
            dimensions=(rows, columns),
            timeout=None,
            cwd=directory,
        )
        child.ptyproc.delayafterclose = 0
        try:
            yield cls(child, columns, rows)
        finally:
            if child.isalive():
                # pexpect's own close waits a tenth of a second for the process, and then fails.
                child.kill(signal.SIGKILL)
                child.wait()
            child.close()

    @property
    def pid(self) -> int:
        """The program's process id."""
        return int(self._child.pid)

    @property
    def is_sane(self) -> bool:
        """Whether the terminal echoes input itself, as it did before the program."""
        return bool(self._child.getecho())

    def type(self, text: str | bytes) -> None:
        """Press keys."""
        self._child.send(text)

    def see(self, text: str) -> str:
        """Wait until a text is on the screen or above it; return both."""
        until = time.monotonic() + HANG_S
        while text not in (shown := self.shown()):
            if time.monotonic() > until:
                raise AssertionError(f"not seen within {HANG_S} s: {text!r}\n{shown}")
            self.read()
        return shown

    def see_words(self, words: str, times: int = 1) -> None:
        """Wait until words are shown `times` times, wherever lines are wrapped."""
        until = time.monotonic() + HANG_S
        while (count := self.words().count(words)) != times:
            assert time.monotonic() < until, f"{count} times {words!r}\n{self.shown()}"
            self.read()

    def words(self) -> str:
        """Return `shown()` with single spaces instead of all white space."""
        return " ".join(self.shown().split())

    def see_gone(self, text: str, *, within_s: float = 20.0) -> str:
        """Wait until a text is gone from the screen; return the screen."""
        until = time.monotonic() + within_s
        while text in (shown := self.shown()):
            if time.monotonic() > until:
                raise AssertionError(f"still there after {within_s} s: {text!r}\n{shown}")
            self.read()
        return shown

    def see_so_often(self, pattern: str, count: int) -> None:
        """Wait until a pattern matches `count` times on the screen and above it."""
        until = time.monotonic() + HANG_S
        while len(re.findall(pattern, shown := self.shown(), re.MULTILINE)) != count:
            if time.monotonic() > until:
                raise AssertionError(f"not {count} times within {HANG_S} s: {pattern}\n{shown}")
            self.read()

    def see_match(self, pattern: str) -> str:
        """Wait until a pattern matches on the screen or above it; return both."""
        until = time.monotonic() + HANG_S
        while re.search(pattern, shown := self.shown(), re.MULTILINE) is None:
            if time.monotonic() > until:
                raise AssertionError(f"not seen within {HANG_S} s: {pattern}\n{shown}")
            self.read()
        return shown

    def see_none(self, text: str, *, for_s: float) -> None:
        """Check that a text does not appear on the screen for a time."""
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            self.read()
            assert text not in self.shown()

    def see_still(self, text: str, *, for_s: float) -> None:
        """Check that a text stays on the screen for a time."""
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            self.read()
            assert text in self.shown()

    def look(self) -> None:
        """Read new output, or wait briefly for it."""
        self.read()

    def shown(self) -> str:
        """Return the lines of the screen, after those that have scrolled out of it."""
        if self._shown is None:
            on_screen = map(self._screen.buffer.__getitem__, range(self._screen.lines))
            lines = [_text(line) for line in (*self._screen.history.top, *on_screen)]
            self._shown = "\n".join(lines).rstrip()
        return self._shown

    def narrow(self, columns: int) -> None:
        """Make the screen narrower, which wraps its lines again as most terminals do.

        The program is stopped until this is done, because its earlier output is for the old width.
        """
        self.kill(signal.SIGSTOP)
        before = -1
        while before != len(self.raw):
            before = len(self.raw)
            self.read()
        cursor, rows = self._screen.cursor, self._screen.lines
        lines = self.shown().split("\n")
        above = len(self._screen.history.top) + cursor.y
        lines += [""] * (above + 1 - len(lines))
        wrapped = [
            line[at : at + columns] for line in lines for at in range(0, len(line) or 1, columns)
        ]
        height = sum(max(-(-len(line) // columns), 1) for line in lines[:above])
        self._shown = None
        self._screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._stream = pyte.ByteStream(self._screen)
        self._stream.feed("\r\n".join(wrapped).encode())
        self._screen.cursor.y -= len(wrapped) - 1 - height - cursor.x // columns
        self._screen.cursor.x = cursor.x % columns
        self._child.setwinsize(rows, columns)
        self.kill(signal.SIGCONT)

    @property
    def columns(self) -> int:
        """The width of the screen."""
        return int(self._screen.columns)

    @property
    def cursor(self) -> tuple[str, int]:
        """The text of the cursor's row, and the cursor's column."""
        cursor = self._screen.cursor
        return _text(self._screen.buffer[cursor.y]), int(cursor.x)

    def rows(self) -> list[list[pyte.screens.Char]]:
        """Return `shown()` as characters with their styles."""
        lines = [
            *self._screen.history.top,
            *map(self._screen.buffer.__getitem__, range(self._screen.lines)),
        ]
        return [[line[column] for column in range(self._screen.columns)] for line in lines]

    def leave(self) -> int:
        """Wait for the end of the program; return its exit status, or minus its signal."""
        until = time.monotonic() + HANG_S
        while self._child.isalive():
            if time.monotonic() > until:
                raise AssertionError(f"it did not end within {HANG_S} s\n{self.shown()}")
            self.read()
        self.read()
        status = self._child.exitstatus
        return -int(self._child.signalstatus or 0) if status is None else int(status)

    def hang_up(self) -> None:
        """Close the terminal like its window: the program gets SIGHUP, and can't write any more."""
        self._child.ptyproc.fileobj.close()

    def kill(self, number: signal.Signals) -> None:
        """Send the program a signal."""
        os.kill(self.pid, number)

    def read(self) -> None:
        """Read what the program has written, or wait briefly."""
        if self._child.ptyproc.fileobj.closed:
            time.sleep(0.01)
            return
        with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
            data = self._child.read_nonblocking(65536, timeout=0.05)
            self.raw += data
            self._shown = None
            self._stream.feed(data)


def _text(line: Mapping[int, pyte.screens.Char]) -> str:
    """Return the text of a screen's row; the cell after a wide character is empty."""
    columns = range(max(line, default=-1) + 1)
    return "".join(line[column].data if column in line else " " for column in columns).rstrip()
