"""Two hosts on one Redis, as processes: a terminal is one host's until its time is over."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from remoteclaw.config.home import Home
from remoteclaw.fleet import keys
from tests.support.command import REMOTECLAW, Process, start_program
from tests.support.doors import Door, own_token
from tests.support.processes import everything, is_alive, marked_processes
from tests.support.stack import Stack
from tests.support.talk import agent_of, said_in
from tests.support.terminal_kills import TALK, Walk, Watchman
from tests.support.waiting import eventually

#: The shortest time that a terminal's lease may have.
HOLD_S = 5.0


class Host(Walk):
    """All that runs on one host, each in a process of its own."""

    sweeper: Process

    async def start(self) -> None:
        """Start worker, gateway and sweep."""
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
        """Return all of them, agents and their holders too."""
        assert self.worker is not None
        assert self.gateway is not None
        roots = (self.worker, self.gateway, self.sweeper)
        ours = [pid for root in roots for pid in everything(root.pid)]
        return ours + marked_processes(self.stack.home)

    def signal(self, number: signal.Signals) -> None:
        """Send all of them a signal."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def leave(self) -> None:
        """Kill what is left."""
        self.signal(signal.SIGCONT)
        for process in (self.worker, self.gateway, self.sweeper):
            assert process is not None
            process.kill()
            process.wait()

    async def is_silent(self) -> None:
        """Have so much time pass without a sign of life that its sessions may be others'."""
        client = self.stack.fleet.scripts.client
        async for name in client.scan_iter(match=keys.host(f"*@{self.stack.home.host_id}")):
            await client.delete(name)

    async def held_until(self) -> float:
        """Return until when the session is the terminal's, on Redis' clock."""
        told: Any = await self.stack.fleet.scripts.client.hget(
            keys.state(self.sid), "lease_until_ms"
        )
        return int(told or 0) / 1000


@contextlib.asynccontextmanager
async def host(stack: Stack, directory: Path) -> AsyncIterator[Host]:
    """Have a host running."""
    there = Host(stack, directory)
    await there.start()
    try:
        yield there
    finally:
        await there.leave()


async def opened(there: Host) -> int:
    """Have a terminal open in which something was said; return its program."""
    await there.open()
    await there.is_at("idle")
    await there.type("two\r")
    await there.shows("You said two.")
    (program,) = Watchman(there.directory).programs()
    return program


async def test_a_frozen_host_loses_its_terminal_in_time_and_comes_back_as_nobody(
    stack: Stack, directory: Path
) -> None:
    far_files = directory / "far"
    far_files.mkdir()
    far_stack = Stack(Home(directory / "other").create())
    far_stack.redis, far_stack.fleet = stack.redis, stack.fleet
    os.mkfifo(far_stack.lifeline)
    far_stack.open_lifeline()
    try:
        async with host(stack, directory) as near, host(far_stack, far_files) as far:
            program = await opened(near)
            accepted = await near.write("three")
            near.signal(signal.SIGSTOP)
            until = await near.held_until()
            await near.is_silent()

            outcome = await near.outcome(near.accepted[0])

            assert outcome == "failed"
            assert time.time() >= until, "nobody is lost before"
            record = await near.record()
            assert (record.state, record.reason) == (
                "lost",
                f"its host {stack.home.host_id} was away for too long",
            )
            assert await near.outcome(accepted) == "done"
            assert said_in(far_files)[0]["text"] == "three"
            client = stack.fleet.scripts.client
            await client.hset(keys.state(near.sid), "host", stack.home.host_id)
            far.sid = near.sid
            async with (
                aiohttp.ClientSession() as http,
                Door(far.url, http).connected(own_token(far_stack)) as operator,
            ):
                await operator.call("terminals.open", {"session": near.sid})
            await far.is_at("idle")
            assert (await near.record()).host == far_stack.home.host_id
            near.signal(signal.SIGCONT)

            await eventually(lambda: not is_alive(program))
            assert (await near.record()).state == "live", "a stale gateway writes nothing"
            again = await near.write("four")
            await far.ask("DELETE", f"/{near.sid}")
            assert await near.outcome(again) == "done"
            assert [each["text"] for each in said_in(directory)] == ["two", "You said two."]
            assert len(await near.answers(accepted)) == len(await near.answers(again)) == 1
    finally:
        await far_stack.end_processes()


async def test_without_redis_a_terminal_ends_before_its_session_is_free(
    stack: Stack, directory: Path
) -> None:
    """A real program in a real holder; afterwards what waited is answered, once."""
    async with host(stack, directory) as near:
        with Watchman(directory).watching() as watchman:
            program = await opened(near)
            accepted = await near.write("three")
            until = await near.held_until()
            stack.redis.kill()
            await eventually(lambda: not is_alive(program))
            assert time.time() < until + HOLD_S / 20, "a renewal may have been on its way"
            await asyncio.to_thread(stack.redis.start)

            assert await near.outcome(accepted) == "done"

        await near.check("two", "three")
        assert (await near.record()).state == "parked"
        assert len(await near.answers(accepted)) == 1
        assert not watchman.doubled
