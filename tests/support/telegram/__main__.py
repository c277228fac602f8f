"""Serves on loopback until nobody can write to its standard input any more.

python -m tests.support.telegram FILE       its address goes into the file
"""

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from tests.support.shared import wait_until_left
from tests.support.telegram.server import TelegramServer


async def _serve(url: Path) -> None:
    runner = web.AppRunner(TelegramServer().app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None, "it was started"
    bound = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    new = url.with_suffix(".new")
    new.write_text(f"http://127.0.0.1:{bound}")
    new.rename(url)
    await asyncio.to_thread(wait_until_left, url)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
