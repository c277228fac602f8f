"""A loop whose time is virtual: a wait takes no time, and an hour of waits is over at once.

    run_virtually(main, monkeypatch, budget, windows)   # runs `main()`; the modules' `boottime` too

Nothing in it may wait for a file, a socket or a thread.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import pytest


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
