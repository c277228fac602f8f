"""Which entries make the next turn."""

from collections.abc import Sequence

__all__ = ["next_batch"]


def next_batch(waiting: Sequence[str]) -> tuple[str, ...]:
    """Return the ids that the next turn takes from those that wait, oldest first.

    Every message gets a turn of its own, in the order in which they were accepted.
    """
    return tuple(waiting[:1])
