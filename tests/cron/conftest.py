"""Fleets that share one server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoteclaw.fleet import Fleet
from remoteclaw.fleet.connection import Scripts, open_redis
from tests.conftest import shifted
from tests.support.failpoints import Proxy
from tests.support.servers import Server


@pytest.fixture
async def pair(any_server: Server, directory: Path) -> AsyncIterator[tuple[Fleet, Fleet, Proxy]]:
    """Two fleets on one server, the first one behind a proxy."""
    proxy = Proxy(any_server.socket, directory / "proxy")
    await proxy.start()
    fleets = [
        Fleet.open("unix:///nobody", scripts=Scripts(open_redis(url)))
        for url in (proxy.url, any_server.url)
    ]
    await fleets[1].scripts.client.flushall()
    yield fleets[0], fleets[1], proxy
    for fleet in fleets:
        await fleet.aclose()
    await proxy.stop()


@pytest.fixture
async def four(any_server: Server) -> AsyncIterator[list[Fleet]]:
    """Four fleets on one empty server, whose clock can be set."""
    fleets = [
        Fleet.open(
            "unix:///nobody",
            scripts=Scripts(open_redis(any_server.url), edit=shifted),
        )
        for _ in range(4)
    ]
    await fleets[0].scripts.client.flushall()
    yield fleets
    for fleet in fleets:
        await fleet.aclose()
