"""Functions that the workers of these tests run, and a job class to read them with."""

import json
import logging
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer

#: A held job waits at most this long for its release, in seconds, so that a forgotten one ends.
HELD_S = 600.0


def directory() -> Path:
    """Return the test's own directory."""
    return Path(os.environ["UPSTREAM_DIRECTORY"])


def write(path: str | Path, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(line + "\n")


def note(text: str = "ran") -> None:
    write(directory() / "notes", text)


def fail(text: str = "") -> None:
    note()
    raise ValueError(text)


def fail_discreetly(text: str) -> None:
    try:
        fail(text)
    except ValueError as error:
        raise RuntimeError(type(error).__name__) from None


def hold(fifo: str) -> None:
    """Record the process, wait for a write to the FIFO, and record the process again."""
    release = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    write(f"{fifo}.pids", str(os.getpid()))
    if select.select([release], [], [], HELD_S)[0]:
        write(f"{fifo}.done", str(os.getpid()))


def speak(text: str) -> None:
    logging.getLogger(__name__).info(text)


def describe() -> None:
    """Record facts about this process."""
    facts = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgrp(),
        "knows_settings": "tests.upstream.settings" in sys.modules,
        "alarm_s": signal.alarm(0),
    }
    note(json.dumps(facts))


class Recorder(Job):
    """Records what a worker does with a job, and does not run the job's function."""

    def __init__(
        self, id: str | None = None, connection: Any = None, serializer: Any = None
    ) -> None:
        super().__init__(id, connection=connection, serializer=JSONSerializer)

    def refresh(self) -> None:
        self._record("refresh")
        super().refresh()  # type: ignore[no-untyped-call]

    def restore(self, raw_data: dict[bytes, bytes]) -> None:
        kinds = {type(part).__name__ for pair in raw_data.items() for part in pair}
        self._record(f"restore {' '.join(kinds)}")
        if raw_data[b"description"] == b"not there":
            raise NoSuchJobError("as if it did not exist")
        if raw_data[b"description"] == b"broken":
            raise ValueError("this can't be read")
        super().restore(raw_data)
        self.description = "as its class says"

    def perform(self) -> None:
        self._record(f"perform {self.args[0]}")

    def _record(self, line: str) -> None:
        write(directory() / "record", f"{os.getpid()} {line}")
