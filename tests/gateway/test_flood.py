"""A stranger's agent that does all it can to fill Redis, and what the others notice of it."""

import asyncio
from pathlib import Path
from typing import Any

from remoteclaw.errors import MessageRefused, RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.messages import MAX_TEXT_BYTES
from tests.support.doors import Calling, Door, calling, gateway_process
from tests.support.stack import Stack

STRANGER: dict[str, Any] = {"provider": "telegram", "from_": "666", "channel_id": "666"}
CHATS = [f"telegram:{number}" for number in range(20)]
MEMORY = 64 * 1024 * 1024


async def use_every_tool(door: Door, agent: Calling) -> set[str]:
    """Have an agent call what stores something until nothing of it is done; return the refusals."""
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


async def write(stack: Stack) -> None:
    """Have the stranger write until no message is taken."""
    while True:
        try:
            await stack.append("x" * (MAX_TEXT_BYTES - 100), **STRANGER)
        except (MessageRefused, RedisRefused):
            return


async def send_files(stack: Stack, sid: str) -> None:
    """Have the stranger's files stored until none is taken."""
    while True:
        try:
            await stack.fleet.blobs.put(sid, "large", bytes(5 * 1024 * 1024))
        except RedisRefused:
            return


async def test_the_owner_is_answered_whatever_a_stranger_s_turns_do(
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
                await agent.lease.publish(0, {"text": "x" * 4000})
                await agent.finish()
        await send_files(stack, agent.lease.sid)
        async with calling(stack, **STRANGER) as agent:
            await write(stack)
            await use_every_tool(door, agent)
        return refusals

    async with gateway_process(stack) as (door, _):
        attacking = asyncio.create_task(attack())
        answers = 0
        while not attacking.done():
            assert "You wrote 5 characters" in await stack.ask("hello")
            answers += 1
        told = await attacking

    assert answers > 1
    assert "You wrote 5 characters" in await stack.ask("hello")
    assert worker.poll() is None
    info = await client.info("memory")
    assert info["used_memory"] < 0.8 * MEMORY
    assert any("the tools of this turn would have sent" in why for why in told[0])
    assert any("the turns of this chat within an hour" in why for why in told[3])
    assert await client.exists(keys.reply_stream("telegram", "default"))
