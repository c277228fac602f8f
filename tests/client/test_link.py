"""The link of a client to the gateway: it reconnects, and each call takes effect once."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from remoteclaw.client.link import Address, GatewayMissing, GatewayRefused, Link
from remoteclaw.fleet import keys
from remoteclaw.gateway.address import listen_privately
from tests.support.doors import gateway_process, opened, own_token
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually


class Listener:
    """Records the callbacks of a link."""

    def __init__(self) -> None:
        self.opened: list[dict[str, Any]] = []
        self.events: list[str] = []
        self.problems: list[str] = []

    def event(self, name: str, _payload: dict[str, Any]) -> None:
        self.events.append(name)


@contextlib.asynccontextmanager
async def linked(
    address: Address, token: str, *, connect_s: float = HANG_S
) -> AsyncIterator[tuple[Link, Listener]]:
    listener = Listener()
    link = Link(
        address,
        token,
        opening=("chat.open", {}),
        on_open=listener.opened.append,
        on_event=listener.event,
        on_problem=listener.problems.append,
    )
    running = asyncio.create_task(link.run(connect_s=connect_s))
    try:
        yield link, listener
    finally:
        running.cancel()
        await asyncio.wait((running,))


def message(listener: Listener, text: str) -> dict[str, Any]:
    return {"sessionKey": listener.opened[-1]["sessionKey"], "text": text, "messageId": text}


async def accepted(stack: Stack) -> int:
    """Return the number of accepted messages."""
    (view,) = await stack.fleet.sessions.list(limit=10)
    return int(await stack.fleet.scripts.client.xlen(keys.inbound(view.sid)))


async def test_a_link_finds_the_gateway_in_the_state_directory(stack: Stack) -> None:
    async with gateway_process(stack):
        address = Address(sockets=stack.home.gateways)
        async with linked(address, own_token(stack)) as (link, _):
            assert (await link.ask("health", {}))["status"] == "ok"


async def test_a_link_finds_a_new_gateway_after_the_first_one_was_killed(stack: Stack) -> None:
    address = Address(sockets=stack.home.gateways)
    token = own_token(stack)
    async with gateway_process(stack) as (_, first), linked(address, token) as (link, listener):
        await link.ask("chat.send", {**await after_opening(link, listener), "text": "one"})
        first.kill()
        first.wait()
        asking = asyncio.create_task(link.ask("chat.send", message(listener, "two"), persists=True))
        async with gateway_process(stack):
            assert (await asking)["entry"]
        assert len(listener.opened) == 2
    assert await accepted(stack) == 2


async def after_opening(link: Link, listener: Listener) -> dict[str, Any]:
    await link.ask("health", {})
    return message(listener, "one")


async def test_a_link_reconnects_after_a_lost_connection(stack: Stack) -> None:
    async with (
        opened(stack) as door,
        linked(Address(url=door.url), own_token(stack)) as (link, listener),
    ):
        await link.ask("health", {})
        assert door.gateway is not None
        for client in list(door.gateway.clients):
            client.end(1012, "the test")
        await eventually(lambda: len(listener.opened) == 2)
        assert (await link.ask("health", {}))["status"] == "ok"
    assert listener.problems[0] == ""
    assert "the gateway is away: the connection ended" in listener.problems


async def test_a_link_repeats_a_message_until_redis_answers_and_it_counts_once(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.connection.COMMAND_S", 0.1)
    monkeypatch.setattr("remoteclaw.fleet.turns.inbound.APPEND_S", 0.2)
    async with (
        opened(stack) as door,
        linked(Address(url=door.url), own_token(stack)) as (link, listener),
    ):
        await link.ask("health", {})
        with stack.redis.frozen():
            sending = asyncio.create_task(
                link.ask("chat.send", message(listener, "hello"), persists=True)
            )
            await eventually(lambda: any("Redis" in problem for problem in listener.problems))
            assert not sending.done()
        await sending
        assert listener.problems[-1] == ""
    assert await accepted(stack) == 1


async def test_a_refused_token_ends_the_link(stack: Stack) -> None:
    async with opened(stack) as door:
        with pytest.raises(GatewayRefused, match="valid token"):
            await run_alone(Address(url=door.url), "wrong")


async def test_a_missing_gateway_is_reported(stack: Stack) -> None:
    with pytest.raises(GatewayMissing, match="start one with `remoteclaw up`"):
        await run_alone(Address(sockets=stack.home.gateways), "token")
    with pytest.raises(GatewayMissing, match=r"http://127\.0\.0\.1:1 "):
        await run_alone(Address(url="http://127.0.0.1:1"), "token")


async def test_a_server_that_is_no_gateway_is_reported(stack: Stack) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(GatewayMissing, match="check the address"):
            await run_alone(Address(url=f"http://127.0.0.1:{port}"), "token")


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://localhost:abc",
        "http://localhost:99999",
        "http://[::1",
        "http://two..dots",
        "ws://x y",
        "https://127.0.0.1:1",
    ],
)
async def test_an_invalid_gateway_address_is_reported(url: str) -> None:
    with pytest.raises(GatewayMissing, match=f"gateway answers at {re.escape(url)} "):
        await run_alone(Address(url=url), "token")


async def test_a_too_large_message_is_refused_and_the_link_stays_open(stack: Stack) -> None:
    async with gateway_process(stack):
        address = Address(sockets=stack.home.gateways)
        async with linked(address, own_token(stack)) as (link, listener):
            await link.ask("health", {})
            async with asyncio.timeout(HANG_S):
                with pytest.raises(GatewayRefused, match="put it into a file"):
                    await link.ask("chat.send", message(listener, "x" * 3_000_000), persists=True)
            assert (await link.ask("health", {}))["status"] == "ok"
            assert listener.problems == [""]


async def test_a_link_skips_a_socket_that_nobody_listens_on(stack: Stack) -> None:
    async with gateway_process(stack):
        listen_privately(stack.home).close()  # a newer socket without a listener
        async with linked(Address(sockets=stack.home.gateways), own_token(stack)) as (link, _):
            assert (await link.ask("health", {}))["status"] == "ok"


async def run_alone(address: Address, token: str) -> None:
    link = Link(
        address,
        token,
        opening=("chat.open", {}),
        on_open=lambda _: None,
        on_event=lambda *_: None,
        on_problem=lambda _: None,
    )
    await link.run(connect_s=0)


async def test_a_link_follows_no_redirect_which_would_get_its_token() -> None:
    came: list[str] = []

    async def elsewhere(socket: ServerConnection) -> None:
        came.append(str(socket.remote_address))

    async with serve(elsewhere, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]

        def redirect(connection: ServerConnection, _request: Request) -> Response:
            response = connection.respond(302, "")
            response.headers["Location"] = f"ws://127.0.0.1:{port}/ws"
            return response

        async with serve(elsewhere, "127.0.0.1", 0, process_request=redirect) as gateway:
            url = f"http://127.0.0.1:{gateway.sockets[0].getsockname()[1]}"
            with pytest.raises(GatewayMissing, match="HTTP 302"):
                await run_alone(Address(url=url), "secret")

    assert came == []
