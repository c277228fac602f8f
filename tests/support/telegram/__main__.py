"""Serves on loopback until standard input ends."""

import asyncio
import sys

from aiohttp import web

from tests.support.telegram.server import TelegramServer


async def _serve() -> None:
    runner = web.AppRunner(TelegramServer().app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None, "it was started"
    bound = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    sys.stdout.write(f"LISTENING http://127.0.0.1:{bound}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)  # until the parent goes


if __name__ == "__main__":
    asyncio.run(_serve())
