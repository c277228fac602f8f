"""The lock of a state directory: one `up` at a time."""

import contextlib
import os
from collections.abc import Iterator

from remoteclaw.config.home import Home
from remoteclaw.errors import StateDirectoryError
from remoteclaw.host.locks import is_locked, lock

#: How long the lock is tried to get, in seconds: commands that look whether `up` runs hold it for
#: less than a millisecond.
LOCK_S = 0.3


def running_pid(home: Home) -> int | None:
    """Return the process id of the `up` that runs in a state directory; None if none does.

    It is 0 while that one has not written its own yet.
    """
    path = home.path / "up.lock"
    try:
        if is_locked(path):
            found = path.read_text()
            return int(found) if found.isdigit() else 0
    except (FileNotFoundError, NotADirectoryError):
        pass
    return None


@contextlib.contextmanager
def locked(home: Home) -> Iterator[None]:
    """Hold the state directory. Raises `StateDirectoryError` if another `up` runs there."""
    descriptor = lock(home.path / "up.lock", wait_s=LOCK_S)
    if descriptor is None:
        raise StateDirectoryError(
            f"RemoteClaw already runs in {home.path} (process {running_pid(home)}): "
            "`remoteclaw chat` talks to that one; end it before another start."
        )
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)
