"""Shared parts of the CLIs' terminal programs: growing files, transcripts and watches."""

import asyncio
import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from remoteclaw.events import PermissionEvent
from remoteclaw.host.files import write_new
from remoteclaw.host.terminal import one_line
from remoteclaw.protocols import Activity, Decision, Transcript, TranscriptItem
from remoteclaw.runtimes.wire import UnreadableLine, count, decode, mapping, text

#: The longest line that is read, in bytes; a longer one counts as empty.
MAX_LINE_BYTES = 32 * 1024 * 1024
#: One call of `Transcript.read()` stops after this many bytes or items.
READ_BYTES, READ_ITEMS = 8 * 1024 * 1024, 300
#: The pause between two polls of a program's files, in seconds.
POLL_S = 0.1
#: The maximum length of a tool's argument in a transcript, in characters.
MAX_ARGUMENT_CHARS = 200
#: RemoteClaw's header line before a message.
_HEADER = re.compile(r"^\[remoteclaw \{.*\}\]\n+", re.MULTILINE)
#: The names of arguments that describe a tool call, the most informative one first.
_MAIN_ARGUMENTS = (
    *("command", "cmd", "file_path", "filePath", "absolute_path", "notebook_path", "path"),
    *("pattern", "query", "url", "description", "prompt", "text"),
)


class LineFile:
    """A file to which lines are appended, of which each complete line is read once.

    A position also identifies the file: a file that was replaced or truncated is read from its
    beginning.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, position: str) -> Iterator[tuple[bytes, str]]:
        """Yield the complete lines after `position`, each with the position after it.

        Yields nothing if the file does not exist. Raises `OSError` if it can't be read.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            name = _identity_of(file)
            offset = self._offset(position, file)
            file.seek(offset)
            while line := file.readline(MAX_LINE_BYTES):
                size = len(line)
                while line and not line.endswith(b"\n"):  # the line is incomplete, or too long
                    line = file.readline(MAX_LINE_BYTES)
                    size += len(line)
                if not line:
                    return
                offset += size
                yield (line if len(line) == size else b""), f"{name}:{offset}"

    def has_more(self, position: str) -> bool:
        """Whether the file may have lines after `position`."""
        try:
            about = self.path.stat()
        except OSError:
            return False
        return position != f"{about.st_dev}:{about.st_ino}:{about.st_size}"

    def end(self) -> str:
        """Return the position after the last complete line; empty without the file."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return ""
        with file:
            offset = end = file.seek(0, os.SEEK_END)
            while offset > 0:
                start = max(0, offset - 65_536)
                file.seek(start)
                if (newline := file.read(offset - start).rfind(b"\n")) >= 0:
                    end = start + newline + 1
                    break
                offset = end = start
            return f"{_identity_of(file)}:{end}"

    def _offset(self, position: str, file: BinaryIO) -> int:
        name, _, offset = position.rpartition(":")
        is_here = name == _identity_of(file) and offset.isascii() and offset.isdigit()
        return int(offset) if is_here and int(offset) <= os.fstat(file.fileno()).st_size else 0


def _identity_of(file: BinaryIO) -> str:
    about = os.fstat(file.fileno())
    return f"{about.st_dev}:{about.st_ino}"


@dataclass(frozen=True, slots=True)
class RecordTranscript:
    """A transcript in a file with one JSON object per line."""

    find: Callable[[], Path | None]
    """Returns the path of the file; None while it does not exist."""
    items_of: Callable[[dict[str, Any]], Iterable[TranscriptItem]]
    """Returns the items of a record, which may be none."""

    @property
    def is_resumable(self) -> bool:
        """Whether the transcript has any items: without items, the CLI can't resume it."""
        position = ""
        while True:
            items, after = self.read(position)
            if items or after == position:
                return bool(items)
            position = after

    def read(self, position: str) -> tuple[list[TranscriptItem], str]:
        """Return items after `position`, and the position after them."""
        items: list[TranscriptItem] = []
        left = READ_BYTES
        if (path := self.find()) is None:
            return items, position
        for line, next_position in LineFile(path).read(position):
            items += self.items_of(record_of(line))
            position, left = next_position, left - len(line)
            if len(items) >= READ_ITEMS or left <= 0:
                break
        return items, position

    def end(self) -> str:
        """Return the position after the last complete record."""
        path = self.find()
        return LineFile(path).end() if path else ""


