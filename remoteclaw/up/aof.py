"""Repair of a damaged end of the embedded Redis' append-only file.

A power failure leaves zeros or half a command there. Redis' own `aof-load-truncated` refuses zeros,
keeps no copy, and can leave half a transaction, which what is written later would complete.
"""

import mmap
import os
import re
import shutil
from datetime import datetime
from pathlib import Path

from remoteclaw.errors import RedisUnavailable

ARRAY, BULK = re.compile(rb"\*(\d{1,9})\r\n"), re.compile(rb"\$(\d{1,9})\r\n")
#: The beginning of a command that stands behind something else.
NEXT = re.compile(rb"\r\n\*\d{1,9}\r\n\$\d{1,9}\r\n")
MULTI, EXEC = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"


def repair(data: Path) -> str | None:
    """Cut a server's file behind its last complete command or transaction, and keep a copy.

    Return a sentence about it; None if nothing was wrong.
    Raises `RedisUnavailable` if commands follow what is damaged, or there is no room for a copy.
    """
    file = _written_last(data)
    if file is None or not file.stat().st_size:
        return None
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as found:
        size = len(found)
        whole, readable = _read(found)
        if whole == size or found[:5] == b"REDIS":  # a snapshot, which other servers begin with
            return None
        if NEXT.search(found, readable):
            raise RedisUnavailable(
                f"Redis' file {file} is damaged at byte {readable:,} of {size:,}: put a backup of "
                f"{data} in its place, or run `redis-check-aof --fix` (Debian: redis-tools) on a "
                "copy, which loses what follows."
            )
    now = datetime.now().astimezone()
    copy = file.with_name(f"{file.name}.damaged-{now:%Y%m%d-%H%M%S}")
    try:
        shutil.copy(file, copy)
    except OSError as error:
        raise RedisUnavailable(
            f"Redis' file {file} is damaged at its end, and no copy can be kept "
            f"({error.strerror}): make room and start again."
        ) from None
    os.truncate(file, whole)
    return (
        f"Redis starts with less than there was: {file} was damaged at its end, as after a power "
        f"failure. {size - whole:,} bytes behind the last complete command were removed; the "
        f"damaged file is kept as {copy.name}."
    )


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


def _read(found: mmap.mmap) -> tuple[int, int]:
    """Return the ends of the last complete command or transaction, and of what can be read."""
    whole = position = 0
    is_open = False
    while (end := _end(found, position)) is not None:
        command = found[position : min(end, position + len(MULTI))].upper()
        is_open = command == MULTI or (is_open and command != EXEC)
        position = end
        if not is_open:
            whole = position
    return whole, position


def _end(found: mmap.mmap, position: int) -> int | None:
    """Return the end of the command at a position; None if there is no whole one."""
    head = ARRAY.match(found, position)
    if head is None:
        return None
    position = head.end()
    for _ in range(int(head[1])):
        size = BULK.match(found, position)
        if size is None:
            return None
        position = size.end() + int(size[1]) + 2
        if found[position - 2 : position] != b"\r\n":
            return None
    return position
