"""Time that is not the machine's.

    run_virtually(main, monkeypatch, budget, windows)   # runs `main()`; the modules' `boottime` too
    with hurried(10, monkeypatch): ...                  # time goes ten times as fast in this loop

A wait in `run_virtually` takes no time, and an hour of waits is over at once; nothing in it may
wait for a file, a socket or a thread. What is `hurried` may.
"""

import asyncio
import contextlib
import selectors
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from types import ModuleType
from typing import Any

import pytest

from remoteclaw.clock import boottime, now_ms


class _Selector(selectors.SelectSelector):
    """Lets the time pass for which it should wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready, at the end of the wait."""
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everything waits, and nothing will happen"
            self.now += max(timeout, 0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual = _Selector()
        super().__init__(self.virtual)

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self.virtual.now


def run_virtually(
    main: Callable[[], Coroutine[Any, Any, None]],
    monkeypatch: pytest.MonkeyPatch,
    *modules: ModuleType,
) -> None:
    """Run `main()` to its end, with the virtual time as the `boottime()` of `modules`."""
    with asyncio.Runner(loop_factory=_Loop) as runner, monkeypatch.context() as patch:
        for module in modules:
            patch.setattr(module, "boottime", runner.get_loop().time)
        runner.run(main())


@contextlib.contextmanager
def hurried(speed: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the time of the running loop and of channels go so many times as fast as the machine's.

    Redis' time doesn't change. Who waits for a time must have ended before this does.
    """
    loop: Any = asyncio.get_running_loop()
    select, started = loop._selector.select, time.time()

    def wait(timeout: float | None) -> list[Any]:
        return list(select(timeout and timeout / speed))

    def ahead(clock: Callable[[], float], unit: int = 1) -> Callable[[], float]:
        return lambda: clock() + (time.time() - started) * (speed - 1) * unit

    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", ahead(loop.time))
        patch.setattr(loop._selector, "select", wait)
        for name, module in [*sys.modules.items()]:
            if name.startswith(("remoteclaw.channels.", "remoteclaw.fleet.replies.")):
                patch.setattr(module, "boottime", ahead(boottime), raising=False)
                milliseconds = ahead(now_ms, 1000)
                patch.setattr(module, "now_ms", lambda of=milliseconds: int(of()), raising=False)
        yield
