"""Measures how processor time grows with the size of an input, whatever other processes do."""

import time
from collections.abc import Callable

#: Shorter times, in seconds, are too inexact to compare.
LEAST_S = 0.002


def is_linear(run: Callable[[int], object], *, size: int = 10_000) -> bool:
    """Whether eight times the input takes less than 24 times as long; quadratic time takes 64."""
    larger = once(lambda: run(8 * size))
    if larger < 24 * LEAST_S:
        return True
    # A garbage collection or another process' use of the caches is no growth; see `processor_s`.
    return min(larger, once(lambda: run(8 * size))) < 24 * processor_s(lambda: run(size))


def processor_s(run: Callable[[], object]) -> float:
    """Return the processor time of a call, in seconds; the shorter one of two calls."""

    return min(once(run), once(run))


def once(run: Callable[[], object]) -> float:
    """Return the processor time of one call, in seconds."""
    began = time.process_time()
    run()
    return time.process_time() - began
