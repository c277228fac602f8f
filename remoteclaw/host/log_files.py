"""The log files of this host's processes, as one list of records."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d) ([A-Z]+) (\S+): (.*)")
#: The time of lines before a file's first record.
_UNKNOWN = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of a log, or a line that another program has written there."""

    at: datetime
    """Its time; that of the record before it for a line of another program."""
    process: str
    """The name of the file, which is that of the process."""
    text: str
    """The record as people read it, with a line for each line of a traceback."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The record as JSON."""


class LogFiles:
    """Reads the logs in a directory, and what is added to them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._positions: dict[Path, int] = {}
        self._last: dict[Path, datetime] = {}

    def new_records(self) -> Sequence[LogRecord]:
        """Return the records that were added since the last call, sorted by their time."""
        rotated = [] if self._positions else self._directory.glob("*.log.1")
        files = [*sorted(rotated), *sorted(self._directory.glob("*.log"))]
        records = [record for file in files for record in self._new_of(file)]
        return sorted(records, key=lambda record: record.at)

    def _new_of(self, file: Path) -> Sequence[LogRecord]:
        try:
            with file.open("rb") as log:
                start = self._positions.get(file, 0)
                if log.seek(0, 2) < start:  # it was rotated
                    start = 0
                log.seek(start)
                added, _, unfinished = log.read().rpartition(b"\n")
                self._positions[file] = log.tell() - len(unfinished)
        except FileNotFoundError:
            return ()
        process = file.name.partition(".")[0]
        at, records = self._last.get(file, _UNKNOWN), list[LogRecord]()
        for line in added.decode(errors="replace").splitlines():
            if record := _parse(line, process):
                at = record.at
                records.append(record)
            elif line.startswith("  ") and records:  # of a traceback
                last = records[-1]
                more = {**last.fields, "error": f"{last.fields.get('error', '')}{line}\n"}
                records[-1] = replace(last, text=f"{last.text}\n{line}", fields=more)
            elif line:
                records.append(LogRecord(at, process, line, {"message": line}))
        self._last[file] = at
        return records


def _parse(line: str, process: str) -> LogRecord | None:
    """Return the record on a line; None if it is none of ours."""
    if line.startswith("{"):
        try:
            fields = json.loads(line)
            at = datetime.fromisoformat(fields["at"])
            text = f"{fields['at']} {fields['level']} {fields['logger']}: {fields['message']}"
        except (ValueError, KeyError, TypeError):
            return None
        error = f"\n{fields['error']}" if "error" in fields else ""
        return LogRecord(at, process, text + error, fields)
    if match := _LINE.fullmatch(line):
        time, level, logger, message = match.groups()
        fields = {"at": time, "level": level, "logger": logger, "message": message}
        return LogRecord(datetime.fromisoformat(time), process, line, fields)
    return None
