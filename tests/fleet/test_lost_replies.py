"""A script's effect counts once, also when its reply never arrives and it is sent again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from remoteclaw.fleet import Fleet
from remoteclaw.fleet.lease import Lease
from tests.support.servers import Server
from tests.support.stack import message


class LossyProxy:
    """Passes bytes to a server and back, and loses the reply to the next command if told to."""

    def __init__(self, server: Server, directory: Path) -> None:
        self._server = server
        self.path = directory / "p"
        self.is_losing = False
        self.lost = 0

    async def start(self) -> None:
        self._listener = await asyncio.start_unix_server(self._connected, str(self.path))

    async def stop(self) -> None:
        self._listener.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(str(self._server.socket))

        async def forward() -> None:
            while data := await reader.read(65536):
                up_writer.write(data)
            up_writer.close()

        async def back() -> None:
            while data := await up_reader.read(65536):
                if self.is_losing:
                    self.is_losing = False
                    self.lost += 1
                    break
                writer.write(data)
            writer.close()

        await asyncio.gather(forward(), back(), return_exceptions=True)


@pytest.fixture
async def lossy(any_server: Server, directory: Path) -> AsyncIterator[tuple[Fleet, LossyProxy]]:
    proxy = LossyProxy(any_server, directory)
    await proxy.start()
    fleet = Fleet.open(f"unix://{proxy.path}", lease_s=30)
    await fleet.scripts.client.flushall()
    yield fleet, proxy
    await fleet.aclose()
    await proxy.stop()


async def begun(fleet: Fleet) -> Lease:
    accepted = await fleet.inbound.append(message("hello"), agent="main")
    lease = await fleet.leases.acquire(accepted.session.sid, worker="test")
    assert lease is not None
    assert await lease.begin([accepted.entry_id])
    return lease


async def test_append(lossy: tuple[Fleet, LossyProxy]) -> None:
    fleet, proxy = lossy
    proxy.is_losing = True

    accepted = await fleet.inbound.append(message("hello"), agent="main")

    assert proxy.lost == 1
    assert await fleet.scripts.client.xlen(f"rc:in:{{{accepted.session.sid}}}") == 1
    assert await fleet.workers.waiting() == 1


async def test_acquire(lossy: tuple[Fleet, LossyProxy]) -> None:
    fleet, proxy = lossy
    accepted = await fleet.inbound.append(message("hello"), agent="main")
    proxy.is_losing = True

    lease = await fleet.leases.acquire(accepted.session.sid, worker="test")

    assert proxy.lost == 1
    assert lease is not None
    assert await lease.begin([accepted.entry_id])


async def test_begin(lossy: tuple[Fleet, LossyProxy]) -> None:
    fleet, proxy = lossy
    accepted = await fleet.inbound.append(message("hello"), agent="main")
    lease = await fleet.leases.acquire(accepted.session.sid, worker="test")
    assert lease is not None
    proxy.is_losing = True

    batch = await lease.begin([accepted.entry_id])

    assert proxy.lost == 1
    assert batch is not None
    assert (batch.attempt, batch.before) == (1, "")


@pytest.mark.parametrize(
    "write",
    [
        lambda lease: lease.publish(0, {"text": "hi"}),
        lambda lease: lease.finish("done", reply=[{"text": "hi"}], payloads=[{"text": "hi"}]),
    ],
    ids=["publish", "finish"],
)
async def test_what_is_said_is_said_once(
    lossy: tuple[Fleet, LossyProxy], write: Callable[[Lease], Awaitable[object]]
) -> None:
    fleet, proxy = lossy
    lease = await begun(fleet)
    proxy.is_losing = True

    await write(lease)

    assert proxy.lost == 1
    assert await fleet.scripts.client.xlen("rc:out:test:default") == 1


async def test_close(lossy: tuple[Fleet, LossyProxy]) -> None:
    fleet, proxy = lossy
    lease = await begun(fleet)
    await lease.finish("done", reply=[])
    proxy.is_losing = True

    assert await lease.close()

    assert proxy.lost == 1


async def test_release(lossy: tuple[Fleet, LossyProxy]) -> None:
    fleet, proxy = lossy
    lease = await begun(fleet)
    proxy.is_losing = True

    await lease.release()

    assert proxy.lost == 1
    view = await fleet.sessions.view(lease.sid)
    assert view is not None
    assert view.state == "scheduled"


async def test_receipt(lossy: tuple[Fleet, LossyProxy]) -> None:
    fleet, proxy = lossy
    lease = await begun(fleet)
    payload = {"sid": lease.sid, "turn": "1-0", "attempt": 1, "index": 0, "channel_id": "c"}
    payload |= {"thread_id": None, "text": "hi", "is_error": False, "entries": []}
    await lease.finish("done", reply=[], payloads=[payload])
    reader = fleet.replies.reader("test", "default")
    replies = reader.replies()
    reply = await anext(replies)
    proxy.is_losing = True

    await reader.receipt(reply)

    assert proxy.lost == 1
    assert await fleet.scripts.client.xlen("rc:out:test:default") == 0
    await replies.aclose()
