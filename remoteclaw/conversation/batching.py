"""Which of the waiting entries make the next turn, and which go beyond what a session keeps."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from remoteclaw.config import QueueConfig
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


def next_batch(waiting: Sequence[Entry], queue: QueueConfig, *, busy_since_ms: int | None) -> Plan:
    """Return what comes next of the entries that wait, of which there is one at least.

    The cap applies to what came since the session is busy (`busy_since_ms`, None when it was idle).
    A message whose reply doesn't go to the channel is never left out and has a turn of its own; in
    `collect` and `interrupt` all others share one, up to the next such message. What no person has
    sent is never left out either.
    """
    if waiting[0].deliver != "channel":
        return Plan((waiting[0].id,))
    from_chat = list(itertools.takewhile(lambda entry: entry.deliver == "channel", waiting))
    said = [entry for entry in from_chat if entry.origin == "chat"]
    late = [e for e in said if busy_since_ms is not None and e.at_ms >= busy_since_ms]
    excess = len(late) - queue.cap if queue.cap else 0
    left_out: tuple[str, ...] = ()
    if excess > 0:
        if queue.drop == "new":
            return Plan(_ids(late[queue.cap :]), is_dropped=True)
        left_out = _ids(late[:excess])
        if queue.drop == "old":
            return Plan(left_out, is_dropped=True)
    kept = [entry for entry in from_chat if entry.id not in left_out]
    together = kept if queue.mode in ("collect", "interrupt") else kept[:1]
    batch = [entry for entry in from_chat if entry.id in left_out or entry in together]
    return Plan(_ids(batch), left_out=left_out)


def _ids(entries: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(entry.id for entry in entries)
