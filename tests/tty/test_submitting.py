"""Text that is typed and sent for a person: only to an idle program, never to a dialog."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.holder.terminal_client import TerminalClient
from remoteclaw.runtimes.codex.terminal import CodexTerminal
from remoteclaw.tty.watch import WatchedTerminal
from tests.support.holders import end, start
from tests.support.terminal_program import Nobody
from tests.support.waiting import eventually

pytest.importorskip("pyghostty")

#: A program that reports states like codex. After a text, it reports its arguments in order.
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
async def watched(directory: Path, *later_states: str) -> AsyncIterator[WatchedTerminal]:
    """Start and watch the program, which reports `later_states` after a text."""
    terminal = await start(directory, sys.executable, "-c", PROGRAM, *later_states)
    watching = await watching_of(terminal, directory)
    watch_task = asyncio.create_task(watching.run())
    try:
        await eventually(lambda: watching.program.activity == "idle")
        yield watching
    finally:
        watch_task.cancel()
        await asyncio.wait([watch_task])
        await end(terminal)


async def watching_of(client: TerminalClient, directory: Path) -> WatchedTerminal:
    run_dir = directory / "watched"
    run_dir.mkdir(exist_ok=True)
    watch = CodexTerminal().watch(
        run_dir=run_dir, workspace=str(directory), env={}, conversation=None
    )
    watching = WatchedTerminal(client, watch, Nobody())
    await watching.restore()
    return watching


async def test_text_is_sent_when_a_program_that_became_busy_by_itself_is_idle_again(
    directory: Path,
) -> None:
    """Codex does this at its start, after it has reported that it is idle."""
    async with watched(directory, "working", "idle") as watching:
        await watching.submit("hello")

        assert "hello[sent]" in watching.screen.text()
        assert not watching.has_draft


@pytest.mark.parametrize("later_states", [("blocked", "idle"), ("working", "blocked", "idle")])
async def test_no_enter_is_pressed_if_a_dialog_opened_after_the_text(
    directory: Path, later_states: tuple[str, ...]
) -> None:
    """Even if the dialog was answered, another one that looks the same may be open."""
    async with watched(directory, *later_states) as watching:
        with pytest.raises(CallRefused, match="The program became busy, or asks"):
            await watching.submit("hello")

        await eventually(lambda: watching.program.activity == "idle")
        assert "[sent]" not in watching.screen.text()


async def test_keys_that_a_person_types_in_between_are_not_sent_with_the_text(
    directory: Path,
) -> None:
    async with watched(directory, "working", "idle") as watching:
        submitting = asyncio.create_task(watching.submit("hello"))
        await eventually(lambda: watching.program.activity == "busy")
        with pytest.raises(CallRefused, match="Something else was typed"):
            await watching.submit("another")
        await watching.type(b"x")

        with pytest.raises(CallRefused, match="The program became busy"):
            await submitting
        assert "[sent]" not in watching.screen.text()


async def test_a_dialog_keeps_its_number_for_the_next_gateway(directory: Path) -> None:
    """The chat gets one notice for each number, whichever gateway sends it."""
    terminal = await start(directory, sys.executable, "-c", PROGRAM, "blocked")
    first = await watching_of(terminal, directory)
    watch_task = asyncio.create_task(first.run())
    await eventually(lambda: first.program.activity == "idle")
    # A busy title arrived earlier; the saved state doesn't have the order of title and state.
    await first.type(first.pasted("x"), is_pasted=True)
    await eventually(lambda: first.program.activity == "waiting")
    first._note_osc(0, "⠙ codex")
    await first.save()
    assert first.wait_count == 1
    watch_task.cancel()
    await asyncio.wait([watch_task])
    client = await TerminalClient.attach(terminal.path, key="the-key")
    assert client is not None

    second = await watching_of(client, directory)

    assert (second.program.activity, second.wait_count) == ("waiting", 1)
    await end(client, terminal)
