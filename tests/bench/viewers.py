"""Many who watch one terminal, in a process of their own: they draw nothing, and count."""

import argparse
import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp

from tests.support.doors import Door, RpcClient


@contextlib.asynccontextmanager
async def viewing(door: Door, token: str, sid: str, count: int) -> AsyncIterator[None]:
    """Have so many more watch a terminal."""
    argv = [sys.executable, "-m", "tests.bench.viewers", door.url, token, sid, str(count)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        said = await asyncio.to_thread(process.stdout.readline)
        assert said == b"READY\n", "the viewers did not come in"
        yield
        process.stdin.close()


async def _watch(door: Door, token: str, sid: str, count: int) -> None:
    async with contextlib.AsyncExitStack() as clients:
        followed = []
        for _ in range(count):
            client = await clients.enter_async_context(door.connected(token))
            await client.call("terminals.watch", {"sid": sid})
            followed.append(asyncio.create_task(_read(client)))
        sys.stdout.write("READY\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        for each in followed:
            each.cancel()


async def _read(client: RpcClient) -> None:
    async for _ in client.socket:
        pass


async def _main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "token", "sid"):
        parser.add_argument(name)
    parser.add_argument("count", type=int)
    given = parser.parse_args()
    async with aiohttp.ClientSession() as http:
        await _watch(Door(given.url, http), given.token, given.sid, given.count)


if __name__ == "__main__":
    asyncio.run(_main())
