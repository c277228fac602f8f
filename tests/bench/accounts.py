"""A process that runs the configured accounts, and its memory."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.command import REMOTECLAW
from tests.support.stack import Stack


@contextlib.contextmanager
def channel_process(stack: Stack, name: str) -> Iterator[tuple[int, Path]]:
    """Run the configured accounts as a program, not as a fork; yield its id and its log."""
    path = stack.home.logs / f"{name}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            (REMOTECLAW, "channel", "run"), env=stack.env(), stdout=log, stderr=log
        )
    try:
        yield process.pid, path
    finally:
        process.kill()
        process.wait()


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process, also what it shares with the benchmark."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
