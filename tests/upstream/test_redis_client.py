"""redis-py: lost connections, cancelled commands, and the errors for refusals."""

import asyncio
import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis import Redis, exceptions
from redis.asyncio.connection import DefaultParser

from remoteclaw.fleet.connection import ALLOW_OOM, open_redis
from remoteclaw.up.embedded import ServerProgram, server_command
from tests.support.servers import Server
from tests.support.waiting import HANG_S, eventually
from tests.upstream.servers import blocked, each_server, server_and_client

# -- commands and connections ---------------------------------------------------------------------


async def test_our_client_does_not_resend_a_command_after_a_lost_connection(
    client: redis.asyncio.Redis, admin: Redis
) -> None:
    """fleet/connection.py: `Scripts.call()` is the only place that retries."""
    waiting = asyncio.create_task(take(client))
    (lost,) = await eventually(blocked(admin, "blpop"))

    admin.client_kill_filter(_id=lost)

    with pytest.raises(exceptions.ConnectionError):
        await waiting


async def test_a_client_with_default_options_resends_a_command(
    any_server: Server, admin: Redis
) -> None:
    """fleet/connection.py: why `open_redis` turns redis-py's own retries off."""
    path = str(any_server.socket)
    async with redis.asyncio.Redis(unix_socket_path=path, socket_timeout=None) as default:
        waiting = asyncio.create_task(take(default))
        (lost,) = await eventually(blocked(admin, "blpop"))

        admin.client_kill_filter(_id=lost)

        await eventually(lambda: blocked(admin, "blpop")() not in ([], [lost]))
        admin.rpush("list", "x")
        await waiting


async def test_the_reply_to_a_cancelled_command_does_not_answer_the_next_one(
    client: redis.asyncio.Redis, admin: Redis
) -> None:
    """fleet/connection.py: `asyncio.timeout` cancels commands, and drains are cancelled too."""
    await client.set("key", "its own")
    waiting = asyncio.create_task(take(client))
    await eventually(blocked(admin, "blpop"))

    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    admin.rpush("list", "of another command")

    assert await client.get("key") == b"its own"


def take(client: redis.asyncio.Redis) -> Any:
    """Return a blocking read of a list."""
    return client.blpop(["list"], 20)


async def test_a_cancelled_wait_for_a_message_misses_none(
    client: redis.asyncio.Redis, admin: Redis
) -> None:
    """fleet/turns/outcomes.py: it cancels its wait now and then to poll, and waits again."""
    async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe("channel")
        await eventually(lambda: admin.pubsub_numsub("channel")[0][1] == 1)
        for number in range(5):
            waiting = asyncio.create_task(wait_long(pubsub))
            await asyncio.sleep(0)  # let it begin to wait
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
            admin.publish("channel", str(number))

            async with asyncio.timeout(HANG_S):
                message = await wait_long(pubsub)

            assert message["data"] == b"%d" % number


async def wait_long(pubsub: Any) -> Any:
    """Wait for the next message, and skip the replies to subscriptions."""
    while (message := await pubsub.get_message(timeout=None)) is None:
        pass
    return message


async def test_our_client_sends_only_hello_before_the_first_command(
    client: redis.asyncio.Redis, admin: Redis
) -> None:
    """fleet/connection.py: `driver_info=None` spares two round trips per connection, and
    `redis_connect_func` a second HELLO on a unix socket.
    """
    admin.config_resetstat()

    await client.echo("x")

    stats: Any = admin.info("commandstats")
    calls = {name: each["calls"] for name, each in stats.items() if "config" not in name}
    assert calls == {"cmdstat_hello": 1, "cmdstat_echo": 1}


def test_hiredis_parses_the_replies() -> None:
    """fleet/connection.py: without it, parsing takes half of a turn's own time."""
    assert DefaultParser.__name__ == "_AsyncHiredisParser"


# -- refusals -------------------------------------------------------------------------------------


@each_server
async def test_a_server_that_loads_its_data_reports_it(
    program: ServerProgram, directory: Path
) -> None:
    """fleet/connection.py, fleet/embedded.py: the client waits for it, as for a lost connection."""
    async with server_and_client(program, directory) as (server, client):
        pipeline = client.pipeline(transaction=False)
        for number in range(20_000):
            pipeline.set(str(number), "x")
        await pipeline.execute()
    command = server_command(program, directory, server.socket)
    loading = subprocess.Popen([*command, "--key-load-delay", "100"], stdout=subprocess.DEVNULL)

    async with open_redis(server.url) as client:

        async def reports_loading() -> bool:
            try:
                await client.ping()
            except exceptions.BusyLoadingError:
                return True
            except exceptions.ConnectionError:
                return False  # it does not listen yet
            raise AssertionError("it has loaded its data already")

        try:
            await eventually(reports_loading)
        finally:
            loading.kill()
            loading.wait()


@each_server
async def test_a_replica_refuses_a_script_that_writes_as_read_only(
    program: ServerProgram, directory: Path
) -> None:
    """fleet/connection.py: the client waits for a failover."""
    options = ("--replicaof", "127.0.0.1", "1")
    async with server_and_client(program, directory, *options) as (_, client):
        script = client.register_script("redis.call('SET', KEYS[1], '1')")

        with pytest.raises(exceptions.ResponseError) as error:
            await script(keys=["key"])

        assert names(error.value, exceptions.ReadOnlyError, "READONLY")


@each_server
async def test_a_full_server_refuses_a_script_that_writes_as_out_of_memory(
    program: ServerProgram, directory: Path
) -> None:
    """fleet/connection.py: the person is told that nothing new is accepted."""
    async with server_and_client(program, directory, "--maxmemory", "1kb") as (_, client):
        script = client.register_script("redis.call('SET', KEYS[1], '1')")

        with pytest.raises(exceptions.ResponseError) as error:
            await script(keys=["key"])

        assert names(error.value, exceptions.OutOfMemoryError, "OOM")


def names(error: Exception, kind: type[Exception], text: str) -> bool:
    """Whether an error is of a kind; before Redis 7.0, only its text shows the kind."""
    return isinstance(error, kind) or text in str(error)


@each_server
async def test_a_full_server_runs_a_script_with_the_flag_allow_oom(
    program: ServerProgram, directory: Path
) -> None:
    """fleet/connection.py: only accepting is refused. Redis before 7.0 has no flags."""
    async with server_and_client(program, directory, "--maxmemory", "1kb") as (_, client):
        script = client.register_script(ALLOW_OOM + "return redis.call('SET', KEYS[1], '1')")
        version = (await client.info("server"))["redis_version"]

        if str(version).startswith("6."):
            with pytest.raises(exceptions.ResponseError, match="near '#'"):
                await script(keys=["key"])
        else:
            assert await script(keys=["key"]) == b"OK"


async def test_info_has_everything_that_the_fitness_check_needs(
    client: redis.asyncio.Redis,
) -> None:
    """fleet/connection.py: `check_fitness` reads these."""
    info = await client.info("everything")

    assert [int(part) for part in str(info["redis_version"]).split(".")[:2]] >= [6, 2]
    assert (info["role"], info["maxmemory_policy"]) == ("master", "noeviction")
    assert (info["cluster_enabled"], info["aof_enabled"]) == (0, 1)
