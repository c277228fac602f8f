"""Dialogs with which programs in terminals begin."""

import contextlib

from tests.support.tty import Tty
from tests.support.waiting import eventually

__all__ = ["confirm"]


async def confirm(tty: Tty) -> None:
    """Press Enter until the program is ready: one that is drawn may not read keys yet."""
    while not tty.watch.is_ready:
        await tty.type("\r")
        with contextlib.suppress(AssertionError):
            await eventually(lambda: tty.watch.is_ready, within_s=2.0)
