"""`terminals record`: what a terminal has shown, played back by another program's parser."""

import asyncio
import json
import os
import signal
import stat
from pathlib import Path

import orjson
import pytest

from remoteclaw.runtimes import RUNTIMES
from tests.support.casts import played, rows_of
from tests.support.command import REMOTECLAW, run_command, start_program
from tests.support.doors import opened, own_token
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime, held_terminal
from tests.support.waiting import eventually
from tests.support.watched import watching


async def test_a_recording_plays_back_frame_by_frame_what_the_screen_has_shown(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)
    token, file = own_token(stack), directory / "work.cast"
    async with held_terminal(stack) as held, opened(stack, is_private=True) as door:
        assert door.gateway is not None
        env = stack.env(REMOTECLAW_GATEWAY_URL=door.url, REMOTECLAW_GATEWAY_TOKEN=token)
        command = [REMOTECLAW, "terminals", "record", held.sid, str(file)]
        process = start_program(command, env=env, log=directory / "record.log")
        await eventually(lambda: file.exists() and file.read_text().count("\n") > 1)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        async with watching(door, token, held.sid) as screen:
            type_ = screen.client.call
            await type_("terminals.take", {"sid": held.sid, "cols": 40, "rows": 12})
            for text in ("漢字", "\x1b]52;c;eA==", "👩‍🚀 e\u0301"):
                await type_("terminals.type", {"sid": held.sid, "keys": [f"t:{text}", "k:enter"]})
                await screen.until("You said")
            await type_("terminals.type", {"sid": held.sid, "keys": ["t:flood", "k:enter"]})
            await screen.until("You said flood.")
        found = await asyncio.to_thread(
            run_command, "terminals", "search", held.sid, "SAID FLOOD", env=stack.env()
        )
        as_json = await asyncio.to_thread(
            run_command, "terminals", "search", held.sid, "none", "--json", env=stack.env()
        )
        assert json.loads(as_json.stdout)["total"] == 0
        _, attached = await door.gateway.terminals.attached(
            door.gateway.terminals.held_record(held.sid)  # type: ignore[arg-type]
        )
        wanted = rows_of(attached.screen.text())
        await eventually(lambda: played(file.read_text())[-1] == wanted)
        os.kill(process.pid, signal.SIGINT)
        assert await asyncio.to_thread(process.wait) == 0

        nothing = await asyncio.to_thread(
            run_command, "terminals", "record", "0" * 32, str(directory / "nothing.cast"), env=env
        )
        assert (nothing.returncode, (directory / "nothing.cast").exists()) == (1, False)
        again = await asyncio.to_thread(run_command, *command[1:], env=env)
        assert again.returncode == 2
        assert "exists already" in again.stderr

    cast = file.read_text()
    head = orjson.loads(cast.splitlines()[0])
    assert (head["version"], head["width"], head["height"]) == (2, 60, 10)
    kinds = [orjson.loads(line)[1] for line in cast.splitlines()[1:]]
    assert kinds.count("r") == 1
    assert "\\u001b]52" not in cast
    screens = played(cast)
    assert [row for rows in screens for row in rows if row.startswith("You said 漢字.")]
    assert found.stdout == "You said flood.\n"
