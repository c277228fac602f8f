"""Redis accepts a message without an answer: it counts once, and isn't reported as not sent."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remoteclaw.errors import PerhapsSent, RedisUnavailable
from remoteclaw.fleet import Fleet, keys
from tests.support.servers import Server, installed_servers, running_server
from tests.support.stack import message


@pytest.fixture
def server(directory: Path) -> Iterator[Server]:
    with running_server(installed_servers()[0], directory) as server:
        yield server


@pytest.fixture
async def fleet(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    """A connected fleet with short time limits, on a server that has loaded the scripts."""
    monkeypatch.setattr("remoteclaw.fleet.connection.COMMAND_S", 0.1)
    monkeypatch.setattr("remoteclaw.fleet.turns.inbound.APPEND_S", 0.2)
    fleet = Fleet.open(server.url)
    await fleet.inbound.append(message("before"), agent="main")
    await fleet.scripts.client.flushall()
    yield fleet
    await fleet.aclose()


async def accepted_count(fleet: Fleet) -> int:
    """Return the number of accepted messages."""
    (stream,) = await fleet.scripts.client.keys(keys.inbound("*"))
    return int(await fleet.scripts.client.xlen(stream))


async def test_an_append_without_an_answer_is_reported_as_perhaps_sent(
    server: Server, fleet: Fleet
) -> None:
    hello = message("hello")

    with server.frozen(), pytest.raises(PerhapsSent, match="`remoteclaw sessions show "):
        await fleet.inbound.append(hello, agent="main")

    assert (await fleet.inbound.append(hello, agent="main")).is_duplicate
    assert await accepted_count(fleet) == 1


async def test_an_append_that_reaches_no_server_is_reported_as_not_sent(
    server: Server, fleet: Fleet
) -> None:
    server.kill()
    await fleet.scripts.client.connection_pool.disconnect()

    with pytest.raises(RedisUnavailable) as error:
        await fleet.inbound.append(message("hello"), agent="main")

    assert not isinstance(error.value, PerhapsSent)
