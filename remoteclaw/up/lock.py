"""The lock of a state directory, which allows one `remoteclaw up` at a time."""

import contextlib
import os
from collections.abc import Iterator

from remoteclaw.config.home import Home
from remoteclaw.errors import StateDirectoryError
from remoteclaw.host.locks import is_locked, lock

#: Time limit for taking the lock, in seconds. A command that only checks whether `up` runs holds it
#: for less than a millisecond.
LOCK_S = 0.3


def running_pid(home: Home) -> int | None:
    """Return the process id of the `up` that runs in a state directory; None if none runs.

    The id is 0 if `up` has the lock but has not written its id yet.
    """
    path = home.path / "up.lock"
    try:
        if is_locked(path):
            pid = path.read_text()
            return int(pid) if pid.isdigit() else 0
    except (FileNotFoundError, NotADirectoryError):
        pass
    return None


@contextlib.contextmanager
def locked(home: Home) -> Iterator[None]:
    """Hold the lock of a state directory. Raises `StateDirectoryError` if another `up` has it."""
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
