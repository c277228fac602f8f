"""Waits for a condition, with a deadline and no fixed sleeps."""

import asyncio
import inspect
import os
import time
from collections.abc import Callable
from typing import Any

#: The maximum wait of a test, in seconds. It only ends a test that hangs, and is no performance
#: limit: a passing test stays far below it on any machine. It is shorter for mutants, whose tests
#: mostly wait in vain.
HANG_S = float(os.environ.get("REMOTECLAW_TEST_HANG_S", "60"))
#: The pause between two checks of a condition, in seconds: at first, and after a while. Frequent
#: checks of many slow conditions would keep the machine busy.
SOON_S, LATER_S = 0.01, 0.05


async def eventually(condition: Callable[[], Any], *, within_s: float = HANG_S) -> Any:
    """Return the first truthy value of a condition, which may be a coroutine function."""
    until, pause = time.monotonic() + within_s, SOON_S
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not true within {within_s} s: {inspect.getsource(condition)}")
        await asyncio.sleep(pause)
        pause = min(1.2 * pause, LATER_S)


def eventually_sync(condition: Callable[[], Any], *, within_s: float = HANG_S) -> Any:
    """Return the first truthy value of a condition."""
    until, pause = time.monotonic() + within_s, SOON_S
    while not (value := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"not true within {within_s} s: {inspect.getsource(condition)}")
        time.sleep(pause)
        pause = min(1.2 * pause, LATER_S)
    return value
