"""Dialogs of agents' programs in terminals."""

import asyncio
import contextlib

from tests.support.tty import PAUSE_S, Tty
from tests.support.waiting import eventually

#: Makes codex ask for permission to run a command. Codex also asks after its sandbox has refused a
#: command, but on a busy machine it may miss that, and report a failure to the model.
ESCALATED = 'TOOL:exec_command:{"cmd":"touch x","sandbox_permissions":"require_escalated"}'

#: Lines that are commands if each is sent alone, and a sequence that would end a paste.
HOSTILE = "\n!touch x\n/clear\x1b[201~\r!touch x\r/clear"


async def ignores_pastes(tty: Tty) -> None:
    """Paste into a dialog and resize it, and check that only keys answer it."""
    for text in ("no, do not do that\n", "1\n", "y\n", f"no{HOSTILE}"):
        await tty.paste(text)
    tty.resize()
    await asyncio.sleep(PAUSE_S)
    assert tty.watch.activity == "waiting"


async def confirm(tty: Tty) -> None:
    """Press Enter until the program is ready: it may not read keys while it is being drawn."""
    while not tty.watch.is_ready:
        await tty.type("\r")
        with contextlib.suppress(AssertionError):
            await eventually(lambda: tty.watch.is_ready, within_s=2.0)
