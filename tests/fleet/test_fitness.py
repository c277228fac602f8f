"""An unfit Redis is refused at the start, by name and with the reason."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis

from remoteclaw.errors import RedisRefused, RedisUnavailable, RedisUnfit
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.connection import _refusal, open_redis
from remoteclaw.fleet.fitness import check_fitness, unfit_reason
from remoteclaw.up.embedded import ServerProgram
from tests.support.servers import Server, installed_servers, running_server
from tests.support.stack import message
from tests.support.waiting import HANG_S, eventually

PROGRAM = installed_servers()[0]


@contextlib.asynccontextmanager
async def refused(directory: Path, *options: str) -> AsyncIterator[tuple[Server, str]]:
    """Start a server with these options and say why it is refused."""
    with running_server(PROGRAM, directory, *options) as server:
        client = open_redis(server.url)
        with pytest.raises(RedisUnfit) as error:
            await check_fitness(client, server.url)
        await client.aclose()
        assert server.url in str(error.value)
        yield server, str(error.value)


def free_port() -> str:
    """Return a port that nobody listens on; a cluster's bus needs the one 10,000 above, too."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port: int = listener.getsockname()[1]
        if port < 55_000:
            return str(port)


async def test_without_an_append_only_file(directory: Path) -> None:
    async with refused(directory, "--appendonly", "no") as (_, why):
        assert "append-only file is off" in why
        assert "appendonly yes" in why


async def test_with_a_policy_that_evicts(directory: Path) -> None:
    async with refused(directory, "--maxmemory-policy", "allkeys-lru") as (_, why):
        assert "allkeys-lru" in why
        assert "maxmemory-policy noeviction" in why


async def test_with_an_append_only_file_that_is_never_synced(directory: Path) -> None:
    async with refused(directory, "--appendfsync", "no") as (_, why):
        assert "appendfsync everysec" in why


async def test_in_cluster_mode(directory: Path) -> None:
    async with refused(directory, "--cluster-enabled", "yes", "--port", free_port()) as (_, why):
        assert "Cluster" in why


async def test_as_a_replica(directory: Path) -> None:
    async with refused(directory, "--replicaof", "127.0.0.1 1") as (_, why):
        assert "replica" in why


async def test_without_a_password(directory: Path) -> None:
    async with refused_login(directory, "") as why:
        assert "gives no permission" in why


async def test_with_a_wrong_password(directory: Path) -> None:
    async with refused_login(directory, ":wrong@") as why:
        assert "gives no permission" in why
        assert ":wrong@" not in why


@contextlib.asynccontextmanager
async def refused_login(directory: Path, login: str) -> AsyncIterator[str]:
    with running_server(PROGRAM, directory) as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as admin:
            admin.config_set("requirepass", "secret")
        url = f"unix://{login}{server.socket}"
        client = open_redis(url)
        with pytest.raises(RedisUnfit) as error:
            await check_fitness(client, url)
        await client.aclose()
        yield str(error.value)


async def test_without_permission_for_scripts(directory: Path) -> None:
    with running_server(PROGRAM, directory) as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as admin:
            admin.acl_setuser(
                "bot", enabled=True, nopass=True, keys="*", commands=["+@all", "-eval", "-evalsha"]
            )
        url = f"unix://bot:x@{server.socket}"
        client = open_redis(url)

        with pytest.raises(RedisUnfit, match="does not let this user run scripts"):
            await check_fitness(client, url)

        await client.aclose()


def test_a_version_that_is_too_old() -> None:
    why = unfit_reason({"redis_version": "6.0.16", "aof_enabled": 1})

    assert why is not None
    assert "6.0.16" in why
    assert "6.2" in why


async def test_not_there_at_all(directory: Path) -> None:
    url = f"unix://{directory}/nobody"
    client = open_redis(url)

    with pytest.raises(RedisUnavailable, match=r"can't be reached .*: start it, or correct"):
        await check_fitness(client, url)


async def test_a_fit_server_is_taken(directory: Path) -> None:
    with running_server(PROGRAM, directory) as server:
        client = open_redis(server.url)
        await check_fitness(client, server.url)
        await client.aclose()


@pytest.mark.parametrize("program", installed_servers(), ids=lambda program: program.name)
async def test_a_full_server_refuses_what_is_new_and_finishes_what_is_not(
    program: ServerProgram, directory: Path
) -> None:
    with running_server(program, directory, "--maxmemory", "20mb") as server:
        fleet = Fleet.open(server.url, lease_s=30)
        client = fleet.scripts.client
        accepted = await fleet.inbound.append(message("hello"), agent="main")
        for number in itertools.count():
            info = await client.info("memory")
            if info["used_memory"] / info["maxmemory"] > 0.85:
                break
            await client.set(f"ballast-{number}", b"x" * 200_000)

        with pytest.raises(RedisRefused, match="filled four fifths of its memory"):
            await fleet.inbound.append(message("more"), agent="main")
        await client.config_set("maxmemory", 1_000_000)  # it has no room at all

        lease = await fleet.leases.acquire(accepted.session.sid, worker="test", host="here")
        assert lease is not None
        assert await lease.turns.begin([accepted.entry_id])
        await lease.turns.publish(0, {"text": "hi"})
        await lease.turns.finish("done", reply=[{"text": "hi"}], first_index=1)
        assert await lease.close()
        await fleet.aclose()


