"""A connector that a test drives line by line, and a gateway whose answers a test scripts."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from remoteclaw.connector import connector_launch
from tests.support.mcp_gateway import TOKEN
from tests.support.waiting import HANG_S

IMPATIENT = """
import sys
sys.path.append(sys.argv[1])
from remoteclaw.connector import connector
connector.CALL_S = connector.OTHER_S = connector.INITIALIZE_S = float(sys.argv[2])
connector.main()
"""


def request(method: str, number: int | str = 1, **params: Any) -> dict[str, Any]:
    """Return a request."""
    message = {"jsonrpc": "2.0", "id": number, "method": method}
    return {**message, "params": params} if params else message


class Pipes:
    """A connector as its agent sees it: standard input, output and error."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.errors = ""
        """The output on standard error, once the connector has ended."""

    @classmethod
    @contextlib.asynccontextmanager
    async def of(
        cls, url: str, env: Mapping[str, str] | None = None, *, patience_s: float | None = None
    ) -> AsyncIterator[Self]:
        """Run a connector, and check that it never prints its token or a traceback.

        `patience_s` limits how long it waits for an answer. At exit, its input is closed, as agents
        do it.
        """
        launch = connector_launch()
        if patience_s is not None:
            launch[-1:] = ["-c", IMPATIENT, str(Path(launch[-1]).parents[2]), str(patience_s)]
        told = {"REMOTECLAW_GATEWAY_URL": url, "REMOTECLAW_GATEWAY_TOKEN": TOKEN}
        process = await asyncio.create_subprocess_exec(
            *launch,
            env={**told, **(env or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**27,
        )
        pipes = cls(process)
        try:
            yield pipes
        finally:
            await pipes.end()

    async def end(self) -> None:
        """Close the connector's input, and wait until it has ended."""
        assert self.process.stdin
        self.process.stdin.close()
        async with asyncio.timeout(HANG_S):
            _, errors = await self.process.communicate()
        self.errors = errors.decode()
        assert "Traceback" not in self.errors
        assert TOKEN not in self.errors

    async def write(self, data: bytes) -> None:
        """Write raw bytes."""
        assert self.process.stdin
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def say(self, *messages: Any) -> None:
        """Write messages, one per line."""
        await self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def hear(self) -> dict[str, Any]:
        """Read the next message."""
        assert self.process.stdout
        async with asyncio.timeout(HANG_S):
            line = await self.process.stdout.readline()
        assert line.endswith(b"\n"), "the connector has ended"
        assert TOKEN.encode() not in line
        heard: dict[str, Any] = json.loads(line)
        return heard

    async def ask(self, method: str, number: int | str = 1, **params: Any) -> dict[str, Any]:
        """Write a request and read the next message."""
        await self.say(request(method, number, **params))
        return await self.hear()

    async def call(self, name: str, number: int | str = 1, **arguments: Any) -> dict[str, Any]:
        """Call a tool and read the next message."""
        return await self.ask("tools/call", number, name=name, arguments=arguments)

    async def begin(self) -> dict[str, Any]:
        """Do the handshake, and return its result."""
        client = {"name": "test", "version": "1"}
        version = "2025-06-18"
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
        heard = await self.ask("initialize", 0, **params)
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        result: dict[str, Any] = heard["result"]
        return result


@dataclass
class Exchange:
    """One HTTP request, with the connection for its answer."""

    connection: int
    """The number of its connection, counted from 0."""
    head: str
    message: dict[str, Any]
    writer: asyncio.StreamWriter

    async def reply(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


def answer(exchange: Exchange, result: Any = None) -> bytes:
    """Return a complete HTTP response to a request."""
    message = {"jsonrpc": "2.0", "id": exchange.message.get("id"), "result": result or {}}
    body = json.dumps(message).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


@dataclass
class ScriptedGateway:
    """A server on loopback that handles each request as a test scripts it."""

    script: Callable[[Exchange], Awaitable[None]]
    seen: list[Exchange] = field(default_factory=list)
    port: int = 0
    _serving: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Listen until exit."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2**27)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self._serving)
        self._serving.append(asyncio.create_task(self._serve(number, reader, writer)))

    async def _serve(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                assert length, head
                body = await reader.readexactly(int(length[1]))
                exchange = Exchange(number, head, json.loads(body), writer)
                self.seen.append(exchange)
                await self.script(exchange)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed the connection
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port
