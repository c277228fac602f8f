"""Hosts as processes on one Redis: a host keeps its terminal until its lease has expired."""

import asyncio
import signal
import time
from pathlib import Path

import aiohttp

from remoteclaw.fleet import keys
from tests.support.conversation_agent import said_in
from tests.support.doors import Door, own_token
from tests.support.processes import is_alive
from tests.support.stack import Stack
from tests.support.terminal_hosts import HOLD_S, host, opened, two_hosts
from tests.support.terminal_kills import Watchman
from tests.support.waiting import eventually


async def test_a_frozen_host_loses_its_terminal_and_writes_nothing_after_it_resumes(
    stack: Stack, directory: Path
) -> None:
    async with two_hosts(stack, directory) as (near, far):
        far_files, far_stack = far.directory, far.stack
        program = await opened(near)
        accepted = await near.write("three")
        near.signal(signal.SIGSTOP)
        until = await near.held_until()
        await near.is_silent()

        outcome = await near.outcome(near.accepted[0])

        assert outcome == "failed"
        assert time.time() >= until, "no terminal is lost before its lease has expired"
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
        last = await near.write("four")
        await far.ask("DELETE", f"/{near.sid}")
        assert await near.outcome(last) == "done"
        assert [each["text"] for each in said_in(directory)] == ["two", "You said two."]
        assert len(await near.answers(accepted)) == len(await near.answers(last)) == 1


async def test_without_redis_a_terminal_ends_by_the_time_its_lease_expires(
    stack: Stack, directory: Path
) -> None:
    """A real program in a real holder; afterwards, the waiting message is answered once."""
    async with host(stack, directory) as near:
        with Watchman(directory).watching() as watchman:
            program = await opened(near)
            accepted = await near.write("three")
            until = await near.held_until()
            stack.redis.kill()
            await eventually(lambda: not is_alive(program))
            assert time.time() < until + HOLD_S / 20, "plus the time of a renewal that was sent"
            await asyncio.to_thread(stack.redis.start)

            assert await near.outcome(accepted) == "done"

        await near.check("two", "three")
        assert (await near.record()).state == "parked"
        assert len(await near.answers(accepted)) == 1
        assert not watchman.doubled
