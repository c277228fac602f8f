"""Notes in a run directory: what the start of a terminal and each watch tell the next watch."""

import contextlib
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.host.files import write_new
from remoteclaw.runtimes.terminal import BaseWatch, LineFile, record_of
from remoteclaw.runtimes.wire import count, text


class TerminalNotes:
    """A file of JSON objects, a line each, for this user alone; a later word counts."""

    def __init__(self, run_dir: Path) -> None:
        self._file = LineFile(run_dir / "terminal-notes")

    def begin(self, **about: Any) -> None:
        """Write the first line; raises `OSError`."""
        write_new(self._file.path, b"")
        about["began_ns"] = self._file.path.stat().st_mtime_ns
        self.add(**about)

    def add(self, **more: Any) -> None:
        """Append a line. On a full disk, the next watch knows less, which is no harm."""
        with contextlib.suppress(OSError), self._file.path.open("ab") as file:
            file.write(orjson.dumps(more) + b"\n")

    def read(self) -> dict[str, Any]:
        """Return what is noted; nothing where it can't be read."""
        known: dict[str, Any] = {}
        with contextlib.suppress(OSError):
            for line, _ in self._file.read(""):
                known |= record_of(line)
        return known

    @property
    def began_ns(self) -> int:
        """When the start was, in nanoseconds as files have them; 0 where it isn't known."""
        return count(self.read().get("began_ns"))


class NotedWatch(BaseWatch):
    """A watch of a program that doesn't repeat what it has said: notes are for the next watch."""

    def __init__(self, notes: TerminalNotes, conversation: str | None) -> None:
        self._notes, self._about = notes, notes.read()
        super().__init__(text(self._about.get("conversation")) or conversation)
        self._is_touched = self._about.get("is_touched") is True
        """Whether something was typed while it was idle, which may have opened a menu."""

    def _touch(self, is_touched: bool) -> None:
        if is_touched != self._is_touched:
            self._is_touched = is_touched
            self._notes.add(is_touched=is_touched)

    def _opened(self, conversation: str) -> None:
        """Note that it has another conversation open."""
        self.known.conversation = conversation
        self._notes.add(conversation=conversation)
