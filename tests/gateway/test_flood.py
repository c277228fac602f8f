"""A stranger's agent that tries to fill Redis, and its effect on other people."""

import asyncio
import re
from pathlib import Path
from typing import Any

from remoteclaw.errors import MessageRefused, RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.messages import MAX_TEXT_BYTES
from tests.support.command import run_command
from tests.support.doors import Calling, Door, calling, gateway_process
from tests.support.stack import Stack
from tests.support.waiting import eventually

STRANGER: dict[str, Any] = {"provider": "telegram", "from_": "666", "channel_id": "666"}
CHATS = [f"telegram:{number}" for number in range(20)]
MEMORY = 64 * 1024 * 1024


async def use_every_tool(door: Door, agent: Calling) -> set[str]:
    """Call all tools that store data until each call is refused; return the refusals."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("message_broadcast", {"targets": CHATS, "message": "x" * 100_000}),
        ("message_broadcast", {"targets": CHATS, "message": "x" * 1000}),
        ("message_send_attachment", {"target": "666", "file": "large"}),
        ("message_send", {"target": "666", "message": "x" * 50_000}),
        ("message_thread_reply", {"threadId": "t", "message": "x"}),
        ("sessions_spawn", {"prompt": "x" * 50_000}),
    ]
    refusals: set[str] = set()
    is_done = True
    while is_done:
        is_done = False
        for tool, args in calls:
            answer = await door.invoke(agent.token, tool, args)
            if answer.status == 200:
                is_done = True
            else:
                refusals.add(answer.json["error"]["message"])
    return refusals


async def end(agent: Calling) -> None:
    """End an agent's turn, and release its session to the workers."""
    await agent.finish()
    if not await agent.lease.close():
        await agent.lease.release()


async def write(stack: Stack) -> None:
    """Write as the stranger until no message is accepted."""
    while True:
        try:
            await stack.append("x" * (MAX_TEXT_BYTES - 100), **STRANGER)
        except (MessageRefused, RedisRefused):
            return


async def send_files(stack: Stack, sid: str) -> None:
    """Store files of the stranger until none is accepted."""
    while True:
        try:
            await stack.fleet.blobs.put(sid, "large", bytes(5 * 1024 * 1024))
        except RedisRefused:
            return


async def is_idle(stack: Stack) -> bool:
    return await stack.fleet.sessions.busy(limit=1) == (0, [])


async def command(stack: Stack, *arguments: str) -> str:
    """Run a command as the owner; return its output."""
    done = await asyncio.to_thread(run_command, *arguments, env=stack.env())
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_owner_is_answered_while_a_strangers_agent_floods_redis(
    stack: Stack, directory: Path
) -> None:
    workspace = directory / "work"
    workspace.mkdir()
    (workspace / "large").write_bytes(bytes(2 * 1024 * 1024))
    stack.configure(
        {
            "runtime": "demo",
            "workspace": str(workspace),
            "sends_to": ["*"],
            "tools": {"also_allow": ["*"]},
        },
        channels={"test": {"owners": ["alice"]}, "telegram": {"owners": ["1"]}},
    )
    client = stack.fleet.scripts.client
    await client.config_set("maxmemory", MEMORY)
    worker = await stack.start_worker()

    async def attack() -> list[set[str]]:
        refusals = []
        for number in range(4):
            async with calling(stack, **STRANGER, thread_id=f"t{number}") as agent:
                refusals.append(await use_every_tool(door, agent))
                await end(agent)
        await send_files(stack, agent.lease.sid)
        async with calling(stack, **STRANGER) as agent:
            await write(stack)
            await use_every_tool(door, agent)
            await end(agent)
        return refusals

    async with gateway_process(stack) as (door, _):
        attacking = asyncio.create_task(attack())
        answers = 0
        while not attacking.done():
            assert "You wrote 5 characters" in await stack.ask("hello")
            answers += 1
        refusals_by_turn = await attacking

    assert answers > 1
    assert "You wrote 5 characters" in await stack.ask("hello")
    assert worker.poll() is None
    info = await client.info("memory")
    assert info["used_memory"] < 0.8 * MEMORY
    assert any("the turns of this chat would have sent" in why for why in refusals_by_turn[3])

    await eventually(lambda: is_idle(stack))
    listed = await command(stack, "replies", "list")
    dropped = await command(stack, "replies", "drop", "telegram/default", "--yes")

    assert re.search(r"telegram/default +\d+ +\S+ MB .* by no adapter ", listed)
    assert "main/telegram/default/666:666:" in listed
    assert int(dropped.partition(" ")[0]) > 250
    assert await client.xlen(keys.replies("telegram", "default")) == 0
    assert (await client.info("memory"))["used_memory"] < info["used_memory"] - 4 * 1024 * 1024
