"""The file of side effects, which the bridge reads after the turn."""

import _thread
import posix
from _stat import S_ISREG

from remoteclaw.connector.wire import dump

TYPE_CHECKING = False  # typing's own would cost 5 ms
if TYPE_CHECKING:
    from typing import Any

__all__ = ["SideEffects"]


class SideEffects:
    """A file of NDJSON that others may append to and read at the same time."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._lock = _thread.allocate_lock()
        self._is_torn = False

    def append(self, records: "list[Any]") -> None:
        """Write one line for each; raises OSError, or ValueError for what is not JSON."""
        flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_CLOEXEC
        flags |= posix.O_NOFOLLOW | posix.O_NONBLOCK  # a FIFO would hold us up
        with self._lock:
            descriptor = posix.open(self._path, flags, 0o600)
            try:
                if not S_ISREG(posix.fstat(descriptor).st_mode):
                    raise OSError(0, "It is not a regular file")
                for record in records:
                    self._write(descriptor, dump(record) + b"\n")
            finally:
                posix.close(descriptor)

    def _write(self, descriptor: int, line: bytes) -> None:
        """Append a line with one system call, so that lines of several writers don't mix."""
        if self._is_torn:  # the disk was full within a line: the reader skips that one alone
            line = b"\n" + line
        written = posix.write(descriptor, line)
        self._is_torn = written < len(line)
        if self._is_torn:
            raise OSError(0, "Only a part was written")
