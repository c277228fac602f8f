"""Each kind of Redis server that people have: one turn by a stock worker, from append to reply.

The worker's user has the documented rights only. All other tests run on the servers of
`installed_servers()`.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import RedisUnfit
from remoteclaw.fleet.connection import open_redis
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.fleet.rights import acl_setuser
from tests.support.servers import installed_servers, running_server
from tests.support.stack import running_stack

SERVERS = installed_servers(every=True)
KINDS = ("Redis 6", "Redis 7", "Redis 8", "Valkey 8", "Valkey 9")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_runs_on_each_kind_of_redis(
    kind: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = next((each for each in SERVERS if each.name.startswith(f"{kind}.")), None)
    if program is None:
        pytest.skip(f"no {kind} here: name its program in REMOTECLAW_TEST_MORE_SERVERS")
    async with running_stack(home, monkeypatch, program=program) as stack:
        admin: Any = stack.fleet.scripts.client
        await admin.execute_command(*acl_setuser("secret").split())
        url = f"unix://remoteclaw:secret@{stack.redis.socket}"
        await check_fitness(stack.open_at(url).scripts.client, url, needs_room=True)
        stack.configure(redis_url=url)
        await stack.start_worker()

        assert "demo agent" in await stack.ask("hello")

        assert await stack.fleet.replies.waiting("test", "default") == 1


# -- servers that can't be used -------------------------------------------------------------------


async def test_a_node_of_a_cluster_is_refused(directory: Path) -> None:
    with running_server(SERVERS[0], directory, "--cluster-enabled", "yes") as server:
        client = open_redis(server.url)
        with pytest.raises(RedisUnfit, match="it runs in Cluster mode: give RemoteClaw one prim"):
            await check_fitness(client, server.url)
        await client.aclose()


@pytest.mark.parametrize(
    ("name", "info"),
    [
        # What the two say of themselves; neither can be installed from a registry.
        ("KeyDB", "redis_version:6.3.4\r\nredis_mode:standalone\r\n# KeyDB\r\nmvcc_depth:0\r\n"),
        ("Dragonfly", "redis_version:7.4.0\r\ndragonfly_version:df-v1.40.1\r\n"),
    ],
)
async def test_other_servers_that_speak_redis_are_refused_by_name(
    name: str, info: str, directory: Path
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while command := await reader.read(4096):
            is_info = b"INFO" in command
            answered = f"${len(info)}\r\n{info}\r\n" if is_info else "%1\r\n+proto\r\n:3\r\n"
            writer.write(answered.encode())
        writer.close()

    url = f"unix://{directory}/s"
    async with await asyncio.start_unix_server(answer, directory / "s"):
        client = open_redis(url)
        with pytest.raises(RedisUnfit, match=f"it is {name}, .*use Redis or Valkey"):
            await check_fitness(client, url)
        await client.aclose()
