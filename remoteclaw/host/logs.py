"""Logs, with formatters that write one line for each message, so that none can forge a line."""

import asyncio
import json
import logging
import logging.config
import os
import shutil
import textwrap
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from remoteclaw.host.packages import package_hint
from remoteclaw.host.terminal import escape_line, printable

#: A log larger than this, in bytes, is rotated: it has about 100,000 lines.
MAX_LOG_BYTES = 10_000_000


class LineFormatter(logging.Formatter):
    """Formats a record as one line, in which unsafe characters are escaped."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the time with its zone."""
        return _time_of(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """Return the message with its unsafe characters escaped."""
        return escape_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the traceback, indented because the error's text can have several lines."""
        return textwrap.indent(printable(super().formatException(ei)), "  ")


class JsonFormatter(logging.Formatter):
    """Formats a record as one object of JSON, with the fields of its event (`telemetry`)."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object on one line; unsafe characters are JSON escapes."""
        fields = {
            "at": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **({"event": event} if (event := getattr(record, "event", None)) else {}),
            **getattr(record, "fields", {}),
            **({"error": self.formatException(record.exc_info)} if record.exc_info else {}),
        }
        return json.dumps(fields, default=str)


def _time_of(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC).astimezone()
    return time.isoformat(" ", "milliseconds")


FORMATTERS: dict[str, type[logging.Formatter]] = {"text": LineFormatter, "json": JsonFormatter}


def logging_config(file: Path | None = None, *, log_format: str = "text") -> dict[str, Any]:
    """Return the argument of `logging.config.dictConfig`, which `rq worker` also accepts.

    If `file` is None, logs go to standard error. `log_format` is that of `[fleet]`.
    """
    target: dict[str, Any] = {"class": "logging.StreamHandler"}
    if file is not None:
        file.touch(mode=0o600)
        target = {"class": "logging.FileHandler", "filename": str(file), "encoding": "utf-8"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": FORMATTERS[log_format]}},
        "handlers": {"lines": {**target, "formatter": "line"}},
        "loggers": {
            name: {"level": level, "handlers": ["lines"], "propagate": False}
            # Uvicorn's lower levels log URLs with queries, and a line for each bad request.
            for name, level in (("remoteclaw", "INFO"), ("workers", "INFO"), ("uvicorn", "ERROR"))
        },
    }


def configure_logging(file: Path | None = None, *, log_format: str) -> None:
    """Log to a file that only this user can read, or to standard error if `file` is None."""
    logging.raiseExceptions = False  # a full disk must not print a traceback into a chat
    logging.config.dictConfig(logging_config(file, log_format=log_format))


def rotate_logs(directory: Path) -> None:
    """Move the content of each log that is too large to the file `NAME.log.1`. Raises OSError.

    Processes keep their logs open for appending, so a log is copied and emptied instead of renamed.
    A line that is written between these two steps is lost.
    """
    for log in directory.glob("*.log"):
        if log.stat().st_size > MAX_LOG_BYTES:
            shutil.copy(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)


def frames_of(error: BaseException) -> str:
    """Return an error's type and traceback without its text, which can quote people's messages."""
    expired = error.__cause__ if isinstance(error, TimeoutError) else None
    frames = "".join(traceback.format_tb((expired or error).__traceback__))
    hint = package_hint()
    return f"{_kinds(error)}{'.' if hint else ''}{hint}\n{frames}"


def point_of(task: "asyncio.Task[Any]") -> str:
    """Return the place at which a task waits: the innermost line of this program's own code."""
    waiting: Any = task.get_coro()
    point = "its end"
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        if "/remoteclaw/" in frame.f_code.co_filename:
            file = frame.f_code.co_filename.rpartition("/remoteclaw/")[2]
            point = f"{file}:{frame.f_lineno} ({frame.f_code.co_name})"
        waiting = waiting.cr_await
    return point


def _kinds(error: BaseException) -> str:
    """Return the type of an error, and the types of the errors in a group."""
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        return f"{name} of {', '.join(_kinds(inner) for inner in error.exceptions)}"
    return name
