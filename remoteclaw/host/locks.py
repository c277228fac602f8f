"""File locks between processes, and atomic replacement of files.

A lock is held while its descriptor is open. The kernel releases it when the process ends, even by a
kill; a child that inherits the descriptor keeps it.
"""

import asyncio
import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from remoteclaw.clock import boottime

#: The pause between two attempts to take a lock, in seconds.
RETRY_S = 0.01


def lock(path: Path, *, wait_s: float = 0.0) -> int | None:
    """Take the lock of a file; return the descriptor that holds it.

    None if another process still holds it after `wait_s` seconds. The file is made if it is absent.
    Raises OSError.
    """
    until = boottime() + wait_s
    while (descriptor := _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
        if boottime() >= until:
            return None
        time.sleep(RETRY_S)
    return descriptor


async def lock_async(path: Path, *, wait_s: float) -> int | None:
    """Do as `lock()`, without blocking the event loop."""
    until = boottime() + wait_s
    while (descriptor := lock(path)) is None:
        if boottime() >= until:
            return None
        await asyncio.sleep(RETRY_S)
    return descriptor


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, after waiting for it without a limit. Raises OSError."""
    descriptor = _lock(path, fcntl.LOCK_EX)
    assert descriptor is not None, "a blocking flock() returns with the lock"
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file; raises OSError if the file is absent."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A shared lock, so that two simultaneous checks don't take each other for a holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def replace_file(
    path: Path,
    content: bytes,
    *,
    mode: int = 0o600,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Replace the content of a file atomically. Raises OSError.

    A kill or a power failure at any moment leaves the old file or the new one. `check` is called
    right before the replacement; if it raises, the old file stays. The caller holds a lock, because
    all callers use the same temporary file.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)  # a process that was killed may have left one
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), stat.S_IMODE(mode))
            os.fsync(file.fileno())
        check()
        os.rename(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _lock(path: Path, operation: int) -> int | None:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
