"""Servers of each installed kind, and their blocked clients."""

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

#: For a test that kills its server, or starts it with special options.
each_server = pytest.mark.parametrize("program", installed_servers(), ids=lambda each: each.name)


def blocked(admin: Redis, command: str) -> Callable[[], list[str]]:
    """Return a function that returns the ids of the clients that are blocked in a command."""

    def ids() -> list[str]:
        clients: Any = admin.client_list()
        return [c["id"] for c in clients if c["cmd"] == command and "b" in c["flags"]]

    return ids


@contextlib.asynccontextmanager
async def server_and_client(
    program: ServerProgram, directory: Path, *options: str
) -> AsyncIterator[tuple[Server, redis.asyncio.Redis]]:
    """Run a server that the test may kill, and open a client as the fleet does."""
    with running_server(program, directory, *options) as server:
        async with open_redis(server.url) as client:
            yield server, client


async def restart(server: Server, client: redis.asyncio.Redis) -> None:
    """Kill a server and start it again; close the client's connections."""
    server.kill()
    await asyncio.to_thread(server.start)
    await client.connection_pool.disconnect()
