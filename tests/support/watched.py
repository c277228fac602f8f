"""A terminal as the clients of a gateway see it."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.support.doors import Door, RpcClient


class Screen:
    """The screen of one viewer, built from the frames that it received."""

    def __init__(self, client: RpcClient, sid: str) -> None:
        self.client, self.sid = client, sid
        self.revision: int | None = None
        self.lines: dict[int, Any] = {}
        self.frames: list[dict[str, Any]] = []

    @property
    def text(self) -> str:
        rows = (self.lines.get(row, []) for row in range(200))
        return "\n".join("".join(run[0] for run in row) for row in rows).rstrip("\n")

    def take(self, frame: dict[str, Any]) -> None:
        assert frame["sid"] == self.sid
        if frame["since"] is None:
            self.lines.clear()
        else:
            assert frame["since"] == self.revision
        self.lines |= {int(row): runs for row, runs in frame["lines"].items()}
        self.revision = frame["revision"]
        self.frames.append(frame)

    async def until(self, text: str) -> None:
        while text not in self.text:
            self.take(await self.client.event("terminal.screen"))


@contextlib.asynccontextmanager
async def watching(door: Door, token: str, sid: str) -> AsyncIterator[Screen]:
    async with door.connected(token) as client:
        await client.call("terminals.watch", {"sid": sid})
        yield Screen(client, sid)
