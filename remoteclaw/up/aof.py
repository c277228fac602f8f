"""The append-only file of our own Redis after a power failure: finds and repairs a damaged end.

The wheel that brings our server has no `redis-check-aof`, and Redis' own `aof-load-truncated` keeps
no copy, doesn't know zeros, and can leave half a transaction.
"""

import itertools
import mmap
import os
import re
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

__all__ = ["Damage", "begins_with_snapshot", "find_damage"]

#: The most that a line with a number has, in bytes.
LINE = 24
#: How a command begins, and how many behind one without an end say that its length is wrong:
#: what a power failure cuts is the last one.
HEAD, HEADS = re.compile(rb"\r\n\*\d{1,4}\r\n\$\d{1,4}\r\n"), 3


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with the file to which the server writes."""

    file: Path
    whole: int
    """Where the last whole command ends."""
    lost: int
    """How many bytes of commands stand behind that."""
    zeros: int
    """How many zeros stand at the end."""
    bad_at: int | None
    """Where something stands that is no command; None if only the end is missing."""

    def repair(self) -> Path:
        """Keep a copy and remove what is behind the last whole command; return the copy.

        Raises OSError.
        """
        now = datetime.now().astimezone()
        copy = self.file.with_name(f"{self.file.name}.damaged-{now:%Y%m%d-%H%M%S}")
        shutil.copy(self.file, copy)
        os.truncate(self.file, self.whole)
        return copy


class _Cut(Exception):
    """Raised where a command has no end."""


class _Bad(Exception):
    """Raised where something is no command."""


def find_damage(data: Path) -> Damage | None:
    """Return what is wrong with the file in a server's directory; None if nothing is found.

    A file that begins with a snapshot can't be read here.
    """
    file = _written_last(data)
    if file is None or not file.stat().st_size:
        return None
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as found:
        if found[:5] == b"REDIS":
            return None
        end = _without_zeros(found)
        whole, bad_at = _read(found, end)
        if whole == len(found):
            return None
        return Damage(file, whole, end - whole, len(found) - end, bad_at)


def begins_with_snapshot(data: Path) -> bool:
    """Whether a server before 7.0 has begun the file with a snapshot, which it alone can read."""
    try:
        with (data / "appendonly.aof").open("rb") as opened:
            return opened.read(5) == b"REDIS"
    except OSError:
        return False


def _written_last(data: Path) -> Path | None:
    """Return the file to which commands are appended: since Redis 7.0, a manifest names it."""
    directory = data / "appendonlydir"
    try:
        manifest = (directory / "appendonly.aof.manifest").read_text()
    except OSError:
        file = data / "appendonly.aof"
    else:
        names = re.findall(r"^file (\S+) .*type i", manifest, re.MULTILINE)
        file = directory / names[-1] if names else directory
    return file if file.is_file() else None


def _without_zeros(found: mmap.mmap) -> int:
    """Return where the zeros at the end begin."""
    end = len(found)
    while end:
        start = max(0, end - 1024 * 1024)
        if rest := found[start:end].rstrip(b"\0"):
            return start + len(rest)
        end = start
    return 0


def _read(found: mmap.mmap, end: int) -> tuple[int, int | None]:
    """Return where the last whole command or transaction ends, and where something is none."""
    whole = position = 0
    is_open = False
    while position < end:
        try:
            name, position = _command(found, position, end)
        except _Cut:
            heads = itertools.islice(HEAD.finditer(found, position, end), HEADS)
            return whole, position if len([*heads]) == HEADS else None
        except _Bad:
            return whole, position
        if name == b"MULTI" and is_open:  # the one before has no end
            return whole, position
        is_open = name == b"MULTI" or (is_open and name != b"EXEC")
        if not is_open:
            whole = position
    return whole, None


def _command(found: mmap.mmap, position: int, end: int) -> tuple[bytes, int]:
    """Return a command's name if it has no arguments, and where it ends."""
    if found[position : position + 1] == b"#":  # a time
        line_end = found.find(b"\n", position, end)
        if line_end < 0:
            raise _Cut
        return b"", line_end + 1
    name = b""
    count, position = _number(found, b"*", position, end)
    for _ in range(count):
        size, position = _number(found, b"$", position, end)
        if position + size + 2 > end:
            raise _Cut
        if found[position + size : position + size + 2] != b"\r\n":
            raise _Bad
        if count == 1:
            name = found[position : position + size].upper()
        position += size + 2
    return name, position


def _number(found: mmap.mmap, kind: bytes, position: int, end: int) -> tuple[int, int]:
    """Return the number in a line, and where the next line begins."""
    line = found[position : min(position + LINE, end)]
    head, line_end, _ = line.partition(b"\r\n")
    if line_end and re.fullmatch(re.escape(kind) + rb"\d+", head):
        return int(head[1:]), position + len(head) + 2
    if position + len(line) == end and re.fullmatch(
        rb"(" + re.escape(kind) + rb"(\d*\r?)?)?", line
    ):
        raise _Cut
    raise _Bad
