"""A forwarding HTTP proxy on loopback, as companies have one: it records what it is asked for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

#: The only name that this proxy resolves: the model server's, which no client can reach directly.
MODEL_HOST = "model.example"


@dataclass
class ForwardProxy:
    """A proxy that passes on requests for the model, and refuses all others."""

    model_port: int = 0
    url: str = ""
    heads: list[str] = field(default_factory=list)
    """The request line and the headers of each request that it got."""

    @property
    def targets(self) -> list[str]:
        """The hosts that it was asked for."""
        return [_target(head) for head in self.heads]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen on loopback."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            if _target(head) == MODEL_HOST:
                await self._pass_on(head, reader, writer)
            else:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        writer.close()

    async def _pass_on(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Connect to the model server. A request in the absolute form is the last one."""
        upstream, to_model = await asyncio.open_connection("127.0.0.1", self.model_port)
        method, url, rest = head.split(" ", 2)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            parts = urlsplit(url)
            lines = [
                line for line in rest.split("\r\n") if not line.lower().startswith("connection")
            ]
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            lines.insert(1, "Connection: close")
            to_model.write(" ".join((method, path, "\r\n".join(lines))).encode("latin-1"))
        await asyncio.gather(_copy(reader, to_model), _copy(upstream, writer))
        to_model.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
        writer.write_eof()


def _target(head: str) -> str:
    """Return the host that a request to a proxy names."""
    method, url, *_ = head.split(" ")
    return urlsplit(f"//{url}" if method == "CONNECT" else url).hostname or ""
