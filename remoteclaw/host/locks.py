"""File locks between processes, and files that are replaced in one step.

A lock is held while its descriptor is open: the kernel releases it when the process ends, also when
it is killed, and a child that inherits the descriptor keeps it.
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

#: Pause between two tries to take a lock, in seconds.
LOOK_S = 0.01


def lock(path: Path, *, wait_s: float = 0.0) -> int | None:
    """Return a descriptor that holds a file's lock; None if another holds it for longer than that.

    The file is made if it is absent. Raises OSError.
    """
    until = boottime() + wait_s
    while (descriptor := _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
        if boottime() >= until:
            return None
        time.sleep(LOOK_S)
    return descriptor


async def lock_soon(path: Path, *, wait_s: float) -> int | None:
    """Do what `lock()` does without holding the event loop up."""
    until = boottime() + wait_s
    while (descriptor := lock(path)) is None:
        if boottime() >= until:
            return None
        await asyncio.sleep(LOOK_S)
    return descriptor


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock; wait for it as long as it takes. Raises OSError."""
    descriptor = _lock(path, fcntl.LOCK_EX)
    assert descriptor is not None, "it was waited for"
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds a file's lock; raises OSError where the file is absent."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Shared, so that two that look at once don't see each other.
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
    """Write a file and put it in the place of another in one step. Raises OSError.

    Killed at any moment, there is the old file or the new one, also after a power failure. `check`
    is called last: if it raises, the old file stays. The caller holds a lock, because the draft has
    one name.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)  # of a process that was killed
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
