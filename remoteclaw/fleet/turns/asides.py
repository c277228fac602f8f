"""Asides, as the lease's owner records them: entries that are answered during the running turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.inbound import RawEntry
from remoteclaw.fleet.turns.leased_session import LeasedSession
from remoteclaw.fleet.turns.outcomes import OUTCOME_MS
from remoteclaw.fleet.turns.turn import RecordAppend
from remoteclaw.messages import AsideVerdict, ChatPlace


@dataclass(frozen=True, slots=True)
class AsideEnd:
    """The replies, note and record lines that are stored together with the verdict on an entry."""

    place: ChatPlace | None = None
    """The chat of the entry; None if there are no messages for it."""
    payloads: Sequence[Mapping[str, Any]] = ()
    """The messages for that chat."""
    reply: Sequence[Mapping[str, Any]] | None = None
    """The answer for the entry's outcome; None if the aside doesn't answer the entry."""
    note: Mapping[str, Any] | None = None
    """The note about the aside that the agent receives with its next turn; None for no note."""
    record: RecordAppend | None = None
    """The lines for the conversation's record; None if nothing is added."""
    usage: Usage | None = None
    """The usage of the aside; None if the agent has not answered."""
    payers: tuple[str, ...] = ()
    """The names of the people who share the usage."""


class Asides:
    """The asides of a session under its lease.

    Every method but `notes()` raises `LeaseLost` once another worker holds the session.
    """

    def __init__(self, lease: LeasedSession) -> None:
        self._lease = lease

    async def ask(self, turn: str, entry_id: str) -> RawEntry | None:
        """Record that the agent is about to be asked about an entry, and return the entry.

        Return None, so that the entry waits for its own turn, if two attempts that asked about it
        were cut off, if it has a verdict already, or if it is stopped or part of a turn. If the
        entry is edited after this call, its verdict is "later".
        """
        entry: RawEntry | None = await self._lease.run_fenced(
            "aside_ask", turn=turn, entry=entry_id
        )
        return entry

    async def end(
        self, turn: str, entry_id: str, verdict: AsideVerdict, end: AsideEnd
    ) -> AsideVerdict | Literal["gone"]:
        """Record the verdict on an entry and apply it in one step; return the applied verdict.

        If the turn has ended, the entry can't join or stop it: such a verdict becomes "later".
        Return "gone" if the entry has been stopped or has become part of a turn. Repeating the call
        applies nothing twice.
        """
        record, place = end.record, end.place
        applied: AsideVerdict | Literal["gone"] = await self._lease.run_fenced(
            "aside_end",
            provider=place.provider if place else None,
            account=place.account if place else None,
            turn=turn,
            entry=entry_id,
            verdict=verdict,
            outcome_ms=OUTCOME_MS,
            reply=None if end.reply is None else orjson.dumps(end.reply),
            note=None if end.note is None else orjson.dumps(end.note),
            record=record.lines if record else None,
            record_bytes=record.max_bytes if record else 0,
            record_ms=record.keep_ms if record else 0,
            payloads=[orjson.dumps(payload) for payload in end.payloads],
            **self._lease.usage_args(end.usage, payers=end.payers),
        )
        return applied

    async def notes(self) -> list[bytes]:
        """Return the notes about the chat that the agent has not received yet, oldest first.

        Each note is JSON with `at` (milliseconds since 1970) and `from` (a name). A note of an
        aside has `said` (the person's message) and `you` (the agent's answer). A note of a message
        that an operator or another session has sent into the chat has `sent`. A note of an edit
        that came too late has `edited` (the new text) and the message's `id`.
        """
        scripts = self._lease.scripts
        name = keys.aside_notes(self._lease.sid)
        lines: list[bytes]
        lines = await scripts.call(scripts.client.lrange, name, 0, -1, deadline=self._lease.stop_at)
        return lines
