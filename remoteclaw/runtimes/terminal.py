"""Shared parts of the CLIs' own programs in terminals: files that grow, and a watch of them."""

import asyncio
import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from remoteclaw.events import PermissionEvent
from remoteclaw.host.files import write_new
from remoteclaw.host.terminal import one_line
from remoteclaw.protocols import Activity, Decision, Transcript, TranscriptItem
from remoteclaw.runtimes.wire import UnreadableLine, count, decode, mapping, text

#: The longest line that is read; of a longer one nothing is. In bytes.
LINE_BYTES = 32 * 1024 * 1024
#: How much one call reads: about so many bytes, and so many items of a transcript.
READ_BYTES, READ_ITEMS = 8 * 1024 * 1024, 300
#: How often files are looked at, in seconds.
LOOK_S = 0.1
#: How long the words about a tool are, in characters.
LONGEST_WORDS = 200
#: RemoteClaw's own line before a message.
_HEADER = re.compile(r"^\[remoteclaw \{.*\}\]\n+", re.MULTILINE)
#: The arguments of tools that tell most, in this order.
_TELLING = (
    *("command", "cmd", "file_path", "filePath", "absolute_path", "notebook_path", "path"),
    *("pattern", "query", "url", "description", "prompt", "text"),
)


class LineFile:
    """A file to which lines are appended, read by complete lines, each once.

    A position names the file as well: of another one under the same name, or of one that was cut
    off, everything is read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, position: str) -> Iterator[tuple[bytes, str]]:
        """Yield the complete lines behind a position, each with the position behind it.

        Without the file, there are none. Raises `OSError` for a file that can't be read.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            name = _name_of(file)
            offset = self._offset(position, file)
            file.seek(offset)
            while line := file.readline(LINE_BYTES):
                size = len(line)
                while line and not line.endswith(b"\n"):  # its end, or it is too long
                    line = file.readline(LINE_BYTES)
                    size += len(line)
                if not line:
                    return
                offset += size
                yield (line if len(line) == size else b""), f"{name}:{offset}"

    def has_more(self, position: str) -> bool:
        """Whether there may be more than what was read up to a position."""
        try:
            about = self.path.stat()
        except OSError:
            return False
        return position != f"{about.st_dev}:{about.st_ino}:{about.st_size}"

    def end(self) -> str:
        """Return the position behind the last complete line."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return ""
        with file:
            offset = end = file.seek(0, os.SEEK_END)
            while offset > 0:
                start = max(0, offset - 65_536)
                file.seek(start)
                if (found := file.read(offset - start).rfind(b"\n")) >= 0:
                    end = start + found + 1
                    break
                offset = end = start
            return f"{_name_of(file)}:{end}"

    def _offset(self, position: str, file: BinaryIO) -> int:
        name, _, offset = position.rpartition(":")
        is_here = name == _name_of(file) and offset.isascii() and offset.isdigit()
        return int(offset) if is_here and int(offset) <= os.fstat(file.fileno()).st_size else 0


def _name_of(file: BinaryIO) -> str:
    about = os.fstat(file.fileno())
    return f"{about.st_dev}:{about.st_ino}"


@dataclass(frozen=True, slots=True)
class RecordTranscript:
    """A transcript that is a file of one JSON object a line."""

    find: Callable[[], Path | None]
    """Returns the file, once there is one."""
    items_of: Callable[[dict[str, Any]], Iterable[TranscriptItem]]
    """Returns what a record says, which may be nothing."""

    @property
    def is_there(self) -> bool:
        """Whether someone has said something in it."""
        position = ""
        while True:
            items, after = self.read(position)
            if items or after == position:
                return bool(items)
            position = after

    def read(self, position: str) -> tuple[list[TranscriptItem], str]:
        """Return the items behind a position, and the position behind them."""
        items: list[TranscriptItem] = []
        left = READ_BYTES
        if (path := self.find()) is None:
            return items, position
        for line, behind in LineFile(path).read(position):
            items += self.items_of(record_of(line))
            position, left = behind, left - len(line)
            if len(items) >= READ_ITEMS or left <= 0:
                break
        return items, position

    def end(self) -> str:
        """Return the position behind all that is there now."""
        path = self.find()
        return LineFile(path).end() if path else ""


def record_of(line: bytes) -> dict[str, Any]:
    """Return the object of a line; an empty one for a line that can't be read."""
    try:
        return decode(line)
    except UnreadableLine:
        return {}


