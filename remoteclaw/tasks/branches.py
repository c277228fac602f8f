"""Branches: sessions that begin as a copy of a conversation, for a task or a person's message."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from remoteclaw.config.model import Config
from remoteclaw.errors import RemoteClawError
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.moves import Moves
from remoteclaw.fleet.task_tree import WorkTrees
from remoteclaw.host.terminal import shortened
from remoteclaw.messages import Entry, Moved, Said
from remoteclaw.runtimes import create_cli_runtime

#: How many digits of a message's hash are the name of its branch.
TASK_DIGITS = 16
#: How much a branch is told of the turn that its conversation is in: the newest messages, and the
#: characters of each.
MAX_MESSAGES, MAX_CHARS = 20, 4000


def copyable(names: Iterable[str], *, is_busy: bool) -> list[str]:
    """Return those conversations, by their names in the session map, that a CLI can copy now.

    One at work is copied by a point behind its last finished turn, where there is such a thing.
    """
    return [name for name in names if _can_fork(name.partition("|")[0], is_busy=is_busy)]


def _can_fork(runtime: str, *, is_busy: bool) -> bool:
    try:
        can = create_cli_runtime(runtime).capabilities
    except RemoteClawError:  # of another version
        return False
    return can.forks and (can.has_points or not is_busy)


def conversation_now(entries: Sequence[Entry]) -> tuple[Said, ...]:
    """Return what a running turn is about, which no copy of its conversation has."""
    return tuple(
        Said(
            name=entry.message.user_name or entry.message.from_,
            id=entry.message.from_ if entry.origin == "chat" else None,
            text=shortened(entry.message.text, MAX_CHARS),
        )
        for entry in entries[-MAX_MESSAGES:]
    )


async def move_to_branch(
    lease: Lease,
    config: Config,
    entry: Entry,
    *,
    running: Sequence[Entry],
    acknowledgement: Mapping[str, Any] | None = None,
) -> Literal["moved", "full", "gone"]:
    """Move a person's message that waits to a branch of its conversation, which answers it now.

    `running` are the entries that the conversation's turn is about; the acknowledgement goes to
    the chat in the same step. Doing it again, also in another process, changes nothing. "full"
    means that it has to wait, because too much is unfinished, and "gone" that it has its outcome,
    or is a part of a turn. Raises `LeaseLost`.
    """
    name = hashlib.sha256(f"{lease.sid} {entry.id}".encode()).hexdigest()[:TASK_DIGITS]
    status = await Moves(lease).move(
        entry,
        replace(lease.session, task=name),
        Moved(of=str(lease.session), entry=entry.id, now=conversation_now(running)),
        names=copyable(lease.session_map, is_busy=True),
        most=config.sessions.max_children,
        most_below=config.sessions.max_tree,
        acknowledgement=acknowledgement,
    )
    if status == "moved":
        await WorkTrees(lease.scripts).announce((lease.session,))
    return status
