"""Growth of processor time with the size of an input; the load of other processes is not in it."""

import time
from collections.abc import Callable

#: What takes less than this tells nothing, in seconds.
LEAST_S = 0.002


def is_linear(run: Callable[[int], object], *, size: int = 10_000) -> bool:
    """Whether eight times the input takes less than 24 times as long; squared it would be 64."""
    larger = once(lambda: run(8 * size))
    return larger < 24 * LEAST_S or larger < 24 * processor_s(lambda: run(size))


def processor_s(run: Callable[[], object]) -> float:
    """Return the processor time that something takes, in seconds; the better of two tries."""

    return min(once(run), once(run))


def once(run: Callable[[], object]) -> float:
    """Return the processor time that something takes once."""
    began = time.process_time()
    run()
    return time.process_time() - began
