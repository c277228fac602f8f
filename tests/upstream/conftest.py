"""Fixtures of the tests of RQ and Redis."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis.asyncio
from redis import Redis

from remoteclaw.fleet.connection import open_redis
from remoteclaw.up.embedded import find_server
from tests.support.servers import Server, running_server
from tests.upstream.plain import PlainRq


@pytest.fixture
async def rq(directory: Path) -> AsyncIterator[PlainRq]:
    """A Redis of the test's own; the test starts workers."""
    with running_server(find_server(directory), directory) as server:
        plain = PlainRq(server)
        yield plain
        await plain.end()


@pytest.fixture
def admin(any_server: Server) -> Iterator[Redis]:
    """A second client, which observes the server; the server is empty."""
    with Redis(unix_socket_path=str(any_server.socket)) as client:
        client.flushall()
        yield client


@pytest.fixture
async def client(any_server: Server, admin: Redis) -> AsyncIterator[redis.asyncio.Redis]:
    """A client as the fleet opens it."""
    async with open_redis(any_server.url) as client:
        yield client
