"""The smallest server in Python: it echoes requests over HTTP and WebSocket."""

import asyncio
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect


async def post(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")


async def page(_: Request) -> Response:
    return Response("<!doctype html><title>A page</title><p>It is there.", media_type="text/html")


async def socket(client: WebSocket) -> None:
    await client.accept()
    while True:
        try:
            await client.send_text(await client.receive_text())
        except WebSocketDisconnect:
            return


async def main() -> None:
    """Print the port, and echo until standard input ends."""
    routes = [
        Route("/", post, methods=["POST"]),
        Route("/", page),
        WebSocketRoute("/ws", socket),
    ]
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="error", access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    sys.stdout.write(f"{server.servers[0].sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
