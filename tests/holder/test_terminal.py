"""A terminal's holder: the program works on, whoever comes, goes, dies or is slow."""

import asyncio
import base64
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from remoteclaw.clock import boottime
from remoteclaw.holder.terminal_client import (
    Ended,
    LaunchFailed,
    Output,
    Replaced,
    TerminalClient,
    TerminalLaunch,
    beat_terminal,
    end_terminal,
)
from tests.support.waiting import HANG_S

FAR = 3600.0


def launch(directory: Path, *argv: str, **more: object) -> TerminalLaunch:
    run_dir = directory / "run"
    run_dir.mkdir(mode=0o700, exist_ok=True)
    values: dict[str, object] = {
        "argv": argv,
        "env": {"PATH": os.environ["PATH"]},
        "cwd": str(directory),
        "cwd_fd": None,
        "run_dir": run_dir,
        "key": "the-key",
        "ended": directory / "ended",
    }
    return TerminalLaunch(**(values | more))  # type: ignore[arg-type]


async def start(directory: Path, *argv: str, **more: object) -> TerminalClient:
    return await TerminalClient.start(launch(directory, *argv, **more), deadline=boottime() + FAR)


async def sh(directory: Path, script: str, **more: object) -> TerminalClient:
    return await start(directory, "/bin/sh", "-c", script, **more)


class Reader:
    """What one client has seen."""

    def __init__(self, terminal: TerminalClient) -> None:
        self.terminal = terminal
        self.seen = terminal.output
        self.end = terminal.output_offset + len(terminal.output)

    async def until(self, wanted: bytes) -> bytes:
        """Read until something has been written; return all that was."""
        async with asyncio.timeout(HANG_S):
            while wanted not in self.seen:
                event = await self.terminal.read()
                assert isinstance(event, Output), (event, self.seen[-500:])
                assert event.offset == self.end
                self.seen += event.data
                self.end += len(event.data)
        return self.seen

    async def rest(self) -> Ended | Replaced:
        """Read until the end."""
        async with asyncio.timeout(HANG_S):
            while isinstance(event := await self.terminal.read(), Output):
                self.seen += event.data
        return event


def ended(directory: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((directory / "ended").read_text())
    return found


async def test_a_program_has_a_terminal_of_its_own(directory: Path) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM $COLORTERM $LANG; tty"
    terminal = await sh(directory, script + "; exit 3", cols=100, rows=40)
    reader = Reader(terminal)

    assert await reader.rest() == Ended(3)
    assert reader.seen.startswith(b"40 100\r\nxterm-256color truecolor C.UTF-8\r\n/dev/pts/")
    remains = ended(directory)
    assert (remains["status"], remains["reason"]) == (3, "exited")
    assert base64.b64decode(str(remains["tail"])) == reader.seen
    assert remains["offset"] == len(reader.seen)
    assert (directory / "ended").stat().st_mode & 0o777 == 0o600
    assert not (directory / "run").exists()


async def test_what_is_written_while_nobody_looks_is_there_for_the_next(directory: Path) -> None:
    first = await sh(directory, "echo one; read x; echo two; read y; echo three; cat")
    await Reader(first).until(b"one\r\n")
    await first.write(b"\n")
    first.close()

    second = await TerminalClient.attach(first.path, key="the-key")
    assert second is not None
    seen = await Reader(second).until(b"two\r\n")
    await second.write(b"\n")
    third = await TerminalClient.attach(first.path, key="the-key")

    assert third is not None
    assert third.pid == first.pid
    assert (await Reader(third).until(b"three\r\n")).startswith(seen)
    assert await Reader(second).rest() == Replaced()
    assert await end_terminal(first.path, key="the-key")
    assert await Reader(third).rest() == Ended(-signal.SIGTERM)
    assert ended(directory)["reason"] == "asked"


async def test_a_program_that_cannot_be_executed(directory: Path) -> None:
    with pytest.raises(LaunchFailed, match="No such file"):
        await start(directory, "/nonexistent/claude")


async def test_the_directory_is_the_one_that_was_opened(directory: Path) -> None:
    """Its path may lead elsewhere by now."""
    meant = directory / "meant"
    meant.mkdir()
    descriptor = os.open(meant, os.O_RDONLY)
    meant.rename(directory / "moved")

    terminal = await sh(directory, "pwd -P; echo $PWD", cwd=str(meant), cwd_fd=descriptor)
    os.close(descriptor)

    reader = Reader(terminal)
    await reader.rest()
    assert reader.seen.splitlines()[0] == os.fsencode(directory / "moved")


async def test_a_window_that_changes_its_size_is_told_to_the_program(directory: Path) -> None:
    script = (
        "import os, signal\n"
        "def say(*_): print(*os.get_terminal_size(), flush=True)\n"
        "signal.signal(signal.SIGWINCH, say)\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()"
    )
    terminal = await start(directory, sys.executable, "-S", "-c", script)
    reader = Reader(terminal)
    await reader.until(b"ready\r\n")

    await terminal.resize(90, 30)
    await reader.until(b"90 30\r\n")
    await terminal.resize(90, 30)  # a client that wants everything painted again

    await reader.until(b"90 30\r\n90 30\r\n")
    assert await end_terminal(terminal.path, key="the-key")
    await reader.rest()


async def test_the_terminal_ends_when_beats_stop(directory: Path) -> None:
    terminal = await sh(directory, "cat")
    assert await beat_terminal(terminal.path, key="the-key", deadline=boottime() + FAR)

    terminal.beat(boottime() + 0.2)

    assert isinstance(await Reader(terminal).rest(), Ended)
    assert ended(directory)["reason"] == "deadline"
