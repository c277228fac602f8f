"""Reads what a turn's tools did besides answering: NDJSON that an MCP server writes to a file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.messages import McpSideEffects, SentTarget
from remoteclaw.protocols import SIDE_EFFECTS_FILE

__all__ = ["SideEffectsReader", "read_mcp_side_effects"]

#: The most that one turn's side effects may take, in bytes; what goes beyond is not read.
MOST_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class _Seen:
    texts: list[str] = field(default_factory=list)
    media: list[str] = field(default_factory=list)
    targets: list[SentTarget] = field(default_factory=list)
    cron_adds: int = 0


class SideEffectsReader:
    """Reads one turn's part of the file: from where it ended when the turn began."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / SIDE_EFFECTS_FILE
        try:
            self._offset = self._file.stat().st_size
        except OSError:
            self._offset = 0

    def read(self) -> McpSideEffects:
        """Return what was written since."""
        return read_mcp_side_effects(self._file, offset=self._offset)


def read_mcp_side_effects(file: Path, *, offset: int = 0) -> McpSideEffects:
    """Return what tools wrote into a file behind `offset`, in bytes.

    Unfinished and foreign lines are skipped; a file that can't be read has nothing in it.
    """
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            data = opened.read(MOST_BYTES)
    except OSError:
        return McpSideEffects()
    complete, _, _unfinished = data.rpartition(b"\n")
    seen = _Seen()
    for line in complete.split(b"\n"):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            _collect(record, seen)
    return McpSideEffects(tuple(seen.texts), tuple(seen.media), tuple(seen.targets), seen.cron_adds)


def _collect(record: dict[str, Any], seen: _Seen) -> None:
    if record.get("type") == "cron_added":
        seen.cron_adds += 1
    if record.get("type") != "message_sent":
        return
    if text := record.get("text"):
        seen.texts.append(str(text))
    if media := record.get("mediaUrl"):
        seen.media.append(str(media))
    seen.targets.append(
        SentTarget(
            tool=str(record.get("tool", "")),
            provider=str(record.get("provider", "")),
            account_id=_optional(record.get("accountId")),
            to=_optional(record.get("to")),
        )
    )


def _optional(value: Any) -> str | None:
    return None if value is None else str(value)
