"""Behaviour of Redis and Valkey that their documentation leaves open."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis import Redis, exceptions

from remoteclaw.fleet.connection import open_redis
from remoteclaw.up.embedded import ServerProgram
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.upstream.servers import blocked, each_server, restart, server_and_client

#: A time in the year 2286, in milliseconds: the time of a clock that will be set back.
LATER = 9_999_999_999_999


# -- scripts --------------------------------------------------------------------------------------


async def test_a_failing_script_does_not_undo_its_writes(client: redis.asyncio.Redis) -> None:
    """fleet/scripts: why each checks its fence before it writes anything."""
    await client.set("text", "x")
    script = client.register_script("redis.call('SET', KEYS[1], 1) redis.call('INCR', KEYS[2])")

    with pytest.raises(exceptions.ResponseError):
        await script(keys=["written", "text"])

    assert await client.get("written") == b"1"


@each_server
async def test_a_registered_script_runs_even_if_the_server_has_lost_it(
    program: ServerProgram, directory: Path
) -> None:
    """fleet/connection.py: `Scripts` registers each script only once."""
    async with server_and_client(program, directory) as (server, client):
        script = client.register_script("return 'ran'")
        await script()

        await restart(server, client)
        assert await script() == b"ran"

        await client.script_flush()
        with pytest.raises(exceptions.NoScriptError):
            await client.evalsha(script.sha, 0)
        assert await script() == b"ran"


# -- streams --------------------------------------------------------------------------------------


async def test_stream_ids_grow_even_if_the_clock_is_set_back(client: redis.asyncio.Redis) -> None:
    """fleet/scripts: the order of entries, and stop marks, depend on ids."""
    await client.xadd("stream", {"a": "1"}, id=f"{LATER}-5")

    assert await client.xadd("stream", {"a": "2"}) == f"{LATER}-6".encode()


@each_server
async def test_an_emptied_stream_remembers_its_last_id_after_a_restart(
    program: ServerProgram, directory: Path
) -> None:
    """fleet/scripts: a stop mark stays below later ids; `WAKE` and readers depend on ids, too."""
    async with server_and_client(program, directory) as (server, client):
        for key in ("stream", "rewritten"):
            await client.xadd(key, {"a": "1"}, id=f"{LATER}-1")
            await client.xdel(key, f"{LATER}-1")
        assert await client.exists("stream") == 1
        assert await client.xadd("stream", {"a": "2"}) == f"{LATER}-2".encode()
        await client.xdel("stream", f"{LATER}-2")
        await client.bgrewriteaof()
        await eventually(lambda: rewritten(client))
        await client.xadd("stream", {"a": "3"})
        await client.xdel("stream", f"{LATER}-3")

        await restart(server, client)

        assert await client.xadd("stream", {"a": "4"}) == f"{LATER}-4".encode()
        assert await client.xadd("rewritten", {"a": "2"}) == f"{LATER}-2".encode()


async def rewritten(client: redis.asyncio.Redis) -> bool:
    info = await client.info("persistence")
    pending = info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"]
    return not pending and info["aof_last_bgrewrite_status"] == "ok"


@pytest.mark.parametrize("first", ["taker", "reader"])
@pytest.mark.parametrize("command", ["blmove", "blpop"])
async def test_a_client_blocked_on_a_list_is_served_before_others_can_read_it(
    any_server: Server, client: redis.asyncio.Redis, admin: Redis, command: str, first: str
) -> None:
    """fleet/turns/lease.py: a hint on the queue after its `WAKE` entry found no idle worker."""
    async with open_redis(any_server.url) as taker:

        async def take() -> None:
            if command == "blmove":
                await taker.blmove("queue", "taken", 20)
            else:
                await taker.blpop(["another", "queue"], 20)

        async def read() -> None:
            newest: Any = await client.xrevrange("wake", count=1)
            await client.xread({"wake": newest[0][0] if newest else "0"}, block=20_000)

        both = [(command, take), ("xread", read)]
        for _ in range(5):
            async with asyncio.TaskGroup() as tasks:
                for name, wait in both if first == "taker" else reversed(both):
                    tasks.create_task(wait())
                    await eventually(blocked(admin, name))

                with admin.pipeline(transaction=True) as pipeline:
                    pipeline.rpush("queue", "job")
                    pipeline.xadd("wake", {"sid": "1"}, maxlen=1, approximate=False)
                    pipeline.execute()

                assert admin.llen("queue") == 0


@each_server
async def test_acknowledged_writes_survive_a_kill(program: ServerProgram, directory: Path) -> None:
    """fleet/turns/inbound.py: a message that was accepted is kept, with `appendfsync always`.

    With `everysec` a server postpones writing while the disk is busy, for two seconds at most.
    """
    async with server_and_client(program, directory) as (server, client):
        for number in range(200):
            await client.xadd("stream", {"n": number})

        await restart(server, client)

        assert await client.xlen("stream") == 200