# -- a server that can't write --------------------------------------------------------------------


@pytest.mark.parametrize("program", installed_servers(), ids=lambda program: program.name)
async def test_a_disk_that_takes_nothing_is_named_within_seconds_and_passes(
    program: ServerProgram, directory: Path
) -> None:
    with running_server(program, directory, "--appendfsync", "everysec") as server:
        fleet = Fleet.open(server.url, lease_s=30)
        client = fleet.scripts.client
        with server.no_space():
            with contextlib.suppress(redis.ResponseError):
                await client.set("first", "is in memory")
            await eventually(lambda: is_refused(client))
            async with asyncio.timeout(HANG_S):
                with pytest.raises(RedisRefused, match=r"to its disk \(File too large\)"):
                    await fleet.inbound.append(message("hello"), agent="main")
            with pytest.raises(RedisRefused, match=r"to its disk \(File too large\)"):
                await check_fitness(client, server.url)

        await eventually(lambda: is_writable(client))
        await check_fitness(client, server.url)
        await fleet.inbound.append(message("hello"), agent="main")
        await fleet.aclose()


async def is_writable(client: redis.asyncio.Redis) -> bool:
    with contextlib.suppress(redis.ResponseError):
        await client.set("probe", "1")
        return True
    return False


async def is_refused(client: redis.asyncio.Redis) -> bool:
    return not await is_writable(client)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "MISCONF Errors writing to the AOF file: No space left on device script: on "
            "@user_script:1.",
            "because its disk is full: free some space",
        ),
        (
            "Error running script (call to f_29eb): @user_script:1: @user_script: 1: -MISCONF "
            "Errors writing to the AOF file: No space left on device",
            "because its disk is full: free some space",
        ),
        (
            "MISCONF Errors writing to the AOF file: Input/output error script: on @user_script:1.",
            "can't write to its disk (Input/output error) and",
        ),
        (
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to "
            "persist to disk.",
            "can't write to its disk and",
        ),
        (
            "Error running script (call to f_29eb): @user_script:1: @user_script: 1: -OOM command "
            "not allowed when used memory > 'maxmemory'.",
            "no memory left",
        ),
    ],
)
def test_what_a_server_says_of_disk_and_memory(text: str, told: str) -> None:
    assert told in _refusal(redis.ResponseError(text))


@pytest.mark.parametrize("program", installed_servers(), ids=lambda program: program.name)
async def test_memory_that_is_full_at_the_start_is_named_to_those_that_need_some(
    program: ServerProgram, directory: Path
) -> None:
    with running_server(program, directory) as server:
        fleet = Fleet.open(server.url, lease_s=30)
        client = fleet.scripts.client
        await client.config_set("maxmemory", 1)

        await check_fitness(client, server.url)  # whoever looks, or makes room
        with pytest.raises(RedisRefused, match=r"no memory left .*`remoteclaw replies list` shows"):
            await check_fitness(client, server.url, needs_room=True)
        memory = await fleet.scripts.memory()
        assert memory.is_full
        assert memory.problem is not None
        assert "% of 1 bytes in use" in memory.problem
        await fleet.aclose()


# -- the limit of its memory ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "configured", "limit"),
    [(64, 0, 64), (64, 32, 32), (64, 128, 64), (0, 32, 32)],
)
@pytest.mark.parametrize("program", installed_servers(), ids=lambda program: program.name)
async def test_the_lowest_limit_of_its_memory_counts(
    program: ServerProgram, directory: Path, own: int, configured: int, limit: int
) -> None:
    with running_server(program, directory, "--maxmemory", f"{own}mb") as server:
        fleet = Fleet.open(server.url, lease_s=30, memory_limit=configured * 1024 * 1024)
        for number in range(28):
            await fleet.scripts.client.set(f"ballast-{number}", b"x" * 1024 * 1024)

        memory = await fleet.scripts.memory()

        assert memory.limit == limit * 1024 * 1024
        assert memory.own_limit == own * 1024 * 1024
        assert memory.is_full == (limit == 32)
        if memory.is_full:
            with pytest.raises(RedisRefused, match="filled four fifths of its memory"):
                await fleet.inbound.append(message("more"), agent="main")
        await fleet.aclose()


async def test_a_server_without_a_limit_is_bounded_by_its_machine(directory: Path) -> None:
    with running_server(PROGRAM, directory, "--maxmemory", "0") as server:
        fleet = Fleet.open(server.url, lease_s=30)

        memory = await fleet.scripts.memory()

        machine = (await fleet.scripts.client.info("memory"))["total_system_memory"]
        assert (memory.limit, memory.own_limit) == (machine // 2, 0)
        assert not memory.is_full
        await fleet.aclose()