def record_of(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; an empty one for an unreadable line."""
    try:
        return decode(line)
    except UnreadableLine:
        return {}


@dataclass(slots=True)
class _WatchState:
    """The state that a watch reports, as far as it is not computed."""

    waiting_for: str = ""
    is_ready: bool = False
    conversation: str | None = None


class BaseWatch(ABC):
    """The state of one program, from signs that arrive in `poll()`, `title()`, `osc()`, `typed()`.

    Each of these methods updates the state; all but `poll()` then call `notify()`.
    """

    def __init__(self, conversation: str | None) -> None:
        self.state = _WatchState(conversation=conversation)
        self._reported: tuple[Any, ...] = ()
        """The state at the last call of `changed`."""
        self._changed: Callable[[], None] = lambda: None

    @property
    @abstractmethod
    def activity(self) -> Activity:
        """The program's activity, as far as all its signs agree."""

    @property
    def waiting_for(self) -> str:
        """What the program asks a person while it is `waiting`; empty if it is not reported."""
        return self.state.waiting_for if self.activity == "waiting" else ""

    @property
    def requests(self) -> Sequence[PermissionEvent]:
        """The open requests that can be answered without keys; none unless overridden."""
        return ()

    async def answer(self, request: str, decision: Decision) -> None:
        """Answer a request of `requests`. Raises `OSError`, unless overridden."""
        raise OSError(f"{request} can be answered by keys only")

    @property
    def is_ready(self) -> bool:
        """Whether the program has reported anything: before that, a startup dialog may be open."""
        return self.state.is_ready

    @property
    def conversation(self) -> str | None:
        """The CLI's id of the open conversation; None until it is known."""
        return self.state.conversation

    @property
    @abstractmethod
    def transcript(self) -> Transcript | None:
        """The transcript of the open conversation; None until it is known."""

    def title(self, text: str) -> None:  # noqa: B027 - optional
        """Handle a new terminal title of the program."""

    def osc(self, number: int, data: str) -> None:  # noqa: B027 - optional
        """Handle an operating system command (OSC) of the program."""

    @abstractmethod
    def typed(self) -> None:
        """Note that a person has typed, so that an idle program may have a dialog or draft open."""

    @abstractmethod
    def rested(self) -> None:
        """Note that nothing is left of what was typed, after which `typed()` no longer counts."""

    @abstractmethod
    async def poll(self) -> None:
        """Update the state from files or a port; called again and again."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Poll until cancelled; call `changed` after each change of the state."""
        self._changed = changed
        while True:
            await self.poll()
            self.notify()
            await asyncio.sleep(POLL_S)

    def notify(self) -> None:
        """Call `changed` if the state has changed since the last call."""
        now = (self.activity, self.waiting_for, self.is_ready, self.conversation)
        if now != self._reported:
            self._reported = now
            self._changed()


def without_header(message: str) -> str:
    """Return a message as the person wrote it, without RemoteClaw's header line."""
    header = _HEADER.search(message)
    return message[header.end() :] if header else message


class TerminalNotes:
    """Notes in a terminal's run directory, from its start and from each watch for the next watch.

    They are a file with one JSON object per line, readable only for this user. Later values
    override earlier ones.
    """

    def __init__(self, run_dir: Path) -> None:
        self._file = LineFile(run_dir / "terminal-notes")

    def begin(self, **about: Any) -> None:
        """Create the file with a first line. Raises `OSError`."""
        write_new(self._file.path, b"")
        about["began_ns"] = self._file.path.stat().st_mtime_ns
        self.add(**about)

    def add(self, **more: Any) -> None:
        """Append a line. A failure, such as a full disk, is ignored: the next watch knows less."""
        with contextlib.suppress(OSError), self._file.path.open("ab") as file:
            file.write(orjson.dumps(more) + b"\n")

    def read(self) -> dict[str, Any]:
        """Return the merged notes; empty if they can't be read."""
        notes: dict[str, Any] = {}
        with contextlib.suppress(OSError):
            for line, _ in self._file.read(""):
                notes |= record_of(line)
        return notes

    @property
    def began_ns(self) -> int:
        """The time of the terminal's start, as the file system's nanoseconds; 0 if unknown."""
        return count(self.read().get("began_ns"))


class NotedWatch(BaseWatch):
    """A watch that notes what the program reports only once, for the watch of a later gateway."""

    def __init__(self, notes: TerminalNotes, conversation: str | None) -> None:
        self._notes, self._noted = notes, notes.read()
        super().__init__(text(self._noted.get("conversation")) or conversation)
        self._is_touched = self._noted.get("is_touched") is True
        """Whether a person has typed while the program was idle, which may have opened a menu."""

    def rested(self) -> None:
        """Note that no menu is open and nothing is typed."""
        self._set_touched(False)
        self.notify()

    def _set_touched(self, is_touched: bool) -> None:
        if is_touched != self._is_touched:
            self._is_touched = is_touched
            self._notes.add(is_touched=is_touched)

    def _set_conversation(self, conversation: str) -> None:
        """Note that another conversation is open."""
        self.state.conversation = conversation
        self._notes.add(conversation=conversation)


def timestamp_ms(timestamp: Any) -> int:
    """Return a time such as `2026-11-23T09:13:05.328Z` in milliseconds since 1970; else 0."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (TypeError, ValueError):
        return 0


def main_argument(arguments: Any) -> str:
    """Return the most informative argument of a tool call, shortened, on one line."""
    values = mapping(arguments)
    for name in _MAIN_ARGUMENTS:
        if value := values.get(name):
            shown = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            return one_line(shown, max_chars=MAX_ARGUMENT_CHARS, marks_line_ends=True)
    return one_line(orjson.dumps(values).decode(), max_chars=MAX_ARGUMENT_CHARS) if values else ""
