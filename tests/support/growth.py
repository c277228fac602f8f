"""How the time of something grows with its input, in processor time: others' load is not in it."""

import time
from collections.abc import Callable

__all__ = ["is_linear"]


def is_linear(run: Callable[[int], object], *, size: int = 10_000) -> bool:
    """Whether eight times the input takes less than 24 times as long; squared it would be 64."""
    return _seconds(run, 8 * size) < 24 * max(_seconds(run, size), 0.002)


def _seconds(run: Callable[[int], object], size: int) -> float:
    def once() -> float:
        began = time.process_time()
        run(size)
        return time.process_time() - began

    return min(once(), once())
