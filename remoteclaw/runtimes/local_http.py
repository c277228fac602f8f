"""HTTP to a program of ours on this host: short answers, and its stream of events.

Requests are HTTP/1.0 on a connection each, so that an answer ends with its connection and comes in
one piece. What is too long is left out, and nothing is waited for without an end.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson

#: How long an answer may take, in seconds. A server that has just begun to listen leaves some
#: without one for ever.
ANSWER_S = 2.0
#: The longest answer, and the longest event, in bytes; an event may have all that a tool printed.
MAX_BYTES = 1024 * 1024
_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server on the loopback interface, and its password."""

    port: int
    user: str
    password: str = field(repr=False)

    async def get(self, path: str) -> Any:
        """Return the JSON at a path, None where there is none; raises `OSError`."""
        return await self._ask("GET", path)

    async def post(self, path: str, body: Any) -> Any:
        """Post JSON to a path; return as `get()` does."""
        return await self._ask("POST", path, orjson.dumps(body))

    async def _ask(self, method: str, path: str, body: bytes = b"") -> Any:
        async with asyncio.timeout(ANSWER_S), self._asked(method, path, body) as (status, stream):
            if status == 404:
                return None
            data = await stream.read(MAX_BYTES + 1)
            while piece := await stream.read(_PIECE):
                data += piece
                if len(data) > MAX_BYTES:
                    raise OSError(f"the answer to {path} is too long")
            try:
                return orjson.loads(data) if data else None
            except ValueError:
                raise OSError(f"the answer to {path} is not JSON") from None

    @contextlib.asynccontextmanager
    async def events(self, path: str, *, silent_s: float) -> AsyncIterator[AsyncIterator[Any]]:
        """Open the events of a path; they end with the connection, or when it is silent."""
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(ANSWER_S):
                _, stream = await stack.enter_async_context(self._asked("GET", path))
            yield _events(stream, silent_s)

    @contextlib.asynccontextmanager
    async def _asked(
        self, method: str, path: str, body: bytes = b""
    ) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
        """Have an answer from behind its head; raises `OSError` for a status that is no success."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            secret = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            head = (
                f"{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{self.port}\r\n"
                f"Authorization: Basic {secret}\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            status = await _status(reader)
            if status != 404 and not 200 <= status < 300:
                raise OSError(f"{method} {path} was answered with HTTP {status}")
            yield status, reader
        finally:
            writer.close()


async def _status(stream: asyncio.StreamReader) -> int:
    """Read the head of an answer; return its status."""
    try:
        first = (await stream.readline()).split()
        while (await stream.readline()).strip():
            pass
        return int(first[1])
    except (ValueError, IndexError):  # the first also for a line that is too long
        raise OSError("the answer is not HTTP") from None


async def _events(stream: asyncio.StreamReader, silent_s: float) -> AsyncIterator[Any]:
    """Yield the JSON of each event's line `data:`, but for those that are too long."""
    line, is_dropped = b"", False
    while True:
        async with asyncio.timeout(silent_s):
            piece = await stream.read(_PIECE)
        if not piece:
            return
        *ended, rest = piece.split(b"\n")
        for part in ended:
            whole, line = line + part, b""
            if whole.startswith(b"data:") and not is_dropped:
                with contextlib.suppress(ValueError):
                    yield orjson.loads(whole[5:])
            is_dropped = False
        line += rest
        if len(line) > MAX_BYTES:
            line, is_dropped = b"", True
