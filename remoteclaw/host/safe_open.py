"""Opens a subdirectory without following symbolic links."""

import os
import stat
from pathlib import Path

#: The maximum number of parts of a path.
MAX_PARTS = 32


class BadSubdir(Exception):
    """Raised for a subdirectory that can't be used; its text completes "the directory …"."""


def parts_of(subdir: str) -> tuple[str, ...]:
    """Return the parts of a relative path; raises `BadSubdir` if it could lead elsewhere."""
    parts = tuple(part for part in subdir.split("/") if part not in ("", "."))
    if subdir.startswith("/") or "\0" in subdir or ".." in parts or len(parts) > MAX_PARTS:
        raise BadSubdir("is no directory below the agent's workspace")
    return parts


def open_below(root: Path | str, subdir: str | None) -> int:
    """Return a descriptor of a subdirectory of `root`; the caller closes it.

    `root` is configured by the operator and may be a symbolic link. Below it no link is followed,
    so a link that somebody puts in place of a directory leads nowhere. Raises `BadSubdir`.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    parts = parts_of(subdir or "")
    try:
        descriptor = os.open(root, flags)
    except OSError as error:
        raise BadSubdir(f"can't be opened: {error.strerror}") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if parts and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise BadSubdir("is in a directory that all users can write to")
        for part in parts:
            below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    except OSError:
        os.close(descriptor)
        raise BadSubdir("is no directory below the agent's workspace") from None
    except BadSubdir:
        os.close(descriptor)
        raise
    return descriptor
