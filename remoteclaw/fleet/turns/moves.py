"""Moves of waiting messages from a session to a branch of it, which answers them at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.lua import Argument
from remoteclaw.fleet.sessions.state import STATE_MS
from remoteclaw.fleet.sessions.usage import Usage, usage_args, usage_keys
from remoteclaw.fleet.turns.inbound import GRACE_MS, encode_entry
from remoteclaw.messages import Entry, MovedFrom, SessionKey
from remoteclaw.protocols import FORK_OF

if TYPE_CHECKING:
    from remoteclaw.fleet.turns.lease import Lease


@dataclass(frozen=True, slots=True)
class MovedEnd:
    """The end of a moved message in its home, the session from which it was moved."""

    session: SessionKey
    """The home."""
    entry: str
    """The id of the message's entry in the home."""
    note: bytes | None
    """The note for the home's conversation, as JSON; None for a message that was stopped."""


def home_end_args(moved: MovedEnd | None) -> tuple[dict[str, str | None], dict[str, Argument]]:
    """Return the keys and arguments of the script `finish` that end a message in its home."""
    sid = moved.session.sid if moved else ""
    names = {
        "home_record": keys.record(sid) if moved else None,
        "home_notes": keys.aside_notes(sid) if moved else None,
    }
    args: dict[str, Argument] = {
        "home_entry": moved.entry if moved else None,
        "home_outcomes": keys.outcome_prefix(sid) if moved else None,
        "home_channel": keys.outcome_channel(sid) if moved else None,
        "home_note": moved.note if moved else None,
    }
    return names, args


class Moves:
    """Moves waiting messages from a leased session to its branches.

    Every method raises `LeaseLost` once another worker holds the session.
    """

    def __init__(self, lease: "Lease") -> None:
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
    ) -> Literal["moved", "full", "gone"]:
        """Move a waiting message to `branch`, a new session; send the acknowledgement.

        `usage` is that of the aside that decided this; it counts for the session of the lease. The
        branch begins with a copy of the conversations `names`. The call is idempotent. Returns
        "full" if `max_children` tasks of the session, or `max_below` tasks below it, are
        unfinished; and "gone" if the message has its outcome or is already part of a turn.
        """
        lease, files, place = self._lease, entry.message.attachments, entry.message.place
        branch_of, branch_limits = lease.state.launch_of
        moved = encode_entry(
            entry.message, entry.deliver, is_command=entry.is_command, moved=origin
        )
        status, _, queue = await lease.run_fenced(
            "aside_move",
            {
                "inbound": keys.inbound(lease.sid),
                "session_map": keys.session_map(lease.sid),
                "record": keys.record(lease.sid),
                "replies": keys.reply_stream(place.provider, place.account),
                "new_state": keys.state(branch.sid),
                "new_inbound": keys.inbound(branch.sid),
                "new_map": keys.session_map(branch.sid),
                "new_record": keys.record(branch.sid),
                "active": keys.ACTIVE,
                "sessions": keys.SESSIONS,
                "children": keys.children(lease.sid),
                **usage_keys(),
                "blobs": [keys.blob(lease.sid, file.blob) for file in files],
                "new_blobs": [keys.blob(branch.sid, file.blob) for file in files],
            },
            {
                "entry_id": entry.id,
                "outcomes": keys.outcome_prefix(lease.sid),
                "sid": branch.sid,
                "session_key": str(branch),
                "entry": moved,
                "grace_ms": GRACE_MS,
                "new_outcomes": keys.outcome_prefix(branch.sid),
                "parent": str(lease.session),
                "limits": lease.state.limits.of_task.model_dump_json(),
                "branch_of": str(branch_of),
                "branch_limits": branch_limits.model_dump_json(),
                "max_children": max_children,
                "root": lease.sid,
                "max_below": max_below,
                "known_ms": STATE_MS,
                "mark": FORK_OF,
                "keep_ms": STATE_MS,
                "acknowledgement": orjson.dumps(acknowledgement) if acknowledgement else None,
                **usage_args(usage, lease.session.agent),
                "names": names,
            },
        )
        await lease.waker.try_hint(branch, queue.decode())
        result: Literal["moved", "full", "gone"] = status.decode()
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
