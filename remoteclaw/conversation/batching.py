"""Which of the waiting entries make the next turn, and which go beyond what a session keeps."""

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


def next_batch(waiting: Sequence[Entry], queue: QueueConfig, *, was_busy: bool) -> Plan:
    """Return what comes next of the entries that wait, of which there is one at least.

    `was_busy` says that they came while the session had a turn: only then the cap applies.
    Messages whose sender waits for the reply itself (`send`) are not counted, and each has a turn
    of its own; in `collect` and `interrupt` all others share one.
    """
    from_chat = [entry for entry in waiting if entry.deliver == "channel"]
    excess = len(from_chat) - queue.cap if queue.cap and was_busy else 0
    left_out: tuple[str, ...] = ()
    if excess > 0:
        if queue.drop == "new":
            return Plan(_ids(from_chat[queue.cap :]), is_dropped=True)
        left_out = _ids(from_chat[:excess])
        if queue.drop == "old":
            return Plan(left_out, is_dropped=True)
        waiting = [entry for entry in waiting if entry.id not in left_out]
    together = [waiting[0]]
    if queue.mode in ("collect", "interrupt"):
        for entry in waiting[1:]:
            if not together[0].deliver == entry.deliver == "channel":
                break
            together.append(entry)
    return Plan((*left_out, *_ids(together)), left_out=left_out)


def _ids(entries: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(entry.id for entry in entries)
