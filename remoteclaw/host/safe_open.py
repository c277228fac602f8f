"""A directory below another one, opened without following a link."""

import os
import stat
from pathlib import Path

#: How deep a directory may be.
MAX_PARTS = 32


class BadSubdir(Exception):
    """Raised for a directory in which nothing may begin; its text completes "the directory …"."""


def parts_of(subdir: str) -> tuple[str, ...]:
    """Return the parts of a relative path. Raises `BadSubdir` for one that leads elsewhere."""
    parts = tuple(part for part in subdir.split("/") if part not in ("", "."))
    if subdir.startswith("/") or "\0" in subdir or ".." in parts or len(parts) > MAX_PARTS:
        raise BadSubdir("is no directory below the agent's workspace")
    return parts


def open_below(root: Path | str, subdir: str | None) -> int:
    """Return a descriptor of a directory; the caller closes it.

    `root` is the operator's choice and may be a link. Below it none is followed, so what somebody
    puts in its place meanwhile leads nowhere else. Raises `BadSubdir`.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    parts = parts_of(subdir or "")
    try:
        found = os.open(root, flags)
    except OSError as error:
        raise BadSubdir(f"can't be opened: {error.strerror}") from None
    try:
        mode = os.fstat(found).st_mode
        if parts and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise BadSubdir("is below one in which everybody may put anything")
        for part in parts:
            below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=found)
            os.close(found)
            found = below
    except OSError:
        os.close(found)
        raise BadSubdir("is no directory below the agent's workspace") from None
    except BadSubdir:
        os.close(found)
        raise
    return found
