"""Dialogs of programs in terminals."""

import asyncio
import contextlib

from tests.support.tty import PAUSE_S, Tty
from tests.support.waiting import eventually

#: Has codex ask for a command. It asks by itself for one that its sandbox has refused, but on a
#: busy machine it doesn't always see that one was: then the model is told that it has failed.
ESCALATED = 'TOOL:exec_command:{"cmd":"touch x","sandbox_permissions":"require_escalated"}'

#: Lines that are commands where each is sent by itself, and what would end a paste.
HOSTILE = "\n!touch x\n/clear\x1b[201~\r!touch x\r/clear"


async def ignores_pastes(tty: Tty) -> None:
    """Paste into a dialog and give it another size: nothing but keys answers it."""
    for text in ("no, do not do that\n", "1\n", "y\n", f"no{HOSTILE}"):
        await tty.paste(text)
    tty.resize()
    await asyncio.sleep(PAUSE_S)
    assert tty.watch.activity == "waiting"


async def confirm(tty: Tty) -> None:
    """Press Enter until the program is ready: one that is drawn may not read keys yet."""
    while not tty.watch.is_ready:
        await tty.type("\r")
        with contextlib.suppress(AssertionError):
            await eventually(lambda: tty.watch.is_ready, within_s=2.0)
