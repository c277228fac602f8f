"""Logs: one line each, from one formatter, so that no message can fake a line."""

import logging
import logging.config
import os
import shutil
import textwrap
import traceback
from pathlib import Path
from typing import Any

from remoteclaw.host.terminal import in_a_line, printable

#: A log that is larger is rotated, in bytes: some 100,000 lines.
MAX_BYTES = 10_000_000


class LineFormatter(logging.Formatter):
    """Formats a record as one line, with whatever could break out of it escaped."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """Escape the message."""
        return in_a_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Indent a traceback, which may quote a text of several lines at its end."""
        return textwrap.indent(printable(super().formatException(ei)), "  ")


def logging_config(file: Path | None = None) -> dict[str, Any]:
    """Return what `logging.config.dictConfig` needs; `rq worker` takes the same.

    Without a file, standard error is written to.
    """
    target: dict[str, Any] = {"class": "logging.StreamHandler"}
    if file is not None:
        file.touch(mode=0o600)
        target = {"class": "logging.FileHandler", "filename": str(file), "encoding": "utf-8"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": LineFormatter}},
        "handlers": {"lines": {**target, "formatter": "line"}},
        "loggers": {
            name: {"level": level, "handlers": ["lines"], "propagate": False}
            # Uvicorn's lower levels have addresses with queries, and a line for each bad request.
            for name, level in (("remoteclaw", "INFO"), ("workers", "INFO"), ("uvicorn", "ERROR"))
        },
    }


def configure_logging(file: Path | None = None) -> None:
    """Log to a file that only this user can read, else to standard error."""
    logging.config.dictConfig(logging_config(file))


def rotate_logs(directory: Path) -> None:
    """Move what is in each log that has become too large to a file beside it, `NAME.log.1`.

    Processes keep their logs open for appending, so a log is copied and emptied, and not renamed.
    A line that is written between these two steps is lost. Raises OSError.
    """
    for log in directory.glob("*.log"):
        if log.stat().st_size > MAX_BYTES:
            shutil.copy(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)


def frames_of(error: BaseException) -> str:
    """Return what happened and where, but not in which words: they may quote a message."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{_kinds(error)}\n{frames}"


def _kinds(error: BaseException) -> str:
    """Return the names of an error and of those that it groups."""
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        return f"{name} of {', '.join(_kinds(inner) for inner in error.exceptions)}"
    return name
