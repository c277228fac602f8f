"""Many viewers of one terminal, in another process: they only read the frames."""

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
    """Run `count` more viewers of a terminal."""
    argv = [sys.executable, "-m", "tests.bench.viewers", door.url, token, sid, str(count)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        line = await asyncio.to_thread(process.stdout.readline)
        assert line == b"READY\n", "the viewers did not connect"
        yield
        process.stdin.close()


async def _watch(door: Door, token: str, sid: str, count: int) -> None:
    async with contextlib.AsyncExitStack() as clients:
        readers = []
        for _ in range(count):
            client = await clients.enter_async_context(door.connected(token))
            await client.call("terminals.watch", {"sid": sid})
            readers.append(asyncio.create_task(_read(client)))
        sys.stdout.write("READY\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        for reader in readers:
            reader.cancel()


async def _read(client: RpcClient) -> None:
    async for _ in client.socket:
        pass


async def _main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "token", "sid"):
        parser.add_argument(name)
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    async with aiohttp.ClientSession() as http:
        await _watch(Door(options.url, http), options.token, options.sid, options.count)


if __name__ == "__main__":
    asyncio.run(_main())
