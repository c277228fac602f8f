"""What goes wrong between an adapter and its homeserver: a proxy that counts, holds and refuses."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Self

import aiohttp
from aiohttp import web

from tests.support.waiting import HANG_S


class Faults:
    """A proxy in front of a homeserver."""

    def __init__(self, url: str) -> None:
        self._server = url
        self._http: aiohttp.ClientSession
        self.url = ""
        self.calls: list[str] = []
        """The calls so far, as METHOD PATH, with their queries."""
        self._refused: tuple[str, int, dict[str, str], int] | None = None
        self._lost = ""
        self._held = "", False
        self._go_on = asyncio.Event()
        self.is_reached = asyncio.Event()
        """Whether a call is held, or its response lost."""

    @classmethod
    @contextlib.asynccontextmanager
    async def before(cls, url: str) -> AsyncIterator[Self]:
        """Run a proxy for a homeserver until exit."""
        faults = cls(url)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", faults._pass_on)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        faults.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(auto_decompress=False) as http:
            faults._http = http
            yield faults
            faults.end()
            await runner.cleanup()

    def refuse(self, path: str, status: int, *, times: int = 1, after_s: int = 0) -> None:
        """Refuse the next calls whose METHOD PATH matches."""
        headers = {"Retry-After": str(after_s)} if after_s else {}
        self._refused = path, status, headers, times

    def lose(self, path: str) -> None:
        """Lose the response of each call that matches."""
        self._lost = path

    def hold(self, path: str, *, is_done: bool = False) -> None:
        """Hold each call that matches, or else the response of what is done, until `end()`."""
        self._held, self._go_on = (path, is_done), asyncio.Event()

    def end(self) -> None:
        """Pass everything on."""
        self._refused, self._lost, self._held = None, "", ("", False)
        self._go_on.set()
        self.is_reached.clear()

    def count(self, path: str) -> int:
        """Return the number of calls that match."""
        return sum(1 for call in self.calls if re.search(path, call))

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        query = f"?{request.query_string}" if request.query_string else ""
        call = f"{request.method} {request.path}{query}"
        self.calls.append(call)
        if self._refused and re.search(self._refused[0], call):
            path, status, headers, times = self._refused
            self._refused = (path, status, headers, times - 1) if times > 1 else None
            self.is_reached.set()
            return web.json_response({"errcode": "M_UNKNOWN"}, status=status, headers=headers)
        await self._hold(call, is_done=False)
        headers = {
            name: value
            for name, value in request.headers.items()
            if name in ("Authorization", "Content-Type")
        }
        where = f"{self._server}{request.raw_path}"
        body = await request.read()
        async with self._http.request(request.method, where, headers=headers, data=body) as answer:
            content = await answer.read()
            await self._hold(call, is_done=True)
            if self._lost and re.search(self._lost, call):
                self.is_reached.set()
                assert request.transport is not None, "the caller waits"
                request.transport.abort()
            headers = {
                name: value
                for name, value in answer.headers.items()
                if name in ("Content-Type", "Retry-After")
            }
            return web.Response(body=content, status=answer.status, headers=headers)

    async def _hold(self, call: str, *, is_done: bool) -> None:
        path, holds_done = self._held
        if path and holds_done == is_done and re.search(path, call):
            self.is_reached.set()
            async with asyncio.timeout(HANG_S):
                await self._go_on.wait()
