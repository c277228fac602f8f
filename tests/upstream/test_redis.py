"""What Redis and Valkey do: scripts are atomic, ids grow, and what was answered is kept."""

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

#: A time in the year 2286, in milliseconds: what a clock says that will be set back.
LATER = 9_999_999_999_999


# -- scripts --------------------------------------------------------------------------------------


async def test_what_a_script_writes_is_seen_all_or_not_at_all(
    any_server: Server, client: redis.asyncio.Redis
) -> None:
    """fleet/scripts: each step of the protocol is one script."""
    await client.mset({"one": 0, "two": 0})
    seen = set()

    async def write() -> None:
        async with open_redis(any_server.url) as writer:
            script = writer.register_script(
                "redis.call('INCR', KEYS[1]) for i = 1, 20000 do end redis.call('INCR', KEYS[2])"
            )
            for _ in range(300):
                await script(keys=["one", "two"])

    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write())
        while not writing.done():
            seen.add(tuple(await client.mget("one", "two")))

    assert len(seen) > 10
    assert [pair for pair in seen if pair[0] != pair[1]] == []


async def test_a_script_that_fails_keeps_what_it_had_written(client: redis.asyncio.Redis) -> None:
    """fleet/scripts: why each checks its fence before it writes anything."""
    await client.set("text", "x")
    script = client.register_script("redis.call('SET', KEYS[1], 1) redis.call('INCR', KEYS[2])")

    with pytest.raises(exceptions.ResponseError):
        await script(keys=["written", "text"])

    assert await client.get("written") == b"1"


async def test_an_error_reply_of_a_script_arrives_word_for_word(
    client: redis.asyncio.Redis,
) -> None:
    """fleet/connection.py: `LeaseLost` is recognised by how the error begins."""
    script = client.register_script("return redis.error_reply('FENCED epoch 1 is not 2')")

    with pytest.raises(exceptions.ResponseError) as error:
        await script()

    assert str(error.value) == "FENCED epoch 1 is not 2"


@each_server
async def test_a_registered_script_runs_also_when_the_server_has_forgotten_it(
    program: ServerProgram, directory: Path
) -> None:
    """fleet/connection.py: `Scripts` registers each one once, for good."""
    async with server_and_client(program, directory) as (server, client):
        script = client.register_script("return 'ran'")
        await script()

        await restart(server, client)
        assert await script() == b"ran"

        await client.script_flush()
        with pytest.raises(exceptions.NoScriptError):
            await client.evalsha(script.sha, 0)
        assert await script() == b"ran"


async def test_a_field_that_is_missing_is_false_to_a_script_and_keeps_its_place(
    client: redis.asyncio.Redis,
) -> None:
    """fleet/scripts/begin.lua: it unpacks HMGET's answer, where most fields may be missing."""
    await client.hset("hash", mapping={"b": "2"})
    script = client.register_script("""
        local a, b, c = unpack(redis.call('HMGET', KEYS[1], 'a', 'b', 'c'))
        return {tostring(a), b, tostring(c), tostring(redis.call('HGET', KEYS[1], 'a'))}
    """)

    assert await script(keys=["hash"]) == [b"false", b"2", b"false", b"false"]


async def test_a_scripts_milliseconds_are_written_in_full(client: redis.asyncio.Redis) -> None:
    """fleet/scripts: epochs, expiries and the times of steps are numbers of Lua's."""
    script = client.register_script("""
        local sum = tonumber(ARGV[1]) + ARGV[2]
        redis.call('HSET', KEYS[1], 'number', sum, 'text', sum .. ' detail')
        redis.call('ZADD', KEYS[2], sum, 'member')
        return redis.call('HMGET', KEYS[1], 'number', 'text')
    """)

    now, then = 1_795_000_000_001, 1_795_000_030_001
    assert await script(keys=["hash", "set"], args=[now, then - now]) == [
        str(then).encode(),
        f"{then} detail".encode(),
    ]
    assert await client.zscore("set", "member") == then


