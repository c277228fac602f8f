"""Finds and repairs a damaged end of the append-only file of the embedded Redis.

A power failure leaves zeros or an incomplete command there. The wheel that brings the server has no
`redis-check-aof`, and Redis' own `aof-load-truncated` keeps no copy, doesn't know zeros, and can
leave half a transaction.
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

#: The longest line with a number, in bytes.
LINE = 24
#: The beginning of a command, and how many behind one without an end show that its length is wrong:
#: a power failure cuts the last one.
HEAD, HEADS = re.compile(rb"\r\n\*\d{1,4}\r\n\$\d{1,4}\r\n"), 3


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage of the file to which the server writes."""

    file: Path
    whole: int
    """The end of the last complete command or transaction, in bytes."""
    lost: int
    """The number of bytes of commands behind that."""
    zeros: int
    """The number of zeros at the end."""
    bad_at: int | None
    """Where the file has something that is no command; None if only an end is missing."""

    def repair(self) -> Path:
        """Keep a copy and cut the file behind the last complete command; return the copy.

        Raises OSError.
        """
        now = datetime.now().astimezone()
        copy = self.file.with_name(f"{self.file.name}.damaged-{now:%Y%m%d-%H%M%S}")
        shutil.copy(self.file, copy)
        os.truncate(self.file, self.whole)
        return copy


class _Cut(Exception):
    """Raised for a command that has no end."""


class _Bad(Exception):
    """Raised for what is no command."""


def find_damage(data: Path) -> Damage | None:
    """Return the damage of the file in a server's directory; None if none is found.

    A file that begins with a snapshot is not checked.
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
    """Whether the file begins with a snapshot, as servers before 7.0 write it."""
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
    """Return the end of the last complete command or transaction, and where one is malformed."""
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
    """Return a command's name if it has no arguments, and its end."""
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
    """Return the number in a line, and the start of the next line."""
    line = found[position : min(position + LINE, end)]
    head, line_end, _ = line.partition(b"\r\n")
    if line_end and re.fullmatch(re.escape(kind) + rb"\d+", head):
        return int(head[1:]), position + len(head) + 2
    if position + len(line) == end and re.fullmatch(
        rb"(" + re.escape(kind) + rb"(\d*\r?)?)?", line
    ):
        raise _Cut
    raise _Bad
