"""The link of a client to the gateway: kept up, and each thing done once."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.client.link import Address, GatewayMissing, GatewayRefused, Link
from remoteclaw.fleet import keys
from remoteclaw.gateway.address import listen_privately
from tests.support.doors import gateway_process, opened, own_token
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually


class Listener:
    """What a link has told."""

    def __init__(self) -> None:
        self.opened: list[dict[str, Any]] = []
        self.events: list[str] = []
        self.problems: list[str] = []

    def event(self, name: str, _payload: dict[str, Any]) -> None:
        self.events.append(name)


@contextlib.asynccontextmanager
async def linked(
    address: Address, token: str, *, patience_s: float = HANG_S
) -> AsyncIterator[tuple[Link, Listener]]:
    heard = Listener()
    link = Link(
        address,
        token,
        opening=("chat.open", {}),
        opened=heard.opened.append,
        event=heard.event,
        problem=heard.problems.append,
    )
    running = asyncio.create_task(link.run(patience_s=patience_s))
    try:
        yield link, heard
    finally:
        running.cancel()
        await asyncio.wait((running,))


def message(heard: Listener, text: str) -> dict[str, Any]:
    return {"sessionKey": heard.opened[-1]["sessionKey"], "message": text, "messageId": text}


async def accepted(stack: Stack) -> int:
    """Return how many messages are accepted."""
    (view,) = await stack.fleet.sessions.list(limit=10)
    return int(await stack.fleet.scripts.client.xlen(keys.inbound(view.sid)))


async def test_a_gateway_is_found_in_the_state_directory(stack: Stack) -> None:
    async with gateway_process(stack):
        address = Address(sockets=stack.home.gateways)
        async with linked(address, own_token(stack)) as (link, _):
            assert (await link.ask("health", {}))["status"] == "ok"


async def test_a_gateway_that_was_killed_is_found_again_by_its_private_socket(stack: Stack) -> None:
    address = Address(sockets=stack.home.gateways)
    token = own_token(stack)
    async with gateway_process(stack) as (_, first), linked(address, token) as (link, heard):
        await link.ask("chat.send", {**await after_opening(link, heard), "message": "one"})
        first.kill()
        first.wait()
        asking = asyncio.create_task(link.ask("chat.send", message(heard, "two"), persists=True))
        async with gateway_process(stack):
            assert (await asking)["entry"]
        assert len(heard.opened) == 2
    assert await accepted(stack) == 2


async def after_opening(link: Link, heard: Listener) -> dict[str, Any]:
    await link.ask("health", {})
    return message(heard, "one")


async def test_a_connection_that_is_lost_is_made_again(stack: Stack) -> None:
    async with (
        opened(stack) as door,
        linked(Address(url=door.url), own_token(stack)) as (link, heard),
    ):
        await link.ask("health", {})
        assert door.gateway is not None
        for client in list(door.gateway.clients):
            client.end(1012, "the test")
        await eventually(lambda: len(heard.opened) == 2)
        assert (await link.ask("health", {}))["status"] == "ok"
    assert heard.problems[0] == ""
    assert "the gateway is away: the connection ended" in heard.problems


async def test_what_redis_does_not_answer_is_sent_until_it_does_and_counts_once(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.connection.COMMAND_S", 0.1)
    monkeypatch.setattr("remoteclaw.fleet.inbound.APPEND_S", 0.2)
    async with (
        opened(stack) as door,
        linked(Address(url=door.url), own_token(stack)) as (link, heard),
    ):
        await link.ask("health", {})
        with stack.redis.frozen():
            sending = asyncio.create_task(
                link.ask("chat.send", message(heard, "hello"), persists=True)
            )
            await eventually(lambda: any("Redis" in words for words in heard.problems))
            assert not sending.done()
        await sending
        assert heard.problems[-1] == ""
    assert await accepted(stack) == 1


async def test_a_token_that_is_refused_ends_the_link(stack: Stack) -> None:
    async with opened(stack) as door:
        with pytest.raises(GatewayRefused, match="valid token"):
            await run_alone(Address(url=door.url), "wrong")


async def test_a_gateway_that_is_not_there_is_named(stack: Stack) -> None:
    with pytest.raises(GatewayMissing, match="start one with `remoteclaw up`"):
        await run_alone(Address(sockets=stack.home.gateways), "token")
    with pytest.raises(GatewayMissing, match=r"http://127\.0\.0\.1:1 "):
        await run_alone(Address(url="http://127.0.0.1:1"), "token")


async def test_what_is_no_gateway_is_named(stack: Stack) -> None:
    async def answers(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answers, "127.0.0.1", 0)
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
async def test_a_wrong_address_is_one_sentence(url: str) -> None:
    with pytest.raises(GatewayMissing, match=f"gateway answers at {re.escape(url)} "):
        await run_alone(Address(url=url), "token")


async def test_what_is_too_large_is_refused_and_the_link_stays(stack: Stack) -> None:
    async with gateway_process(stack):
        address = Address(sockets=stack.home.gateways)
        async with linked(address, own_token(stack)) as (link, heard):
            await link.ask("health", {})
            async with asyncio.timeout(HANG_S):
                with pytest.raises(GatewayRefused, match="put it into a file"):
                    await link.ask("chat.send", message(heard, "x" * 3_000_000), persists=True)
            assert (await link.ask("health", {}))["status"] == "ok"
            assert heard.problems == [""]


async def test_a_dead_socket_is_passed_over(stack: Stack) -> None:
    async with gateway_process(stack):
        listen_privately(stack.home).close()  # younger, and nothing listens there
        async with linked(Address(sockets=stack.home.gateways), own_token(stack)) as (link, _):
            assert (await link.ask("health", {}))["status"] == "ok"


async def run_alone(address: Address, token: str) -> None:
    link = Link(
        address,
        token,
        opening=("chat.open", {}),
        opened=lambda _: None,
        event=lambda *_: None,
        problem=lambda _: None,
    )
    await link.run(patience_s=0)
