"""Serves on loopback until standard input ends."""

import argparse
import asyncio
import sys
from pathlib import Path

from aiohttp import web

from tests.support.model_server.server import ModelServer


async def _serve(port: int, log: Path) -> None:
    runner = web.AppRunner(ModelServer(log).app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    assert site._server is not None, "it was started"
    bound = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    sys.stdout.write(f"LISTENING http://127.0.0.1:{bound}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)  # until the parent goes


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("requests.jsonl"))
    arguments = parser.parse_args()
    asyncio.run(_serve(arguments.port, arguments.log))


if __name__ == "__main__":
    main()
