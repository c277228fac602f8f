"""What our servers of other people's platforms share: a process of their own, and a door for tests.

Only the server's process imports aiohttp: it takes a while.
"""

import asyncio
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from tests.support.shared import wait_until_left
from tests.support.waiting import eventually_sync

if TYPE_CHECKING:
    from aiohttp import web

ROOT = Path(__file__).parents[2]


def starter(module: str) -> Callable[[BinaryIO, Path], None]:
    """Return what starts a module for `shared()`; it is given the file for its address."""

    def start(stdin: BinaryIO, address: Path) -> None:
        argv = [sys.executable, "-m", module, str(address)]
        process = subprocess.Popen(argv, cwd=ROOT, stdin=stdin)
        eventually_sync(lambda: address.exists() or process.poll() is not None)
        assert address.exists(), f"{module} did not start"
        process.returncode = 0  # it may live longer than this process

    return start


def ask(url: str, asked: dict[str, Any]) -> Any:
    """Ask the door of a server."""
    with urllib.request.urlopen(urllib.request.Request(url, orjson.dumps(asked))) as answer:
        return orjson.loads(answer.read())


def serve(app: "Callable[[str], web.Application]", address: Path) -> None:
    """Serve `app(url)` on loopback until all tests have left."""
    asyncio.run(_serve(app, address))


async def _serve(app: "Callable[[str], web.Application]", address: Path) -> None:
    from aiohttp import web

    bound = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    runner = web.AppRunner(app(url), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    new = address.with_suffix(".new")
    new.write_text(url)
    new.rename(address)
    await asyncio.to_thread(wait_until_left, address)