async def test_writing_to_a_hash_leaves_its_time_to_live_and_persist_takes_it(
    client: redis.asyncio.Redis,
) -> None:
    """fleet/scripts: receipt.lua writes to outcomes that expire; append.lua revives a session."""
    await client.hset("hash", "field", "1")
    await client.pexpire("hash", 60_000)

    await client.hset("hash", "field", "2")
    await client.hsetnx("hash", "delivered", "1")
    left: Any = await client.pttl("hash")
    await client.persist("hash")

    assert 0 < left <= 60_000
    assert await client.pttl("hash") == -1


# -- streams --------------------------------------------------------------------------------------


async def test_ids_grow_also_when_the_clock_is_set_back(client: redis.asyncio.Redis) -> None:
    """fleet/scripts: order of entries, and stop marks, go by id."""
    await client.xadd("stream", {"a": "1"}, id=f"{LATER}-5")

    assert await client.xadd("stream", {"a": "2"}) == f"{LATER}-6".encode()


@each_server
async def test_an_emptied_stream_remembers_its_last_id_over_a_restart(
    program: ServerProgram, directory: Path
) -> None:
    """fleet/scripts: a stop mark stays below what comes later; `WAKE` and readers go by id."""
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


async def test_a_read_gives_what_is_newer_than_an_id_and_waits_only_if_nothing_is(
    client: redis.asyncio.Redis, admin: Redis
) -> None:
    """fleet/replies.py, fleet/lease.py: no entry is missed between two reads."""
    one, two = [await client.xadd("stream", {"a": text}) for text in "12"]

    def read(last: Any) -> Any:
        return client.xread({"other": "0", "stream": last}, block=20_000)

    assert await read("0") == [[b"stream", [(one, {b"a": b"1"}), (two, {b"a": b"2"})]]]
    assert await read(one) == [[b"stream", [(two, {b"a": b"2"})]]]
    waiting = asyncio.create_task(read(two))
    await eventually(blocked(admin, "xread"))
    three = admin.xadd("stream", {"a": "3"})
    assert await waiting == [[b"stream", [(three, {b"a": b"3"})]]]
    assert await client.xread({"stream": three}, block=1) == []


async def test_entries_are_pairs_of_a_list_from_a_script_and_of_a_map_from_a_command(
    client: redis.asyncio.Redis,
) -> None:
    """fleet/lease.py, fleet/inbound.py: an entry is read in either form."""
    entry_id = await client.xadd("stream", {"entry": "x"})
    script = client.register_script("return redis.call('XRANGE', KEYS[1], '-', '+')")

    assert await script(keys=["stream"]) == [[entry_id, [b"entry", b"x"]]]
    assert await client.xrange("stream") == [(entry_id, {b"entry": b"x"})]


async def test_a_stream_of_at_most_one_entry_keeps_the_newest(client: redis.asyncio.Redis) -> None:
    """fleet/wake.py: `WAKE` changes with every hint and never grows."""
    first: Any = await client.xadd("wake", {"sid": "1"}, maxlen=1, approximate=False)
    second = await client.xadd("wake", {"sid": "2"}, maxlen=1, approximate=False)

    assert await client.xrevrange("wake", count=1) == [(second, {b"sid": b"2"})]
    assert await client.xlen("wake") == 1
    assert await client.xread({"wake": first}) == [[b"wake", [(second, {b"sid": b"2"})]]]


@pytest.mark.parametrize("first", ["taker", "reader"])
@pytest.mark.parametrize("command", ["blmove", "blpop"])
async def test_who_is_blocked_on_a_list_is_served_before_anybody_can_look(
    any_server: Server, client: redis.asyncio.Redis, admin: Redis, command: str, first: str
) -> None:
    """fleet/lease.py: a hint still on the queue after its `WAKE` entry found no idle worker."""
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
async def test_what_was_answered_survives_a_kill(program: ServerProgram, directory: Path) -> None:
    """fleet/inbound.py: a message that was accepted is kept, with `appendfsync always`.

    With `everysec` a server postpones writing while the disk is busy, for two seconds at most.
    """
    async with server_and_client(program, directory) as (server, client):
        for number in range(200):
            await client.xadd("stream", {"n": number})

        await restart(server, client)

        assert await client.xlen("stream") == 200
