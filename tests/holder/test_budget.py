"""The limits of warm agents on a host, and which agent is ended first."""

import asyncio
import fcntl
import os

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.config.load import load_config
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.session.drain import Drain
from tests.support.processes import is_alive
from tests.support.stack import Stack, said
from tests.support.waiting import eventually


async def drain(stack: Stack, accepted: Accepted) -> None:
    config = load_config(stack.home.config_file, {})
    await Drain(stack.fleet, config, stack.home, Hooks()).run(accepted.session.sid)


async def agent_of(stack: Stack, accepted: Accepted) -> int:
    return int((await stack.reached(accepted, "spawned")).rpartition(" ")[2])


async def answer(stack: Stack, sender: str, text: str = "hello") -> int:
    """Answer a message; return the process id of the agent, which stays warm."""
    accepted = await stack.append(text, from_=sender)
    await drain(stack, accepted)
    return await agent_of(stack, accepted)


async def test_the_agent_that_has_been_idle_longest_is_ended_for_another(stack: Stack) -> None:
    stack.configure(max_agents=2)
    alice, bob = await answer(stack, "alice"), await answer(stack, "bob")
    assert await answer(stack, "alice") == alice  # so Bob's has been idle longer

    carol = await answer(stack, "carol")

    assert [is_alive(pid) for pid in (alice, bob, carol)] == [True, False, True]


async def test_a_session_whose_agent_was_ended_continues_with_a_new_one(stack: Stack) -> None:
    stack.configure(max_agents=1)
    first = await answer(stack, "alice")
    await answer(stack, "bob")

    accepted = await stack.append("memory")
    await drain(stack, accepted)

    assert "- hello" in said(await stack.outcome(accepted))
    assert await agent_of(stack, accepted) != first


async def test_an_agent_in_a_turn_is_never_ended_for_another(stack: Stack) -> None:
    stack.configure(max_agents=1)
    working = await stack.append("slow")
    task = asyncio.create_task(drain(stack, working))
    await stack.reached(working, "output")

    bob = await answer(stack, "bob")

    assert is_alive(await agent_of(stack, working))
    assert is_alive(bob)
    await stack.fleet.sessions.stop(working.session.sid)
    await task


async def test_with_too_little_free_memory_no_agent_stays_warm(stack: Stack) -> None:
    stack.configure(reserve_mb=1_000_000_000)
    alice = await answer(stack, "alice")

    bob = await answer(stack, "bob")

    await eventually(lambda: not is_alive(alice))
    assert is_alive(bob)  # it was ended for no other agent


async def test_run_directories_of_dead_holders_do_not_count_as_agents(stack: Stack) -> None:
    stack.configure(max_agents=2)
    for number in range(5):
        run_dir = stack.home.runs / f"dead-{number}"
        run_dir.mkdir()
        os.utime(run_dir, (1, 1))
    alice = await answer(stack, "alice")

    await answer(stack, "bob")

    assert is_alive(alice)


async def test_a_worker_that_freezes_with_the_room_lock_does_not_block_others(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.holder.runs.LOCK_S", 0.1)
    with (stack.home.runs.parent / "room.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        assert is_alive(await answer(stack, "alice"))
