"""Moves of people's messages to branches of their conversation, which answer them there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import GRACE_MS, encode_entry
from remoteclaw.fleet.lua import Argument
from remoteclaw.fleet.state import STATE_MS
from remoteclaw.messages import Entry, Moved, SessionKey
from remoteclaw.protocols import FORK_OF

if TYPE_CHECKING:
    from remoteclaw.fleet.lease import Lease


@dataclass(frozen=True, slots=True)
class MovedEnd:
    """The end of a person's message that was moved to a branch, where it came from."""

    session: SessionKey
    entry: str
    said: bytes | None
    """The note for that conversation, as JSON; none about a message that was stopped."""


def ending_above(moved: MovedEnd | None) -> tuple[dict[str, str | None], dict[str, Argument]]:
    """Return the keys and arguments by which a turn's end is that of a message elsewhere, too."""
    sid = moved.session.sid if moved else ""
    names = {
        "home_record": keys.record(sid) if moved else None,
        "home_beside": keys.beside(sid) if moved else None,
    }
    args: dict[str, Argument] = {
        "home_entry": moved.entry if moved else None,
        "home_outcomes": keys.outcome_prefix(sid) if moved else None,
        "home_channel": keys.outcome_channel(sid) if moved else None,
        "home_said": moved.said if moved else None,
    }
    return names, args


class Moves:
    """Moves messages that wait from a leased session to branches of it.

    Every method raises `LeaseLost` once another worker holds the session.
    """

    def __init__(self, lease: "Lease") -> None:
        self._lease = lease

    async def move(
        self,
        entry: Entry,
        branch: SessionKey,
        about: Moved,
        *,
        names: Sequence[str],
        most: int,
        most_below: int,
        acknowledgement: Mapping[str, Any] | None,
    ) -> Literal["moved", "full", "gone"]:
        """Move a message to a branch, a new session; say the acknowledgement in the chat.

        The branch begins with a copy of the conversations `names`. Moving it again there is
        harmless. "full" means that `most` tasks of the session are unfinished, or `most_below`
        below it, and "gone" that the message has its outcome already, or is a part of a turn.
        """
        lease, moved = self._lease, entry.message.attachments
        like, depth_of_like = lease.state.launch_of
        told = encode_entry(entry.message, entry.deliver, is_command=entry.is_command, moved=about)
        status, _, queue = await lease.run_fenced(
            "aside_move",
            {
                "inbound": keys.inbound(lease.sid),
                "session_map": keys.session_map(lease.sid),
                "record": keys.record(lease.sid),
                "replies": keys.reply_stream(branch.provider, branch.account),
                "new_state": keys.state(branch.sid),
                "new_inbound": keys.inbound(branch.sid),
                "new_map": keys.session_map(branch.sid),
                "new_record": keys.record(branch.sid),
                "active": keys.ACTIVE,
                "sessions": keys.SESSIONS,
                "children": keys.children(lease.sid),
                "blobs": [keys.blob(lease.sid, file.blob) for file in moved],
                "new_blobs": [keys.blob(branch.sid, file.blob) for file in moved],
            },
            {
                "entry_id": entry.id,
                "outcomes": keys.outcome_prefix(lease.sid),
                "sid": branch.sid,
                "session_key": str(branch),
                "entry": told,
                "grace_ms": GRACE_MS,
                "new_outcomes": keys.outcome_prefix(branch.sid),
                "parent": str(lease.session),
                "depth": lease.state.depth + 1,
                "branch_of": str(like),
                "branch_depth": depth_of_like,
                "most": most,
                "root": lease.sid,
                "most_below": most_below,
                "known_ms": STATE_MS,
                "mark": FORK_OF,
                "keep_ms": STATE_MS,
                "acknowledgement": orjson.dumps(acknowledgement) if acknowledgement else None,
                "names": names,
            },
        )
        await lease.waker.try_hint(branch, queue.decode())
        found: Literal["moved", "full", "gone"] = status.decode()
        return found

    async def has_ended_above(self) -> bool:
        """Return whether the conversation from which the message came has ended since."""
        lease = self._lease
        client = lease.scripts.client
        return bool(
            await lease.scripts.call(
                client.hexists, keys.state(lease.sid), "ended_above", deadline=lease.stop_at
            )
        )
