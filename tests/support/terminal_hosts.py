"""Hosts as groups of processes, and tests of a terminal whose host is killed."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from remoteclaw.config.home import Home
from remoteclaw.fleet import keys
from tests.support.command import REMOTECLAW, Process, start_program
from tests.support.conversation_agent import agent_of, said_in
from tests.support.processes import everything, is_killed, marked_processes
from tests.support.stack import Stack
from tests.support.terminal_kills import TALK, Walk, Watchman
from tests.support.waiting import eventually

#: The minimum time of a terminal's lease, in seconds.
HOLD_S = 5.0


class Host(Walk):
    """The processes of one host."""

    sweeper: Process

    async def start(self) -> None:
        """Start a worker, a gateway and a sweeper."""
        self.stack.configure(
            agent_of(self.directory),
            terminals={"hold_s": HOLD_S, "handover_s": 3600, "opens_per_minute": 600},
            lease_s=3.0,
        )
        log = self.stack.home.logs / "sweep.log"
        env = self.stack.env()
        self.sweeper = start_program([TALK, REMOTECLAW, "sweep"], env=env, log=log)
        await asyncio.gather(self.start_worker(), self.start_gateway())

    def processes(self) -> list[int]:
        """Return the ids of all processes, including agents and their holders."""
        assert self.worker is not None
        assert self.gateway is not None
        roots = (self.worker, self.gateway, self.sweeper)
        ours = [pid for root in roots for pid in everything(root.pid)]
        return ours + marked_processes(self.stack.home)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def kill(self) -> None:
        """Kill all processes at once."""
        every = self.processes()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in every:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        await self.leave()
        await eventually(lambda: all(map(is_killed, every)))

    async def leave(self) -> None:
        """Kill the remaining processes."""
        self.signal(signal.SIGCONT)
        for process in (self.worker, self.gateway, self.sweeper):
            assert process is not None
            process.kill()
            process.wait()

    async def is_silent(self) -> None:
        """Move time on until the host counts as lost and other hosts may take its sessions."""
        client = self.stack.fleet.scripts.client
        async for name in client.scan_iter(match=keys.host(f"*@{self.stack.home.host_id}")):
            await client.delete(name)

    async def held_until(self) -> float:
        """Return the end of the terminal's lease, on Redis' clock."""
        told: Any = await self.stack.fleet.scripts.client.hget(
            keys.state(self.sid), "lease_until_ms"
        )
        return int(told or 0) / 1000


@contextlib.asynccontextmanager
async def host(stack: Stack, directory: Path) -> AsyncIterator[Host]:
    """Run a host."""
    there = Host(stack, directory)
    await there.start()
    try:
        yield there
    finally:
        await there.leave()


@contextlib.asynccontextmanager
async def two_hosts(stack: Stack, directory: Path) -> AsyncIterator[tuple[Host, Host]]:
    """Run two hosts, each with files of its own."""
    far_files = directory / "far"
    far_files.mkdir()
    far_stack = Stack(Home(directory / "other").create())
    far_stack.redis, far_stack.fleet = stack.redis, stack.fleet
    os.mkfifo(far_stack.lifeline)
    far_stack.open_lifeline()
    try:
        async with host(stack, directory) as near, host(far_stack, far_files) as far:
            yield near, far
    finally:
        await far_stack.end_processes()


async def opened(there: Host) -> int:
    """Open a terminal and say something in it; return the id of its program."""
    await there.open()
    await there.is_at("idle")
    await there.type("two\r")
    await there.shows("You said two.")
    (program,) = Watchman(there.directory).programs()
    return program


async def killed_host(stack: Stack, directory: Path, *, is_soon_back: bool) -> None:
    """Kill a host while its terminal is working, and start the host again.

    If the host is back soon, its terminal continues. If not, another host takes the session once
    the lease has expired.
    """
    with Watchman(directory).watching() as watchman:
        async with two_hosts(stack, directory) as (near, far):
            await opened(near)
            await near.type("work\r")
            await near.shows("working")
            accepted = await near.write("three")
            until = await near.held_until()
            await near.kill()
            if is_soon_back:
                await near.start()
            else:
                await near.is_silent()
            assert await far.outcome(near.accepted[0]) == "failed"
            record = await near.record()
            if is_soon_back:
                assert (record.state, record.reason) == ("crashed", "killed")
            else:
                assert time.time() >= until, "nobody is lost before"
                assert record.state == "lost"
            assert await near.outcome(accepted) == "done"
            if not is_soon_back:
                await near.start()
            again = await near.write("four")
            assert await near.outcome(again) == "done"
            assert [len(await near.answers(each)) for each in (accepted, again)] == [1, 1]
            here, there = said_in(near.directory), said_in(far.directory)
            asked = [[e["text"] for e in on if e["kind"] == "user"] for on in (here, there)]
            late = ["three", "four"]
            assert asked == (
                [["two", "work", *late], []] if is_soon_back else [["two", "work"], late]
            )
            if is_soon_back:
                await near.check("two", "work", *late)
    assert not watchman.doubled, watchman.doubled[:3]
