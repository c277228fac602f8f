"""Dialogs of programs in terminals."""

import contextlib

from tests.support.tty import Tty
from tests.support.waiting import eventually

__all__ = ["ESCALATED", "confirm"]

#: Has codex ask for a command. It asks by itself for one that its sandbox has refused, but on a
#: busy machine it doesn't always see that one was: then the model is told that it has failed.
ESCALATED = 'TOOL:exec_command:{"cmd":"touch x","sandbox_permissions":"require_escalated"}'


async def confirm(tty: Tty) -> None:
    """Press Enter until the program is ready: one that is drawn may not read keys yet."""
    while not tty.watch.is_ready:
        await tty.type("\r")
        with contextlib.suppress(AssertionError):
            await eventually(lambda: tty.watch.is_ready, within_s=2.0)
