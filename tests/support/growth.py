"""Growth of processor time with the size of an input; the load of other processes is not in it."""

import time
from collections.abc import Callable


def is_linear(run: Callable[[int], object], *, size: int = 10_000) -> bool:
    """Whether eight times the input takes less than 24 times as long; squared it would be 64."""
    larger, smaller = processor_s(lambda: run(8 * size)), processor_s(lambda: run(size))
    return larger < 24 * max(smaller, 0.002)


def processor_s(run: Callable[[], object]) -> float:
    """Return the processor time that something takes, in seconds; the better of two tries."""

    def once() -> float:
        began = time.process_time()
        run()
        return time.process_time() - began

    return min(once(), once())
