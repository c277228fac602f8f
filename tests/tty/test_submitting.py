"""Text that is typed and sent for a person: to a program that is idle, and to no dialog."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.holder.terminal_client import TerminalClient
from remoteclaw.runtimes.codex_terminal import CodexTerminal
from remoteclaw.tty.watch import Watching
from tests.support.holders import end, start
from tests.support.shown import Nobody
from tests.support.waiting import eventually

pytest.importorskip("pyghostty")

#: Speaks as codex does. Behind a text it does what it is told to, one thing after the other.
PROGRAM = r"""
import os, sys, time, tty
tty.setraw(0)
def say(*states):
    for state in states:
        os.write(1, f"\x1b]7501;state={state}\x07".encode())
        time.sleep(0.25 if len(states) > 1 else 0)
os.write(1, b"\x1b[?2004h\x1b]0;codex\x07")
say("idle")
while data := os.read(0, 65536):
    if data == b"\r":
        os.write(1, b"[sent]")
        say("working")
    elif data.endswith(b"\x1b[201~"):
        os.write(1, data[6:-6])
        say(*sys.argv[1:])
"""


@contextlib.asynccontextmanager
async def watched(directory: Path, *behind: str) -> AsyncIterator[Watching]:
    """Have the program watched."""
    terminal = await start(directory, sys.executable, "-c", PROGRAM, *behind)
    watching = await watching_of(terminal, directory)
    following = asyncio.create_task(watching.run())
    try:
        await eventually(lambda: watching.watch.activity == "idle")
        yield watching
    finally:
        following.cancel()
        await asyncio.wait([following])
        await end(terminal)


async def watching_of(client: TerminalClient, directory: Path) -> Watching:
    run_dir = directory / "watched"
    run_dir.mkdir(exist_ok=True)
    watch = CodexTerminal().watch(
        run_dir=run_dir, workspace=str(directory), env={}, conversation=None
    )
    watching = Watching(client, watch, Nobody())
    await watching.restore()
    return watching


async def test_a_program_that_becomes_busy_by_itself_is_sent_the_text_when_it_is_idle_again(
    directory: Path,
) -> None:
    """As codex is at its start, when it has already said that it is idle."""
    async with watched(directory, "working", "idle") as watching:
        await watching.submit("hello")

        assert "hello[sent]" in watching.screen.text()
        assert not watching.has_draft


@pytest.mark.parametrize("behind", [("blocked", "idle"), ("working", "blocked", "idle")])
async def test_where_a_dialog_was_meanwhile_no_enter_is_pressed(
    directory: Path, behind: tuple[str, ...]
) -> None:
    """Whoever has answered it may have answered another one that looks the same."""
    async with watched(directory, *behind) as watching:
        with pytest.raises(CallRefused, match="The program became busy, or asks"):
            await watching.submit("hello")

        await eventually(lambda: watching.watch.activity == "idle")
        assert "[sent]" not in watching.screen.text()


async def test_what_somebody_types_meanwhile_is_not_sent_with_it(directory: Path) -> None:
    async with watched(directory, "working", "idle") as watching:
        submitting = asyncio.create_task(watching.submit("hello"))
        await eventually(lambda: watching.watch.activity == "busy")
        with pytest.raises(CallRefused, match="Something else was typed"):
            await watching.submit("another")
        await watching.type(b"x")

        with pytest.raises(CallRefused, match="The program became busy"):
            await submitting
        assert "[sent]" not in watching.screen.text()


async def test_a_dialog_that_the_next_gateway_finds_is_the_same_one(directory: Path) -> None:
    """Its chat is told once: by the dialog's number, whichever gateway tells it."""
    terminal = await start(directory, sys.executable, "-c", PROGRAM, "blocked")
    first = await watching_of(terminal, directory)
    following = asyncio.create_task(first.run())
    await eventually(lambda: first.watch.activity == "idle")
    # The title says that it works before, and it isn't said what of both came first.
    await first.paste("x")
    await eventually(lambda: first.watch.activity == "waiting")
    first._heard(0, "⠙ codex")
    await first.keep()
    assert first.waits == 1
    following.cancel()
    await asyncio.wait([following])
    found = await TerminalClient.attach(terminal.path, key="the-key")
    assert found is not None

    second = await watching_of(found, directory)

    assert (second.watch.activity, second.waits) == ("waiting", 1)
    await end(found, terminal)
