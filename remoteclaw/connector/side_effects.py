"""The file of side effects, which the bridge reads after the turn."""

import os
import stat
import threading

from remoteclaw.connector.wire import dump

TYPE_CHECKING = False  # typing's own would cost 5 ms
if TYPE_CHECKING:
    from typing import Any

__all__ = ["SideEffects"]


class SideEffects:
    """A file of NDJSON that others may append to and read at the same time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._is_torn = False

    def append(self, records: "list[Any]") -> None:
        """Write one line for each. Raises OSError, or ValueError for what is not JSON."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO would hold us up
        with self._lock:
            descriptor = os.open(self._path, flags, 0o600)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(0, "It is not a regular file")
                for record in records:
                    self._write(descriptor, dump(record) + b"\n")
            finally:
                os.close(descriptor)

    def _write(self, descriptor: int, line: bytes) -> None:
        """Append a line with one system call, so that lines of several writers don't mix."""
        if self._is_torn:  # the disk was full within a line: the reader skips that one alone
            line = b"\n" + line
        written = os.write(descriptor, line)
        self._is_torn = written < len(line)
        if self._is_torn:
            raise OSError(0, "Only a part was written")
