"""Repairs a damaged end of the embedded Redis' append-only file.

A power failure can leave zeros or an incomplete command there. Redis' own `aof-load-truncated`
refuses zeros and keeps no copy. It can also leave an incomplete transaction, which would swallow
the commands that are appended later.
"""

import mmap
import os
import re
import shutil
from datetime import datetime
from pathlib import Path

from remoteclaw.errors import RedisUnavailable

#: The heads of a command, and of an argument, in Redis' protocol.
ARRAY, BULK = re.compile(rb"\*(\d{1,9})\r\n"), re.compile(rb"\$(\d{1,9})\r\n")
#: The beginning of a command after other bytes.
NEXT = re.compile(rb"\r\n\*\d{1,9}\r\n\$\d{1,9}\r\n")
MULTI, EXEC = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"


def repair(data: Path) -> str | None:
    """Truncate a server's file after its last complete command or transaction, and keep a copy.

    `data` is the server's data directory. Return a sentence about the repair; None if the file is
    not damaged. Raises `RedisUnavailable` if commands follow the damage, or if there is no space
    for a copy.
    """
    file = _appended_file(data)
    if file is None or not file.stat().st_size:
        return None
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as log:
        size = len(log)
        complete, readable = _read(log)
        # A file that begins with a snapshot was not written by this configuration: leave it alone.
        if complete == size or log[:5] == b"REDIS":
            return None
        if NEXT.search(log, readable):
            raise RedisUnavailable(
                f"Redis' file {file} is damaged at byte {readable:,} of {size:,}: put a backup of "
                f"{data} in its place, or run `redis-check-aof --fix` (Debian: redis-tools) on a "
                "copy, which removes everything after the damage."
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
    os.truncate(file, complete)
    return (
        f"Redis starts with less than there was: {file} was damaged at its end, as after a power "
        f"failure. {size - complete:,} bytes after the last complete command were removed; the "
        f"damaged file is kept as {copy.name}."
    )


def _appended_file(data: Path) -> Path | None:
    """Return the file to which commands are appended; None if there is none.

    Since Redis 7.0, a manifest names it.
    """
    directory = data / "appendonlydir"
    try:
        manifest = (directory / "appendonly.aof.manifest").read_text()
    except OSError:
        file = data / "appendonly.aof"
    else:
        names = re.findall(r"^file (\S+) .*type i", manifest, re.MULTILINE)
        file = directory / names[-1] if names else directory
    return file if file.is_file() else None


def _read(log: mmap.mmap) -> tuple[int, int]:
    """Return the end of the last complete command or transaction, and that of the last command.

    The two differ if the last transaction is incomplete.
    """
    complete = position = 0
    is_open = False
    while (end := _end(log, position)) is not None:
        command = log[position : min(end, position + len(MULTI))].upper()
        is_open = command == MULTI or (is_open and command != EXEC)
        position = end
        if not is_open:
            complete = position
    return complete, position


def _end(log: mmap.mmap, position: int) -> int | None:
    """Return the end of the command at `position`; None if there is no complete command."""
    head = ARRAY.match(log, position)
    if head is None:
        return None
    position = head.end()
    for _ in range(int(head[1])):
        size = BULK.match(log, position)
        if size is None:
            return None
        position = size.end() + int(size[1]) + 2
        if log[position - 2 : position] != b"\r\n":
            return None
    return position
