"""The official MCP client, connected to a gateway that listens."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp.client import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tests.support.doors import Calling, Door, calling, opened
from tests.support.stack import Stack
from tests.support.waiting import HANG_S


@contextlib.asynccontextmanager
async def agents_client(
    stack: Stack, **options: Any
) -> AsyncIterator[tuple[ClientSession, Calling]]:
    """Run a gateway and connect the client of an agent with a running turn."""
    async with (
        opened(stack) as door,
        calling(stack, **options) as agent,
        client(door, agent.token) as session,
    ):
        yield session, agent


@contextlib.asynccontextmanager
async def client(door: Door, token: str) -> AsyncIterator[ClientSession]:
    """Connect the official client."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=HANG_S) as http,
        streamable_http_client(f"{door.url}/mcp", http_client=http) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session
