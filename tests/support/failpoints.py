"""Failpoints: stop a process at a named step of its talk with Redis, without changes to the code.

A proxy between a process and its Redis reads the commands that pass.
A failpoint names a step ("begin", "finish", …) and a side of it. "before" holds the command, so
Redis has not received it. "after" holds the reply: Redis has run the command, and no caller knows.
While the process is held, the test kills or freezes it, appends a message, or ends Redis.
"""

import asyncio
import contextlib
import hashlib
import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from remoteclaw.fleet import connection, keys
from remoteclaw.fleet.lua import Script
from tests.support.waiting import HANG_S

Side = Literal["before", "after"]

_SCRIPTS = {
    hashlib.sha1((header + Script.named(name).source).encode()).hexdigest().encode(): name
    for name in Script.names()
    for header in (
        "",
        connection.ALLOW_OOM,
        connection.ALLOW_OOM_BEFORE_7,
        connection.NO_WRITES,
    )
}


@dataclass
class Failpoint:
    """A step at which the first process that reaches it is held."""

    step: str
    side: Side
    pid: int = 0
    """The id of the held process."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    _go_on: asyncio.Event = field(default_factory=asyncio.Event)
    _is_cut: bool = False

    async def wait(self) -> int:
        """Wait until a process is held, and return its id."""
        async with asyncio.timeout(HANG_S):
            await self.reached.wait()
        return self.pid

    def release(self) -> None:
        """Pass on what is held, as if there were no failpoint."""
        self._go_on.set()

    def cut(self) -> None:
        """Close the connection, so that the held command or reply is lost."""
        self._is_cut = True
        self._go_on.set()

    async def held(self, pid: int) -> bool:
        """Hold a process until the test decides; return whether to pass on what is held."""
        self.pid = pid
        self.reached.set()
        await self._go_on.wait()
        return not self._is_cut


class Proxy:
    """Passes commands on to a Redis, and its replies back."""

    def __init__(self, server: Path, path: Path) -> None:
        self._server = server
        self.path = path
        self.url = f"unix://{path}"
        self._armed: list[Failpoint] = []
        self._cut: tuple[str, Side] | None = None
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def start(self) -> None:
        """Start listening."""
        self._listener = await asyncio.start_unix_server(self._connected, str(self.path))

    async def stop(self) -> None:
        """Stop listening, and close every connection."""
        self._listener.close()
        ending = [task for task in self._connections.values() if task]
        for writer in self._connections:
            writer.close()
        await asyncio.gather(*ending)

    def arm(self, step: str, side: Side) -> Failpoint:
        """Hold the next process that reaches a step."""
        failpoint = Failpoint(step, side)
        self._armed.append(failpoint)
        return failpoint

    def cut(self, step: str, side: Side) -> None:
        """Lose every command or reply of a step, until `disarm()`."""
        self._cut = step, side

    def disarm(self) -> None:
        """Remove all failpoints and cuts."""
        self._armed.clear()
        self._cut = None

    def _take(self, step: str | None, side: Side) -> Failpoint | None:
        if step and (step, side) == self._cut:
            failpoint = Failpoint(step, side)
            failpoint.cut()
            return failpoint
        for failpoint in self._armed:
            if failpoint.step == step and failpoint.side == side:
                self._armed.remove(failpoint)
                return failpoint
        return None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = asyncio.current_task()
        credentials = writer.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        pid = struct.unpack("3i", credentials)[0]
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(str(self._server))
        except OSError:
            writer.close()
            return
        awaited: list[str | None] = [None]
        try:
            async with asyncio.TaskGroup() as tasks:
                forward = tasks.create_task(self._forward(reader, up_writer, pid, awaited))
                back = tasks.create_task(self._back(up_reader, writer, pid, awaited))
                await asyncio.wait((forward, back), return_when=asyncio.FIRST_COMPLETED)
                forward.cancel()
                back.cancel()
        except* (OSError, EOFError):
            pass
        finally:
            up_writer.close()
            writer.close()
            del self._connections[writer]

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        pid: int,
        awaited: list[str | None],
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                raw, arguments = await _command(reader)
                step = _step(arguments)
                failpoint = self._take(step, "before")
                if failpoint and not await failpoint.held(pid):
                    return
                awaited[0] = step
                server.write(raw)

    async def _back(
        self,
        server: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pid: int,
        awaited: list[str | None],
    ) -> None:
        while data := await server.read(65536):
            # A client waits for each reply before its next command, so this is the step's reply.
            is_unknown = data.startswith(b"-NOSCRIPT")
            failpoint = None if is_unknown else self._take(awaited[0], "after")
            if failpoint and not await failpoint.held(pid):
                return
            writer.write(data)


def _step(arguments: list[bytes]) -> str | None:
    """Return the name of the step that a command belongs to; None if it belongs to none."""
    name = arguments[0].upper()
    if name == b"EVALSHA":
        return _SCRIPTS.get(arguments[1])
    if name == b"WAITAOF":
        return "settle"
    if name == b"XADD" and arguments[1] == keys.WAKE.encode():
        return "hint"  # inside the transaction, before its EXEC
    return None


async def _command(reader: asyncio.StreamReader) -> tuple[bytes, list[bytes]]:
    """Read one command, an array of bulk strings."""
    head = await reader.readuntil(b"\r\n")
    raw, arguments = [head], []
    for _ in range(int(head[1:])):
        length = await reader.readuntil(b"\r\n")
        body = await reader.readexactly(int(length[1:]) + 2)
        raw += [length, body]
        arguments.append(body[:-2])
    return b"".join(raw), arguments
