"""Servers of each kind that is installed, and clients that wait."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis import Redis

from remoteclaw.fleet.connection import open_redis
from remoteclaw.up.embedded import ServerProgram
from tests.support.servers import Server, installed_servers, running_server

#: For a test that kills its server, or starts it with options of its own.
each_server = pytest.mark.parametrize("program", installed_servers(), ids=lambda each: each.name)


def blocked(admin: Redis, command: str) -> Callable[[], list[str]]:
    """Return a look at the ids of the clients that wait in a command."""

    def look() -> list[str]:
        clients: Any = admin.client_list()
        return [c["id"] for c in clients if c["cmd"] == command and "b" in c["flags"]]

    return look


@contextlib.asynccontextmanager
async def server_and_client(
    program: ServerProgram, directory: Path, *options: str
) -> AsyncIterator[tuple[Server, redis.asyncio.Redis]]:
    """Have a server running that the test may kill, and a client as the fleet opens it."""
    with running_server(program, directory, *options) as server:
        async with open_redis(server.url) as client:
            yield server, client


async def restart(server: Server, client: redis.asyncio.Redis) -> None:
    """Kill a server and start it again; the client notices."""
    server.kill()
    await asyncio.to_thread(server.start)
    await client.connection_pool.disconnect()
