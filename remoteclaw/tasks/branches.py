"""Branches: sessions that begin with a copy of a conversation, for a task or a person's message."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from remoteclaw.config.budgets import person_names
from remoteclaw.config.model import Config
from remoteclaw.errors import RemoteClawError
from remoteclaw.fleet.sessions.task_tree import TaskTrees
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.moves import Moves
from remoteclaw.host.terminal import shortened
from remoteclaw.messages import Entry, MovedFrom, QuotedMessage, payers_of
from remoteclaw.protocols import parts_of_name
from remoteclaw.runtimes import create_cli_runtime

#: The name of a message's branch is this many hexadecimal digits of a hash.
NAME_DIGITS = 16
#: A branch gets at most this many of the messages that the conversation's running turn answers, the
#: newest, each cut to this many characters.
MAX_MESSAGES, MAX_MESSAGE_CHARS = 20, 4000


def copyable(names: Iterable[str], *, is_busy: bool) -> list[str]:
    """Return those of `names`, from a session map, whose conversation a CLI can copy now.

    With `is_busy`, a turn is running, and the CLI must be able to copy the conversation up to the
    end of the turn before.
    """
    return [name for name in names if _can_fork(parts_of_name(name)[1], is_busy=is_busy)]


def _can_fork(runtime: str, *, is_busy: bool) -> bool:
    try:
        capabilities = create_cli_runtime(runtime).capabilities
    except RemoteClawError:  # a runtime of another version of RemoteClaw
        return False
    return capabilities.forks and (capabilities.has_points or not is_busy)


def quoted_messages(entries: Sequence[Entry]) -> tuple[QuotedMessage, ...]:
    """Return the messages that a running turn answers: a copy of the conversation lacks them."""
    return tuple(
        QuotedMessage(
            name=entry.message.user_name or entry.message.from_,
            id=entry.message.from_ if entry.origin == "chat" else None,
            text=shortened(entry.message.text, MAX_MESSAGE_CHARS),
            has_text_of_others=entry.has_text_of_others,
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
    usage: Usage | None = None,
) -> Literal["moved", "full", "gone"]:
    """Move a person's waiting message to a branch of its conversation, which answers it at once.

    `running` are the entries that the running turn answers. In the same step, the
    `acknowledgement` is sent to the chat, and the `usage` of the aside that decided this is
    counted. The call is idempotent, also across processes. Returns "full" if the message has to
    wait, because too many tasks are unfinished, and "gone" if it has its outcome or is already part
    of a turn. Raises `LeaseLost`.
    """
    name = hashlib.sha256(f"{lease.sid} {entry.id}".encode()).hexdigest()[:NAME_DIGITS]
    status = await Moves(lease).move(
        entry,
        replace(lease.session, task=name),
        MovedFrom(of=str(lease.session), entry=entry.id, now=quoted_messages(running)),
        names=copyable(lease.session_map, is_busy=True),
        max_children=config.sessions.max_children,
        max_below=config.sessions.max_tree,
        acknowledgement=acknowledgement,
        usage=usage,
        payers=person_names(config, payers_of([entry])),
    )
    if status == "moved":
        await TaskTrees(lease.scripts).announce((lease.session,))
    return status
