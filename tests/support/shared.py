"""A server that all workers of a run share: the first one starts it, and it outlives the last one.

It uses only the standard library, because a server may run in an environment of its own.
"""

import contextlib
import fcntl
import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def shared(directory: Path, start: Callable[[BinaryIO, Path], None]) -> Iterator[str]:
    """Yield the address of a server, which runs until all that name this directory have left.

    `start(stdin, address)` starts a process that calls `wait_until_left(address)`, and returns once
    the file `address` has its address. The server lives as long as somebody can write to its
    standard input, however they end.
    """
    directory.mkdir(exist_ok=True)
    pipe, address = directory / "alive", directory / "url"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not pipe.exists():
            os.mkfifo(pipe)
        alive = os.open(pipe, os.O_RDWR)
        try:
            if not address.exists():
                with pipe.open("rb") as stdin:
                    start(stdin, address)
        except BaseException:
            os.close(alive)
            raise
    yield address.read_text()
    os.close(alive)


def wait_until_left(address: Path) -> None:
    """Wait in the server until the last one has left; who comes then starts another one."""
    while True:
        sys.stdin.read()
        with (address.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            left = select.poll()
            left.register(sys.stdin, select.POLLIN)
            if any(what & select.POLLHUP for _, what in left.poll(0)):
                address.unlink(missing_ok=True)
                return
