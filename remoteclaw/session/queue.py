"""The queue: which waiting entries make the next turn, and which exceed the cap."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from remoteclaw.config.model import QueueConfig
from remoteclaw.fleet.commands import CommandOf
from remoteclaw.messages import Entry

__all__ = ["Plan", "next_batch"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a session does next with the entries that wait; all are ids, oldest first."""

    batch: tuple[str, ...]
    """The entries that the next turn is about, those that it only mentions included."""
    left_out: tuple[str, ...] = ()
    """Those of the batch of which the agent is only told how they began."""
    is_dropped: bool = False
    """Whether the batch gets no turn at all, but its sender is told."""


def next_batch(
    waiting: Sequence[Entry],
    queue: QueueConfig,
    *,
    busy_since_ms: int | None,
    command_of: CommandOf,
) -> Plan:
    """Return what comes next of the entries that wait, of which there is one at least.

    The cap applies to what came since the session is busy (`busy_since_ms`, None when it was idle).
    A message whose reply doesn't go to the channel is never left out and has a turn of its own; in
    `collect` and `interrupt` all others share one, up to the next such message. What no person has
    sent is never left out either.
    A command has a batch of its own in every mode, so that what was sent before it is answered
    before it; one that is repeated counts once. It is never dropped: beyond the cap, only the
    message that comes with it is.
    """
    if waiting[0].deliver != "channel":
        return Plan((waiting[0].id,))
    from_chat = list(itertools.takewhile(lambda entry: entry.deliver == "channel", waiting))
    said = [entry for entry in from_chat if entry.origin == "chat"]
    commands = {entry.id: command for entry in said if (command := command_of(entry))}
    before = list(itertools.takewhile(lambda entry: entry.id not in commands, from_chat))
    bare = {e.id: commands[e.id].name for e in said if e.id in commands and commands[e.id].is_alone}
    counted = [entry for entry in said if entry.id not in bare]
    late = [e for e in counted if busy_since_ms is not None and e.at_ms >= busy_since_ms]
    excess = len(late) - queue.cap if queue.cap else 0
    beyond: Sequence[Entry] = ()
    left_out: tuple[str, ...] = ()
    if excess > 0 and queue.drop == "new":
        beyond = late[queue.cap :]
        if newest := _ids([entry for entry in beyond if entry.id not in commands]):
            return Plan(newest, is_dropped=True)
    elif excess > 0:
        beyond = late[:excess]
        ids_before = {entry.id for entry in before}
        left_out = tuple(entry.id for entry in beyond if entry.id in ids_before)
        if left_out and (queue.drop == "old" or len(left_out) == len(before)):
            return Plan(left_out, is_dropped=True)
    if not before:
        if name := bare.get(from_chat[0].id):
            same = itertools.takewhile(lambda entry: bare.get(entry.id) == name, from_chat)
            return Plan(_ids([*same]))
        head = from_chat[0]
        return Plan((head.id,), is_dropped=head in beyond)
    kept = [entry for entry in before if entry.id not in left_out]
    if queue.mode == "interrupt":  # what may be interrupted stands apart from what may not
        first = kept[0].origin == "chat"
        kept = list(itertools.takewhile(lambda e: (e.origin == "chat") == first, kept))
    together = kept if queue.mode in ("collect", "interrupt") else kept[:1]
    batch = [entry for entry in before if entry.id in left_out or entry in together]
    return Plan(_ids(batch), left_out=left_out)


def _ids(entries: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(entry.id for entry in entries)
