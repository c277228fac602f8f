"""Asides, from the side of the lease's owner: entries that are answered beside the running turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.outcomes import OUTCOME_MS
from remoteclaw.fleet.turn import RecordAppend
from remoteclaw.messages import AsideVerdict

if TYPE_CHECKING:
    from remoteclaw.fleet.lease import Lease


@dataclass(frozen=True, slots=True)
class AsideEnd:
    """What is written with the verdict about one entry."""

    payloads: Sequence[Mapping[str, Any]] = ()
    """Messages for the reply stream."""
    reply: Sequence[Mapping[str, Any]] | None = None
    """The answer, for the outcome."""
    note: Mapping[str, Any] | None = None
    """What the agent is told of it with its next turn."""
    record: RecordAppend | None = None


class Asides:
    """The asides of a session under its lease.

    Every method raises `LeaseLost` once another worker has the session.
    """

    def __init__(self, lease: "Lease") -> None:
        self._lease = lease

    async def ask(self, turn: str, entry_id: str) -> bool:
        """Record that an entry is about to be asked about; False if it is to wait.

        So it is if it was asked about by two attempts that were cut off, or has a verdict.
        """
        sid = self._lease.sid
        asked = await self._lease.run_fenced(
            "aside_ask",
            {"inbound": keys.inbound(sid)},
            {"turn": turn, "outcomes": keys.outcome_prefix(sid), "entry": entry_id},
        )
        return bool(asked)

    async def end(
        self, turn: str, entry_id: str, verdict: AsideVerdict, what: AsideEnd
    ) -> AsideVerdict | Literal["gone"]:
        """Record a verdict and obey it; return the one that was obeyed.

        A turn that has ended can't be joined or stopped any more: then it is "later". "gone" means
        that the entry has become a part of a turn meanwhile, or was stopped.
        """
        sid, session = self._lease.sid, self._lease.session
        record = what.record
        done = await self._lease.run_fenced(
            "aside_end",
            {
                "inbound": keys.inbound(sid),
                "replies": keys.reply_stream(session.provider, session.account),
                "record": keys.record(sid),
                "beside": keys.beside(sid),
            },
            {
                "turn": turn,
                "outcomes": keys.outcome_prefix(sid),
                "entry": entry_id,
                "verdict": verdict,
                "outcome_ms": OUTCOME_MS,
                "done_channel": keys.outcome_channel(sid),
                "bell": keys.bell(sid),
                "reply": None if what.reply is None else orjson.dumps(what.reply),
                "note": None if what.note is None else orjson.dumps(what.note),
                "record": record.lines if record else None,
                "record_bytes": record.most_bytes if record else 0,
                "record_ms": record.keep_ms if record else 0,
                "payloads": [orjson.dumps(payload) for payload in what.payloads],
            },
        )
        obeyed: AsideVerdict | Literal["gone"] = done.decode()
        return obeyed

    async def beside(self) -> list[bytes]:
        """Return what was said beside the turns that the agent has not been told, oldest first.

        Each is JSON: `at` (milliseconds since 1970), `from` (a name), `said`, and what was answered
        (`you`); or what others have `sent` into the chat.
        """
        scripts = self._lease.scripts
        name = keys.beside(self._lease.sid)
        lines: list[bytes]
        lines = await scripts.call(scripts.client.lrange, name, 0, -1, deadline=self._lease.stop_at)
        return lines
