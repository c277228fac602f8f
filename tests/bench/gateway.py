"""The gateway compared with servers that only echo."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import orjson
from websockets.asyncio.client import ClientConnection, connect

from tests.support.doors import Door, RpcClient, calling, gateway_process
from tests.support.stack import Stack

#: The number of clients that make a call at once.
CLIENTS = 200
#: The arguments of a `Row`: name, baseline's name, our seconds, baseline's seconds, and goal.
RowParts = tuple[str, str, list[float], list[float], str]
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


async def bench_doors(stack: Stack, rounds: int) -> list[RowParts]:
    """Measure calls that change nothing, over MCP and over WebSocket."""
    stack.configure()
    async with (
        gateway_process(stack, REMOTECLAW__GATEWAY__PORT="0") as (door, _),
        calling(stack, from_="doors", channel_id="doors") as agent,
        echoing() as echo,
    ):
        token = (stack.home.path / "gateway-token").read_text().strip()
        body = orjson.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "agents_list", "arguments": {}},
            }
        )
        async with aiohttp.ClientSession() as http:

            async def tool() -> None:
                headers = {**_HEADERS, "Authorization": f"Bearer {agent.token}"}
                async with http.post(f"{door.url}/mcp", data=body, headers=headers) as answer:
                    assert b'"agents"' in await answer.read()

            async def bare() -> None:
                async with http.post(f"http://{echo}/", data=body, headers=_HEADERS) as answer:
                    assert await answer.read() == body

            mcp = await measure_alternately(tool, bare, rounds * 4)
        async with door.connected(token) as client, connect(f"ws://{echo}/ws") as socket:
            rpc = await measure_alternately(lambda: ask(client), lambda: echoed(socket), rounds * 4)
        many = await at_once(door, token, echo, max(2, rounds // 10))
    return [
        ("MCP tool call, warm, fenced", "bare HTTP POST", *mcp, "≤ 1.5 ms"),
        ("RPC round trip", "bare WebSocket echo", *rpc, ""),
        (f"RPC, {CLIENTS} clients at once, each", "bare WebSocket echo", *many, ""),
    ]


async def measure_alternately(
    ours: Callable[[], Awaitable[None]],
    baseline: Callable[[], Awaitable[None]],
    rounds: int,
    *,
    pause_s: float = 0.0,
) -> tuple[list[float], list[float]]:
    """Measure both alternately, in seconds, with pauses; the first five rounds don't count."""
    measured: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 5):
        for side, call in zip(measured, (ours, baseline), strict=True):
            await asyncio.sleep(pause_s)
            started = time.perf_counter()
            await call()
            if number >= 5:
                side.append(time.perf_counter() - started)
    return measured


async def at_once(
    door: Door, token: str, echo: str, rounds: int
) -> tuple[list[float], list[float]]:
    """Have many connected clients make a call at once; return the seconds per client."""
    async with contextlib.AsyncExitStack() as clients:
        ours = [await clients.enter_async_context(door.connected(token)) for _ in range(CLIENTS)]
        bare = [await clients.enter_async_context(connect(f"ws://{echo}/ws")) for _ in ours]

        async def all_ours() -> None:
            await asyncio.gather(*(ask(client) for client in ours))

        async def all_bare() -> None:
            await asyncio.gather(*(echoed(socket) for socket in bare))

        measured = await measure_alternately(all_ours, all_bare, rounds)
    ours_s, bare_s = ([seconds / CLIENTS for seconds in side] for side in measured)
    return ours_s, bare_s


async def ask(client: RpcClient) -> None:
    assert (await client.call("health"))["status"] == "ok"


async def echoed(socket: ClientConnection) -> None:
    frame = '{"type":"req","id":"1","method":"health","params":{}}'
    await socket.send(frame)
    assert await socket.recv() == frame


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    """Run an echo server in another process; yield its host and port."""
    command = [sys.executable, "-m", "tests.bench.echo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        port = await asyncio.to_thread(process.stdout.readline)
        yield f"127.0.0.1:{int(port)}"
        process.stdin.close()
