"""Side effects of a turn: the record of what its tools did besides answering.

RemoteClaw's own tools are noted where they act; their connector also writes them down, in the same
form as servers of others: NDJSON in a file. What has the same call id is the same.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.messages import McpSideEffects, ReplyPayload, SentTarget, SessionKey
from remoteclaw.protocols import SIDE_EFFECTS_FILE

#: The most that one turn's side effects may take, in bytes; what goes beyond is not read.
MAX_BYTES = 8 * 1024 * 1024


class SideEffectsReader:
    """Reads one turn's part of the file: from where it ended when the turn began."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / SIDE_EFFECTS_FILE
        try:
            self._offset = self._file.stat().st_size
        except OSError:
            self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Return what was written since."""
        return _records(self._file, self._offset)


def read_mcp_side_effects(file: Path) -> McpSideEffects:
    """Return what tools wrote into a file; one that can't be read has nothing in it."""
    return side_effects_of(_records(file, 0))


def _records(file: Path, offset: int) -> list[dict[str, Any]]:
    """Return the lines behind `offset`; unfinished and foreign ones are skipped."""
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            data = opened.read(MAX_BYTES)
    except OSError:
        return []
    complete, _, _unfinished = data.rpartition(b"\n")
    found = []
    for line in complete.split(b"\n"):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


def side_effects_of(records: Iterable[Mapping[str, Any]]) -> McpSideEffects:
    """Return what records come to, each call counted once; unknown kinds are skipped.

    What did not arrive counts for nothing.
    """
    records = arrived(records)
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


def arrived(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
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
    session: SessionKey,
) -> frozenset[int]:
    """Return the messages of an answer, by index, that a tool has sent to the very same chat.

    Models like to say in their answer what they have just sent: people would read it twice.
    """
    here = (session.provider, session.account, session.channel_id)
    sent = {
        str(record.get("text", "")).strip()
        for record in arrived(records)
        if record.get("type") == "message_sent"
        and (record.get("provider"), record.get("accountId"), record.get("to")) == here
        and record.get("threadId") == session.thread
    } - {""}
    return frozenset(
        payload.index
        for payload in payloads
        if payload.text.strip() in sent
        and not (payload.is_ours or payload.delivered or payload.attachments)
    )


def _optional(value: Any) -> str | None:
    return None if value is None else str(value)
