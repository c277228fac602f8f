"""How many agents a host keeps warm, and which of them make room."""

import asyncio
import fcntl
import os

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.config.load import load_config
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.session.drain import Drain
from tests.support.processes import is_alive
from tests.support.stack import Stack, said
from tests.support.waiting import eventually


async def drain(stack: Stack, accepted: Accepted) -> None:
    config = load_config(stack.home.config_file, {})
    await Drain(stack.fleet, config, stack.home, Hooks()).run(accepted.session.sid)


async def agent_of(stack: Stack, accepted: Accepted) -> int:
    return int((await stack.reached(accepted, "spawned")).rpartition(" ")[2])


async def answered(stack: Stack, sender: str, text: str = "hello") -> int:
    """Have somebody answered; return the process id of the agent, which is left warm."""
    accepted = await stack.append(text, from_=sender)
    await drain(stack, accepted)
    return await agent_of(stack, accepted)


async def test_the_agent_that_has_waited_longest_makes_room(stack: Stack) -> None:
    stack.configure(max_agents=2)
    alice, bob = await answered(stack, "alice"), await answered(stack, "bob")
    assert await answered(stack, "alice") == alice  # so Bob's has waited longer

    carol = await answered(stack, "carol")

    assert [is_alive(pid) for pid in (alice, bob, carol)] == [True, False, True]


async def test_whoever_lost_the_agent_goes_on_with_another(stack: Stack) -> None:
    stack.configure(max_agents=1)
    first = await answered(stack, "alice")
    await answered(stack, "bob")

    accepted = await stack.append("memory")
    await drain(stack, accepted)

    assert "- hello" in said(await stack.outcome(accepted))
    assert await agent_of(stack, accepted) != first


async def test_an_agent_at_work_is_never_ended_for_another(stack: Stack) -> None:
    stack.configure(max_agents=1)
    working = await stack.append("slow")
    task = asyncio.create_task(drain(stack, working))
    await stack.reached(working, "output")

    bob = await answered(stack, "bob")

    assert is_alive(await agent_of(stack, working))
    assert is_alive(bob)
    await stack.fleet.sessions.stop(working.session.sid)
    await task


async def test_too_little_free_memory_leaves_nothing_warm(stack: Stack) -> None:
    stack.configure(reserve_mb=1_000_000_000)
    alice = await answered(stack, "alice")

    bob = await answered(stack, "bob")

    await eventually(lambda: not is_alive(alice))
    assert is_alive(bob)  # there was nobody for whom it had to go


async def test_what_dead_holders_left_is_no_agent(stack: Stack) -> None:
    stack.configure(max_agents=2)
    for number in range(5):
        left = stack.home.runs / f"dead-{number}"
        left.mkdir()
        os.utime(left, (1, 1))
    alice = await answered(stack, "alice")

    await answered(stack, "bob")

    assert is_alive(alice)


async def test_a_worker_that_froze_while_it_made_room_holds_up_nobody(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.holder.runs.LOCK_S", 0.1)
    with (stack.home.runs.parent / "room.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        assert is_alive(await answered(stack, "alice"))
