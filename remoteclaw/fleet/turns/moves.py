"""Moves of waiting messages from a session to a branch of it, which answers them at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.lua import Values
from remoteclaw.fleet.sessions.state import STATE_MS
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.inbound import GRACE_MS, encode_entry
from remoteclaw.fleet.turns.leased_session import LeasedSession
from remoteclaw.messages import Entry, MovedFrom, SessionKey
from remoteclaw.protocols import FORK_OF


@dataclass(frozen=True, slots=True)
class MovedEnd:
    """The end of a moved message in its home, the session from which it was moved."""

    session: SessionKey
    """The home."""
    entry: str
    """The id of the message's entry in the home."""
    note: bytes | None
    """The note for the home's conversation, as JSON; None for a message that was stopped."""


def home_end_args(moved: MovedEnd | None) -> Values:
    """Return the arguments of the script `finish` that end a message in its home."""
    if moved is None:
        return {}
    return {"home_sid": moved.session.sid, "home_entry": moved.entry, "home_note": moved.note}


class Moves:
    """Moves waiting messages from a leased session to its branches.

    Every method raises `LeaseLost` once another worker holds the session.
    """

    def __init__(self, lease: LeasedSession) -> None:
        self._lease = lease

    async def move(
        self,
        entry: Entry,
        branch: SessionKey,
        origin: MovedFrom,
        *,
        names: Sequence[str],
        max_children: int,
        max_below: int,
        acknowledgement: Mapping[str, Any] | None,
        usage: Usage | None,
        payers: Sequence[str],
    ) -> Literal["moved", "full", "gone"]:
        """Move a waiting message to `branch`, a new session; send the acknowledgement.

        `usage` is that of the aside that decided this; it counts for the session of the lease and
        for the people with the names `payers`. The
        branch begins with a copy of the conversations `names`. The call is idempotent. Returns
        "full" if `max_children` tasks of the session, or `max_below` tasks below it, are
        unfinished; and "gone" if the message has its outcome or is already part of a turn.
        """
        lease, files, place = self._lease, entry.message.attachments, entry.message.place
        branch_of, branch_limits = lease.state.launch_of
        moved_entry = encode_entry(
            entry.message, entry.deliver, is_command=entry.is_command, moved=origin
        )
        moving = await lease.run_fenced(
            "aside_move",
            branch_sid=branch.sid,
            provider=place.provider,
            account=place.account,
            entry_id=entry.id,
            session_key=str(branch),
            entry=moved_entry,
            grace_ms=GRACE_MS,
            parent=str(lease.session),
            limits=lease.state.limits.of_task.model_dump_json(),
            branch_of=str(branch_of),
            branch_limits=branch_limits.model_dump_json(),
            max_children=max_children,
            max_below=max_below,
            known_ms=STATE_MS,
            mark=FORK_OF,
            keep_ms=STATE_MS,
            acknowledgement=orjson.dumps(acknowledgement) if acknowledgement else None,
            names=names,
            blobs=[keys.blob(lease.sid, file.blob) for file in files],
            branch_blobs=[keys.blob(branch.sid, file.blob) for file in files],
            **lease.usage_args(usage, payers=payers),
        )
        await lease.waker.try_hint(branch, moving.queue)
        result: Literal["moved", "full", "gone"] = moving.status
        return result

    async def has_ended_above(self) -> bool:
        """Return whether the conversation of the moved message's home has ended since the move."""
        lease = self._lease
        client = lease.scripts.client
        return bool(
            await lease.scripts.call(
                client.hexists, keys.state(lease.sid), "ended_above", deadline=lease.stop_at
            )
        )
