"""The composer of a program: what was typed is over once it looks empty as before."""

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

#: A program that reports states like codex, with a composer of any number of lines on its last
#: rows. `/menu` opens a menu that Enter closes, `/run` starts a process without a report, and
#: any other text is work. With the argument `wipes`, it loses the first text; with `starts`, it is
#: at work until the first key.
PROGRAM = r"""
import os, re, subprocess, sys, tty
tty.setraw(0)
draft, menu, wipes, starts = "", False, "wipes" in sys.argv, "starts" in sys.argv
def say(state):
    os.write(1, f"\x1b]7501;state={state}\x07".encode())
def draw(*above):
    text = "".join(f"{line}\r\n" for line in above)
    lines = draft.split("\n")
    os.write(1, f"\x1b[2J\x1b[H{text}\r\n----\r\n> ".encode() + "\r\n  ".join(lines).encode())
    os.write(1, f"\x1b7\r\n----\x1b8".encode())
os.write(1, b"\x1b[?2004h\x1b]0;codex\x07")
draw()
say("working" if starts else "idle")
while data := os.read(0, 65536):
    if starts:
        starts = False
        say("idle")
    text = re.sub(r"\x1b\[\d+~", "", data.decode())  # the marks of a paste, and Delete
    for part in text:
        if part == "\r" and menu:
            menu = False
            draw("chosen")
        elif part == "\r":
            text, draft = draft, ""
            if text == "/menu":
                menu = True
                os.write(1, b"\x1b[2J\x1b[HChoose\r\n> 1. this\r\n  2. that\x1b[2;1H")
            elif text == "/run":
                child = subprocess.Popen(["sleep", "1000"])
                draw("running")
            else:
                say("working")
                draw("said " + text.replace("\n", "|"))
                say("idle")
        elif part == "\x7f":
            draft = draft[:-1]
            draw()
        elif part >= " " or part == "\n":
            draft += part
            draw()
    if wipes and draft:
        draft, wipes = "", False
        draw()
"""


async def watching_of(client: TerminalClient, directory: Path) -> WatchedTerminal:
    run_dir = directory / "watched"
    run_dir.mkdir(exist_ok=True)
    watch = CodexTerminal().watch(
        run_dir=run_dir, workspace=str(directory), env={}, conversation=None
    )
    watching = WatchedTerminal(client, watch, Nobody())
    await watching.restore()
    return watching


@contextlib.asynccontextmanager
async def watched(directory: Path, *arguments: str) -> AsyncIterator[WatchedTerminal]:
    terminal = await start(directory, sys.executable, "-c", PROGRAM, *arguments)
    watching = await watching_of(terminal, directory)
    watch_task = asyncio.create_task(watching.run())
    try:
        await eventually(lambda: watching.program.activity in ("idle", "busy"))
        yield watching
    finally:
        watch_task.cancel()
        await asyncio.wait([watch_task])
        await end(terminal)


async def shows(watching: WatchedTerminal, text: str) -> None:
    await eventually(lambda: text in watching.screen.text())


async def test_a_program_is_idle_again_after_a_menu_and_not_while_it_is_open(
    directory: Path,
) -> None:
    async with watched(directory) as watching:
        await watching.type(b"/menu\r")
        await shows(watching, "1. this")
        with pytest.raises(CallRefused, match=r"not known to be idle.*shows “1. this”"):
            await watching.submit("hello")

        await watching.type(b"\r")
        await watching.submit("hello")

        await shows(watching, "said hello")


async def test_a_program_in_which_somebody_typed_at_its_start_is_idle_again_after_a_menu(
    directory: Path,
) -> None:
    """Codex works by itself at its start, and what it runs then was not begun by a person."""
    async with watched(directory, "starts") as watching:
        await watching.type(b"/")
        await eventually(lambda: watching.program.activity == "idle")
        await watching.type(b"menu\r")
        await shows(watching, "1. this")
        await watching.type(b"\r")
        await watching.submit("hello")

        await shows(watching, "said hello")


async def test_deleted_text_is_no_draft_for_the_next_gateway_either(directory: Path) -> None:
    terminal = await start(directory, sys.executable, "-c", PROGRAM)
    first = await watching_of(terminal, directory)
    watch_task = asyncio.create_task(first.run())
    await eventually(lambda: first.program.activity == "idle")
    await first.type(b"xy")
    await shows(first, "> xy")
    await first.save()
    watch_task.cancel()
    await asyncio.wait([watch_task])
    client = await TerminalClient.attach(terminal.path, key="the-key")
    assert client is not None

    second = await watching_of(client, directory)
    watch_task = asyncio.create_task(second.run())
    assert second.draft == "xy"
    await second.type(b"\x7f\x7f")

    await eventually(second.check_composer)
    assert (second.draft, second.has_draft) == ("", False)
    watch_task.cancel()
    await asyncio.wait([watch_task])
    await end(client, terminal)


async def test_a_program_that_has_started_a_process_is_not_idle(directory: Path) -> None:
    """A shell command that a person runs in it is work, and no report says so."""
    async with watched(directory) as watching:
        await watching.type(b"/run\r")
        await shows(watching, "running")

        with pytest.raises(CallRefused, match="not known to be idle"):
            await watching.submit("hello")
        assert watching.has_new_process()


async def test_a_draft_of_several_lines_is_named_and_deleted(directory: Path) -> None:
    async with watched(directory) as watching:
        await watching.type(watching.pasted("one\ntwo"), is_pasted=True)
        await shows(watching, "  two")
        with pytest.raises(CallRefused, match="shows “one two”"):
            await watching.submit("hello")

        assert await watching.submit("hello", clear=True) == "one\ntwo"

        await shows(watching, "said hello")


async def test_a_text_that_the_program_has_lost_is_typed_again(directory: Path) -> None:
    """Gemini replaces its composer a moment after it has resumed a conversation."""
    async with watched(directory, "wipes") as watching:
        await watching.submit("hello")

        await shows(watching, "said hello")
