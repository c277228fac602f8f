"""A dialog of an agent's own program that opens while a text is being typed into it."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.runtimes import CLIS, create_cli_runtime
from remoteclaw.tty.input import paste
from remoteclaw.tty.watch import WatchedTerminal
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.dialogs import ESCALATED
from tests.support.holders import end, start
from tests.support.terminal_program import Nobody
from tests.support.terminals import used_before
from tests.support.tty import AGAIN_S, PAUSE_S
from tests.support.waiting import eventually
from tests.support.walks import program

pytest.importorskip("pyghostty")


@pytest.mark.thorough
@pytest.mark.parametrize("name", CLIS)
async def test_the_enter_after_a_text_answers_no_dialog(
    model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    """Keys that the gateway doesn't see make the agent ask, ever longer before each text."""
    cli, workspace = required(name, model_server), directory / "w"
    workspace.mkdir()
    made, prompt = workspace / "x", ESCALATED if name == "codex" else "SHELL: touch x"
    used = used_before(cli, directory / "home", workspace)
    env = {**create_cli_runtime(name).environment(os.environ), **used}
    launch, watch = program(cli, env, workspace, directory, trust_workspace=True)
    shown = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    client = await start(directory, *launch.argv, env={**launch.env, **shown}, cwd=launch.cwd)
    watching = WatchedTerminal(client, watch, Nobody())
    await watching.restore()
    watch_task = asyncio.create_task(watching.run())
    try:
        for after_s in (0.0, 0.1, 0.2, 0.3):
            await ask(watching, prompt)
            await asyncio.sleep(after_s)
            with contextlib.suppress(CallRefused):
                await watching.submit("no, do not do that")
            await eventually(lambda: watch.activity == "waiting" or made.exists())
            await asyncio.sleep(PAUSE_S)
            assert not made.exists(), f"the tool ran {after_s} s after it was asked for"
            await refuse(watching)
    finally:
        watch_task.cancel()
        await asyncio.wait([watch_task])
        await end(client)


async def ask(watching: WatchedTerminal, text: str) -> None:
    """Type and send a text without the gateway's knowledge."""
    await eventually(lambda: watching.program.activity == "idle")
    await watching.client.write(paste(text, watching.screen.modes))
    await eventually(lambda: "touch x" in watching.screen.text())
    await asyncio.sleep(AGAIN_S)
    await watching.client.write(b"\r")


async def refuse(watching: WatchedTerminal) -> None:
    """Close the dialog, and clear the composer."""
    while watching.program.activity == "waiting":
        await watching.client.write(b"\x1b")
        await asyncio.sleep(AGAIN_S)
    for _ in range(3):
        await watching.client.write(b"\x15")
        await asyncio.sleep(PAUSE_S)
    watching.has_draft = False