@dataclass(slots=True)
class _Known:
    """What a watch tells."""

    activity: Activity = "unknown"
    waiting_for: str = ""
    is_ready: bool = False
    conversation: str | None = None
    told: tuple[Any, ...] = field(default=())


class BaseWatch(ABC):
    """What is known of one program: its signs are taken in `look()`, `title()` and `osc()`.

    Each of these sets what is known and calls `tell()`.
    """

    def __init__(self, conversation: str | None) -> None:
        self.known = _Known(conversation=conversation)
        self._changed: Callable[[], None] = lambda: None

    @property
    def activity(self) -> Activity:
        """The program's activity, as far as all its signs agree."""
        return self.known.activity

    @property
    def waiting_for(self) -> str:
        """What it asks a person while it is `waiting`; empty if it doesn't say."""
        return self.known.waiting_for if self.activity == "waiting" else ""

    @property
    def requests(self) -> Sequence[PermissionEvent]:
        """What can be answered without keys: nothing, unless the program has a way for it."""
        return ()

    async def answer(self, request: str, decision: Decision) -> None:
        """Answer one of these."""
        raise OSError(f"{request} is answered by keys alone")

    @property
    def is_ready(self) -> bool:
        """Whether its first sign has come."""
        return self.known.is_ready

    @property
    def conversation(self) -> str | None:
        """The CLI's id of the conversation that is open in it now."""
        return self.known.conversation

    @property
    @abstractmethod
    def transcript(self) -> Transcript | None:
        """The record of that conversation."""

    def title(self, text: str) -> None:  # noqa: B027 - a program may say nothing by it
        """Take the title that it has set."""

    def osc(self, number: int, data: str) -> None:  # noqa: B027 - it may have none of its own
        """Take an operating system command of its own."""

    @abstractmethod
    def typed(self) -> None:
        """Note that a person has typed: an idle program may have a dialog or a draft open now."""

    @abstractmethod
    async def look(self) -> None:
        """Take what it has said by other ways since the last look; called again and again."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow what it says until cancelled."""
        self._changed = changed
        while True:
            await self.look()
            self.tell()
            await asyncio.sleep(LOOK_S)

    def tell(self) -> None:
        """Call `changed` if something has changed since the last time."""
        told = (self.activity, self.waiting_for, self.is_ready, self.conversation)
        if told != self.known.told:
            self.known.told = told
            self._changed()


def without_header(said: str) -> str:
    """Return a message as the person wrote it, without what RemoteClaw put before it."""
    header = _HEADER.search(said)
    return said[header.end() :] if header else said


class TerminalNotes:
    """What the start of a terminal and each watch tell the next watch, in its run directory.

    A file of JSON objects, a line each, for this user alone; a later word counts.
    """

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


def moment_of(at: Any) -> int:
    """Return a moment such as `2026-11-23T09:13:05.328Z` in milliseconds; 0 for anything else."""
    try:
        return round(datetime.fromisoformat(at).timestamp() * 1000)
    except (TypeError, ValueError):
        return 0


def telling(arguments: Any) -> str:
    """Return the argument of a tool that tells most, on one line."""
    given = mapping(arguments)
    for name in _TELLING:
        if value := given.get(name):
            words = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            return one_line(words, most=LONGEST_WORDS)
    return one_line(orjson.dumps(given).decode(), most=LONGEST_WORDS) if given else ""
