"""An HTTP client for an agent's program on this host: JSON requests and a stream of events.

Each request uses HTTP/1.0 on a separate connection, so that an answer ends with its connection and
is not chunked. Sizes and times are limited.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson

#: The time limit for an answer, in seconds. A server that has just begun to listen never answers
#: some requests.
ANSWER_S = 2.0
#: The size limit of an answer and of an event, in bytes; an event may have a tool's whole output.
MAX_BYTES = 1024 * 1024
#: The size of one read, in bytes.
READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server on the loopback interface, and its password."""

    port: int
    user: str
    password: str = field(repr=False)

    async def get(self, path: str) -> Any:
        """Return the JSON at `path`; None for HTTP 404 or an empty body. Raises `OSError`."""
        return await self._json("GET", path)

    async def post(self, path: str, body: Any) -> Any:
        """Post JSON to `path`; return the answer as `get()` does. Raises `OSError`."""
        return await self._json("POST", path, orjson.dumps(body))

    async def _json(self, method: str, path: str, body: bytes = b"") -> Any:
        async with asyncio.timeout(ANSWER_S), self._request(method, path, body) as (status, stream):
            if status == 404:
                return None
            data = await stream.read(MAX_BYTES + 1)
            while piece := await stream.read(READ_BYTES):
                data += piece
                if len(data) > MAX_BYTES:
                    raise OSError(f"the answer to {path} is too long")
            try:
                return orjson.loads(data) if data else None
            except ValueError:
                raise OSError(f"the answer to {path} is not JSON") from None

    @contextlib.asynccontextmanager
    async def events(self, path: str, *, silent_s: float) -> AsyncIterator[AsyncIterator[Any]]:
        """Open the stream of events at `path`, which ends with the connection.

        The stream raises `TimeoutError`, an `OSError`, after `silent_s` seconds without data.
        """
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(ANSWER_S):
                _, stream = await stack.enter_async_context(self._request("GET", path))
            yield _events(stream, silent_s)

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, path: str, body: bytes = b""
    ) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
        """Send a request; yield the answer's status, and the stream of its body.

        Raises `OSError` for a status that is neither a success nor 404.
        """
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
    """Read the status line and headers of an answer; return the status. Raises `OSError`."""
    try:
        first = (await stream.readline()).split()
        while (await stream.readline()).strip():
            pass
        return int(first[1])
    except (ValueError, IndexError):  # a line that is too long also raises ValueError
        raise OSError("the answer is not HTTP") from None


async def _events(stream: asyncio.StreamReader, silent_s: float) -> AsyncIterator[Any]:
    """Yield the JSON of each event's `data:` line; lines that are too long are skipped."""
    line, is_dropped = b"", False
    while True:
        async with asyncio.timeout(silent_s):
            piece = await stream.read(READ_BYTES)
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
