"""Hashes in Redis are decoded by the annotations of a dataclass."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from remoteclaw.config.model import QueueOverride
from remoteclaw.fleet import hashes
from remoteclaw.messages import SessionKey

KEY = "main/test/default/chat::"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record with a field of each type."""

    key: SessionKey
    status: Literal["idle", "running"] = "idle"
    title: str = ""
    count: int = 0
    is_quiet: bool = False
    host: str | None
    until_ms: int | None
    parent: SessionKey | None
    queue: QueueOverride | None
    place: dict[str, Any] | None
    earlier: dict[str, str] = field(default_factory=dict)
    sid: str


def test_each_field_is_decoded_by_its_annotation() -> None:
    record = hashes.decode(
        Record,
        {
            b"key": KEY.encode(),
            b"status": b"running",
            b"title": "Ünread".encode(),
            b"count": b"3",
            b"is_quiet": b"1",
            b"host": b"here",
            b"until_ms": b"1700000000000",
            b"parent": KEY.encode(),
            b"queue": b'{"cap": 3}',
            b"place": b'{"path": "/x"}',
            b"earlier": b'{"a": "b"}',
            b"unknown": b"\xff",
        },
        sid="s",
    )

    assert record == Record(
        key=SessionKey.parse(KEY),
        status="running",
        title="Ünread",
        count=3,
        is_quiet=True,
        host="here",
        until_ms=1_700_000_000_000,
        parent=SessionKey.parse(KEY),
        queue=QueueOverride(cap=3),
        place={"path": "/x"},
        earlier={"a": "b"},
        sid="s",
    )


@pytest.mark.parametrize("value", [None, b""])
def test_a_missing_or_empty_field_has_its_default(value: bytes | None) -> None:
    names = (b"status", b"title", b"count", b"is_quiet", b"host", b"place", b"earlier")
    stored = {} if value is None else dict.fromkeys(names, value)

    record = hashes.decode(Record, {**stored, b"key": KEY.encode()}, sid="s")

    assert (record.status, record.title, record.count, record.is_quiet) == ("idle", "", 0, False)
    assert (record.host, record.place, record.earlier) == (None, None, {})


@pytest.mark.parametrize("stored", [{}, {b"key": b"x"}, {b"key": KEY.encode(), b"count": b"x"}])
def test_a_damaged_hash_is_refused(stored: dict[bytes, bytes]) -> None:
    with pytest.raises((KeyError, ValueError)):
        hashes.decode(Record, stored, sid="s")
