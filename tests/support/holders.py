"""Agents and terminals in holders of their own, and clients of terminals."""

import asyncio
import json
import os
from pathlib import Path

from remoteclaw.clock import boottime
from remoteclaw.holder.client import HolderClient, HolderLaunch
from remoteclaw.holder.terminal_client import (
    Replaced,
    TerminalClient,
    TerminalEnded,
    TerminalOutput,
    end_terminal,
)
from remoteclaw.holder.terminal_launch import TerminalLaunch
from tests.support.waiting import HANG_S, eventually

FAR = 3600.0
KEY = "the-key"
#: A program with a child in a session of its own, like agents' shells, and a grandchild in another.
TREE = "setsid sh -c 'setsid sleep 1001 & exec sleep 1002' & echo ready; exec sleep 1003"


async def parked_agent(run_dir: Path) -> HolderClient:
    """Return an agent that is parked."""
    run_dir.mkdir(mode=0o700)
    env = {"PATH": os.environ["PATH"]}
    held = HolderLaunch(argv=["/bin/cat"], env=env, cwd="/", run_dir=run_dir, key=KEY)
    agent = await HolderClient.start(held, epoch=1, deadline=boottime() + FAR)
    assert await agent.park(epoch=1, warm_s=FAR, state=b"")
    return agent


def launch(directory: Path, *argv: str, **more: object) -> TerminalLaunch:
    run_dir = directory / "run"
    values: dict[str, object] = {
        "argv": argv,
        "env": {"PATH": os.environ["PATH"]},
        "cwd": str(directory),
        "cwd_fd": None,
        "run_dir": run_dir,
        "key": KEY,
        "ended": directory / "ended",
    }
    values |= more
    Path(str(values["run_dir"])).mkdir(mode=0o700, exist_ok=True)
    return TerminalLaunch(**values)  # type: ignore[arg-type]


async def start(directory: Path, *argv: str, **more: object) -> TerminalClient:
    return await TerminalClient.start(launch(directory, *argv, **more), deadline=boottime() + FAR)


async def sh(directory: Path, script: str, **more: object) -> TerminalClient:
    return await start(directory, "/bin/sh", "-c", script, **more)


async def attach(terminal: TerminalClient) -> TerminalClient:
    found = await TerminalClient.attach(terminal.path, key=KEY)
    assert found is not None, "it is gone, or refuses"
    return found


async def end(*clients: TerminalClient) -> None:
    """End a terminal, and close its clients."""
    assert await end_terminal(clients[0].path, key=KEY)
    for client in clients:
        client.close()


async def remains(directory: Path) -> dict[str, object]:
    """Wait until a terminal has ended; return the content of its file `ended`."""
    await eventually((directory / "ended").exists)
    found: dict[str, object] = json.loads((directory / "ended").read_text())
    return found


class Reader:
    """Reads all output for one client, and fails if there is a gap."""

    def __init__(self, terminal: TerminalClient) -> None:
        self.terminal = terminal
        self.seen = terminal.output
        self.end = terminal.output_offset + len(terminal.output)

    async def until(self, wanted: bytes) -> bytes:
        """Read until the output contains `wanted`; return all of it."""
        async with asyncio.timeout(HANG_S):
            while wanted not in self.seen:
                event = await self.terminal.read()
                assert isinstance(event, TerminalOutput), (event, self.seen[-500:])
                assert event.offset == self.end, "there is a gap"
                self.seen += event.data
                self.end += len(event.data)
        return self.seen

    async def rest(self) -> TerminalEnded | Replaced:
        """Read the rest, and return the event that ends it."""
        async with asyncio.timeout(HANG_S):
            while isinstance(event := await self.terminal.read(), TerminalOutput):
                self.seen += event.data
                self.end = event.offset + len(event.data)
        return event
