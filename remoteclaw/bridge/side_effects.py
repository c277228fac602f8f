"""Side effects of a turn: messages sent and cron jobs added by its tools.

The gateway records the effects of RemoteClaw's own tools. Their connector also writes them to a
file of NDJSON, as other MCP servers may do; records with the same call id are one effect.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.messages import ChatPlace, McpSideEffects, ReplyPayload, SentTarget
from remoteclaw.protocols import SIDE_EFFECTS_FILE

#: At most this much of one turn's side effects is read, in bytes.
MAX_BYTES = 8 * 1024 * 1024


class SideEffectsReader:
    """Reads one turn's part of the file: everything written since the reader was created."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / SIDE_EFFECTS_FILE
        try:
            self._offset = self._file.stat().st_size
        except OSError:
            self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the records written since the turn began."""
        return _records(self._file, self._offset)


def read_mcp_side_effects(file: Path) -> McpSideEffects:
    """Return the side effects in a file; none if it can't be read."""
    return side_effects_of(_records(file, 0))


def _records(file: Path, offset: int) -> list[dict[str, Any]]:
    """Return the records after `offset`, without unfinished and invalid lines."""
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            data = opened.read(MAX_BYTES)
    except OSError:
        return []
    complete, _, _unfinished = data.rpartition(b"\n")
    records = []
    for line in complete.split(b"\n"):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def side_effects_of(records: Iterable[Mapping[str, Any]]) -> McpSideEffects:
    """Return the side effects in `records`, each call once, without undelivered messages.

    Unknown types of records are skipped.
    """
    records = without_undelivered(records)
    texts: list[str] = []
    media: list[str] = []
    targets: list[SentTarget] = []
    cron_adds = 0
    seen: set[str] = set()
    for record in records:
        if isinstance(call := record.get("callId"), str):
            if call in seen:
                continue
            seen.add(call)
        if record.get("type") == "cron_added":
            cron_adds += 1
        if record.get("type") != "message_sent":
            continue
        if text := record.get("text"):
            texts.append(str(text))
        if url := record.get("mediaUrl"):
            media.append(str(url))
        targets.append(
            SentTarget(
                tool=str(record.get("tool", "")),
                provider=str(record.get("provider", "")),
                account_id=_optional(record.get("accountId")),
                to=_optional(record.get("to")),
            )
        )
    return McpSideEffects(tuple(texts), tuple(media), tuple(targets), cron_adds)


def without_undelivered(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the records without those of messages that could not be delivered."""
    records = list(records)
    failed = {record.get("failedCallId") for record in records} - {None}
    return [
        record
        for record in records
        if "failedCallId" not in record and record.get("callId") not in failed
    ]


def repeats_of(
    payloads: Iterable[ReplyPayload],
    records: Iterable[Mapping[str, Any]],
    place: ChatPlace,
) -> frozenset[int]:
    """Return the indexes of an answer's messages that a tool has already sent to its chat.

    Models tend to repeat a sent message in their answer, so people would read it twice.
    """
    here = (place.provider, place.account, place.chat)
    sent = {
        str(record.get("text", "")).strip()
        for record in without_undelivered(records)
        if record.get("type") == "message_sent"
        and (record.get("provider"), record.get("accountId"), record.get("to")) == here
        and record.get("threadId") == place.thread
    } - {""}
    return frozenset(
        payload.index
        for payload in payloads
        if payload.text.strip() in sent
        and not (payload.is_ours or payload.delivered or payload.attachments)
    )


def _optional(value: Any) -> str | None:
    return None if value is None else str(value)
