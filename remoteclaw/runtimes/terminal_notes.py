"""Notes in a run directory: what a start and each watch of a terminal tell the next watch."""

import contextlib
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.host.files import write_new
from remoteclaw.runtimes.terminal import LineFile, record_of
from remoteclaw.runtimes.wire import count

__all__ = ["TerminalNotes"]


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
