"""An unfit Redis is refused at the start, by name and with the reason."""

import asyncio
import contextlib
import itertools
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import redis

from remoteclaw.errors import PerhapsSent, RedisRefused, RedisUnavailable, RedisUnfit
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.connection import open_redis
from remoteclaw.fleet.fitness import check_fitness, unfit_reason
from remoteclaw.up.embedded import ServerProgram
from tests.support.servers import installed_servers, running_server
from tests.support.stack import message
from tests.support.waiting import eventually

PROGRAM = installed_servers()[0]


FIT = {"redis_version": "7.4.0", "role": "master", "aof_enabled": 1}


@pytest.mark.parametrize(
    ("differs", "why"),
    [
        ({"aof_enabled": 0}, "append-only file is off.* `appendonly yes`"),
        ({"maxmemory_policy": "allkeys-lru"}, "allkeys-lru loses.* `maxmemory-policy noeviction`"),
        ({"cluster_enabled": 1}, "runs in Cluster mode"),
        ({"role": "slave"}, "is a replica"),
        ({"redis_version": "6.0.16"}, r"version 6\.0\.16, and RemoteClaw needs 6\.2"),
    ],
)
def test_a_server_that_loses_messages_is_unfit(differs: dict[str, object], why: str) -> None:
    assert unfit_reason(FIT) is None
    assert re.search(why, unfit_reason({**FIT, **differs}) or "")


async def test_an_unfit_server_is_reported_with_its_problem_and_setting(directory: Path) -> None:
    with running_server(PROGRAM, directory) as server:
        client: Any = open_redis(server.url)
        for setting, usual, why in (
            ("appendfsync", "everysec", "a power failure loses messages: set `appendfsync every"),
            ("appendonly", "yes", f"The Redis at {server.url} can't be used: its append-only"),
        ):
            await client.config_set(setting, "no")
            with pytest.raises(RedisUnfit, match=why):
                await check_fitness(client, server.url)
            await client.config_set(setting, usual)
        await client.aclose()


@pytest.mark.parametrize("login", ["", ":wrong@"])
async def test_a_refused_login_is_reported_without_its_password(
    directory: Path, login: str
) -> None:
    with running_server(PROGRAM, directory) as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as admin:
            admin.config_set("requirepass", "secret")
        url = f"unix://{login}{server.socket}"
        client = open_redis(url)
        with pytest.raises(RedisUnfit, match="also its user and password") as error:
            await check_fitness(client, url)
        await client.aclose()
        assert ":wrong@" not in str(error.value)


async def test_a_redis_user_without_permission_for_scripts_is_refused(directory: Path) -> None:
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


async def test_a_redis_that_does_not_exist_is_reported_as_unreachable(directory: Path) -> None:
    url = f"unix://{directory}/nobody"
    client = open_redis(url)

    with pytest.raises(RedisUnavailable, match=r"can't be reached .*: start it, or correct"):
        await check_fitness(client, url)


async def test_a_redis_that_answers_only_its_own_computer_is_reported_with_its_setting() -> None:
    with socket.create_server(("127.0.0.2", 0)) as listening:
        port = listening.getsockname()[1]
    url = f"redis://127.0.0.2:{port}"
    client = open_redis(url)
    with pytest.raises(RedisUnavailable, match=r"let it listen at that address \(`bind`\)"):
        await check_fitness(client, url)

    async def deny(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-DENIED Redis is running in protected mode because ...\r\n")
        writer.close()

    async with await asyncio.start_server(deny, "127.0.0.2", port):
        with pytest.raises(RedisUnfit, match=r"answers only its own computer.* `requirepass`"):
            await check_fitness(client, url)
    await client.aclose()


async def test_a_fit_server_is_accepted(directory: Path) -> None:
    with running_server(PROGRAM, directory) as server:
        client = open_redis(server.url)
        await check_fitness(client, server.url)
        await client.aclose()


@pytest.mark.parametrize("program", installed_servers(), ids=lambda program: program.name)
async def test_a_full_server_refuses_new_messages_and_finishes_accepted_ones(
    program: ServerProgram, directory: Path
) -> None:
    with running_server(program, directory, "--maxmemory", "20mb") as server:
        fleet = Fleet.open(server.url)
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
async def test_a_full_disk_is_reported_until_it_has_space_again(
    program: ServerProgram, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.turns.inbound.APPEND_S", 0.5)
    with running_server(program, directory, "--appendfsync", "everysec") as server:
        fleet = Fleet.open(server.url)
        client = fleet.scripts.client
        with server.no_space():
            with contextlib.suppress(redis.ResponseError):
                await client.set("first", "is in memory")
            await eventually(lambda: is_refused(client))
            assert "can't write to its disk" in await eventually(lambda: refusal(fleet))
            with pytest.raises(RedisRefused, match="can't write to its disk"):
                await check_fitness(client, server.url)

        await eventually(lambda: is_writable(client))
        await check_fitness(client, server.url)
        await fleet.inbound.append(message("hello"), agent="main")
        await fleet.aclose()


async def refusal(fleet: Fleet) -> str:
    """Return why a message is refused; an empty text if Redis did not answer in time."""
    try:
        await fleet.inbound.append(message("hello"), agent="main")
    except PerhapsSent:
        return ""
    except RedisRefused as error:
        return str(error)
    return "it was accepted"


async def is_writable(client: redis.asyncio.Redis) -> bool:
    with contextlib.suppress(redis.ResponseError):
        await client.set("probe", "1")
        return True
    return False


async def is_refused(client: redis.asyncio.Redis) -> bool:
    return not await is_writable(client)


@pytest.mark.parametrize("program", installed_servers(), ids=lambda program: program.name)
async def test_full_memory_is_refused_at_the_start_only_to_programs_that_need_room(
    program: ServerProgram, directory: Path
) -> None:
    with running_server(program, directory) as server:
        fleet = Fleet.open(server.url)
        client = fleet.scripts.client
        await client.config_set("maxmemory", 1)

        await check_fitness(client, server.url)  # a program that only reads, or makes room
        with pytest.raises(RedisRefused, match=r"no memory left .*`remoteclaw replies list` shows"):
            await check_fitness(client, server.url, needs_room=True)
        memory = await fleet.scripts.memory()
        assert memory.is_full
        assert memory.problem is not None
        assert "% of 1 bytes in use" in memory.problem
        await fleet.aclose()


# -- memory limits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "configured", "limit"),
    [(64, 0, 64), (64, 32, 32), (64, 128, 64), (0, 32, 32)],
)
async def test_the_lowest_memory_limit_counts(
    directory: Path, own: int, configured: int, limit: int
) -> None:
    with running_server(PROGRAM, directory, "--maxmemory", f"{own}mb") as server:
        fleet = Fleet.open(server.url, memory_limit=configured * 1024 * 1024)
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


async def test_a_server_without_a_limit_may_use_half_of_the_machines_memory(
    directory: Path,
) -> None:
    with running_server(PROGRAM, directory, "--maxmemory", "0") as server:
        fleet = Fleet.open(server.url)

        memory = await fleet.scripts.memory()

        machine = (await fleet.scripts.client.info("memory"))["total_system_memory"]
        assert (memory.limit, memory.own_limit) == (machine // 2, 0)
        assert not memory.is_full
        await fleet.aclose()
