"""A stand-in for the gateway's MCP side: the real `mcp` server over HTTP, stateless, on loopback.

As a program (`python -m tests.support.mcp_gateway`) it prints its port and serves until
its standard input ends.
"""

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.support.waiting import eventually_sync

TOKEN = "a-token-of-the-tests"

#: As many tools as the product has, with descriptions and schemas of usual size.
TOOLS = [
    types.Tool(
        name=name,
        description=f"Does what {name} says. " * 6,
        input_schema={
            "type": "object",
            "properties": {
                key: {"type": "string", "description": f"The {key} that is meant, as text."}
                for key in ("target", "message", "media", "threadId")
            },
        },
    )
    for name in ("echo", "send", "wait", *(f"tool_{number}" for number in range(26)))
]


def call_id(message: dict[str, Any]) -> str | None:
    """Return the id that identifies the call in a message; None if it is no call."""
    found: str | None = message.get("params", {}).get("_meta", {}).get("remoteclaw/callId")
    return found


@dataclass
class McpGateway:
    """The server, with the messages that it received and the behaviour of its tools."""

    port: int = 0
    received: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    connections: set[int] = field(default_factory=set)
    """The clients' ports."""
    side_effects: list[dict[str, Any]] = field(default_factory=list)
    """The side effects that the tool `send` reports."""
    waiting: set[str] = field(default_factory=set)
    """The messages of unfinished calls of the tool `wait`."""
    released: threading.Event = field(default_factory=threading.Event)
    """Set when the tool `wait` may return."""

    def __post_init__(self) -> None:
        server = Server("remoteclaw", on_list_tools=self._list, on_call_tool=self._call)
        app = server.streamable_http_app(json_response=True, stateless_http=True)
        config = uvicorn.Config(
            self._guard(app), port=self.port, log_level="error", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """The address for a connector."""
        return f"ws://127.0.0.1:{self.port}"

    @property
    def methods(self) -> list[str]:
        """The methods of the messages that arrived."""
        return [message["method"] for message in self.received]

    @contextlib.contextmanager
    def running(self) -> Iterator["McpGateway"]:
        """Serve in a thread of this process."""
        thread = threading.Thread(target=self._server.run)
        thread.start()
        try:
            eventually_sync(lambda: self._server.started)
            self.port = self._server.servers[0].sockets[0].getsockname()[1]
            yield self
        finally:
            self.released.set()
            self._server.should_exit = True
            thread.join()

    def _guard(self, app: ASGIApp) -> ASGIApp:
        """Return the application behind a check of the token."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            if headers.get("authorization") != f"Bearer {TOKEN}":
                await send({"type": "http.response.start", "status": 401, "headers": []})
                return await send({"type": "http.response.body", "body": b"who are you?"})
            self.headers.append(headers)
            self.connections.add(scope["client"][1])

            async def heard() -> Message:
                message = await receive()
                if body := message.get("body"):
                    with contextlib.suppress(ValueError):  # a part of a large message
                        self.received.append(json.loads(body))
                return message

            return await app(scope, heard, send)

        return guarded

    async def _list(
        self, _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=TOOLS)

    async def _call(
        self, _context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        text = str((params.arguments or {}).get("message", ""))
        meta: dict[str, Any] = {}
        if params.name == "send":
            meta = {"remoteclaw/sideEffects": self.side_effects, "remoteclaw/other": 1}
        elif params.name == "wait":
            await self._wait(text)
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, _meta=meta or None)

    async def _wait(self, text: str) -> None:
        self.waiting.add(text)
        try:
            while not self.released.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(0.01)
        finally:
            self.waiting.discard(text)


def main() -> None:
    """Serve until standard input ends."""
    with McpGateway().running() as gateway:
        sys.stdout.write(f"{gateway.port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
