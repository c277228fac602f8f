"""An account on a real homeserver of Matrix, compared with bare calls of the same homeserver."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from remoteclaw.channels.matrix.adapter import MatrixAdapter
from remoteclaw.channels.matrix.settings import MatrixAccount
from remoteclaw.channels.matrix.sync import FILTER
from remoteclaw.fleet import keys
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Live, Place
from tests.bench.accounts import channel_process, resident_mb
from tests.bench.gateway import RowParts
from tests.bench.load import Figure, workers
from tests.support.matrix import Homeserver, Person, Second, second_client
from tests.support.stack import Stack
from tests.support.waiting import eventually

ACCOUNT = "matrix", "default"
KINDS = {"plain": "m.room.message", "encrypted": "m.room.encrypted"}


async def bench_matrix(stack: Stack, rounds: int) -> tuple[list[RowParts], list[Figure]]:
    """Measure plain and encrypted direct chats: what arrives, what is edited, and the memory."""
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        directory = Path(name) / "matrix"
        with Homeserver.shared(directory) as homeserver:
            async with (
                second_client() as second,
                Person.registered(homeserver, "ann") as ann,
                Person.registered(homeserver, "bot") as bot,
            ):
                measured = await _Bench(stack, homeserver, second, ann, bot).run(rounds)
        await eventually(lambda: not (directory / "url").exists())
    return measured


class _Bench:
    """One account, which a process of its own runs, and one person."""

    def __init__(
        self, stack: Stack, homeserver: Homeserver, second: Second, ann: Person, bot: Person
    ) -> None:
        self._stack, self._homeserver = stack, homeserver
        self._second, self._ann, self._bot = second, ann, bot

    async def run(self, rounds: int) -> tuple[list[RowParts], list[Figure]]:
        """Return the rows and the figures."""
        agent, rows, figures = {"runtime": "demo"}, [], []
        about = {"api_url": self._homeserver.url, "token": self._bot.login.token}
        await workers(self._stack, 0, agent, channels={})
        await self._second.open(self._homeserver.url, self._ann.login, signed_only=True)
        with channel_process(self._stack, "matrix") as (pid, log):
            await eventually(lambda: "Waiting." in log.read_text())
            alone = resident_mb(pid)
            self._stack.configure(agent, channels={"matrix": {**about, "owners": [self._ann.id]}})
            cursors = keys.cursors(*ACCOUNT)
            await eventually(lambda: self._stack.fleet.scripts.client.exists(cursors))
            for kind in KINDS:
                name, room = f"Matrix, {kind}", await self._room(kind)
                ours, pushed = await self._arrivals(room, kind, rounds)
                rows.append((f"{name}, accepted", "the push", ours, pushed, "≤ 30 ms added"))
                added = resident_mb(pid) - alone
                figures.append(Figure(f"{name}: memory added", added, "MB", "≤ 21 MB"))
        async with self._adapter() as adapter:
            for kind in KINDS:
                ours, bare = await self._edits(adapter, await self._room(kind), rounds)
                goal = "≤ 15 ms added"
                rows.append((f"Matrix, {kind}, edit", "a bare PUT of it", ours, bare, goal))
        return rows, figures

    async def _room(self, kind: str) -> str:
        """Return a direct chat of Ann with the account."""
        if kind == "encrypted":
            return await self._second.create(self._ann.id, self._bot.id)
        return await self._ann.create(self._bot.id)

    async def _arrivals(self, room: str, kind: str, rounds: int) -> tuple[list[float], list[float]]:
        """Measure when a message is accepted, and when a bare client gets it."""
        client: Any = self._stack.fleet.scripts.client
        stream = keys.inbound(SessionKey("main", *ACCOUNT, room, self._ann.id, None).sid)
        pairs, last = [], "0"
        position = (await self._ann.call("GET", "sync"))["next_batch"]
        for number in range(rounds + 1):
            text = f"message {number}"
            pushing = asyncio.create_task(self._pushed(room, position, KINDS[kind]))
            started = time.perf_counter()
            if kind == "encrypted":
                await self._second.say(self._ann.id, room, text)
            else:
                await self._ann.say(room, text)
            while not (found := await client.xread({stream: last}, count=1, block=30_000)):
                pass
            accepted = time.perf_counter() - started
            last = found[0][1][-1][0]
            pushed, position = await pushing
            pairs.append((accepted, pushed - started))
        return [pair[0] for pair in pairs[1:]], [pair[1] for pair in pairs[1:]]

    async def _pushed(self, room: str, position: str, kind: str) -> tuple[float, str]:
        """Return when a bare client gets the next message, and the position behind it.

        It asks as the account does, because the filter takes the homeserver time.
        """
        while True:
            news = await self._ann.call(
                "GET", "sync", since=position, timeout=25_000, filter=FILTER
            )
            position = news["next_batch"]
            joined = news.get("rooms", {}).get("join", {}).get(room, {})
            for event in joined.get("timeline", {}).get("events", ()):
                if event["type"] == kind and event["sender"] == self._ann.id:
                    return time.perf_counter(), position

    @contextlib.asynccontextmanager
    async def _adapter(self) -> AsyncIterator[MatrixAdapter]:
        """Open the adapter alone, with the account's state."""
        settings = MatrixAccount(api_url=self._homeserver.url, token=self._bot.login.token)
        adapter, reader = MatrixAdapter(settings), self._stack.fleet.replies.reader(*ACCOUNT)
        await reader.wait_for_claim()
        await adapter.use_state(
            self._stack.fleet.accounts.state(reader, self._stack.home.adapter_state_key)
        )
        await adapter.connect()
        try:
            yield adapter
        finally:
            await adapter.aclose()
            await self._stack.fleet.accounts.leave(reader)

    async def _edits(
        self, adapter: MatrixAdapter, room: str, rounds: int
    ) -> tuple[list[float], list[float]]:
        """Measure edits of live text, and one of these events, sent again by a bare client.

        Between them nothing is read: what follows a read takes 9 ms less than what follows a send.
        """
        await self._bot.join(room)
        place, text = Place(chat=room), "A line of live text. " * 20
        message = await adapter.preview(place, Live(text=text), message_id=None)
        await adapter.preview(place, Live(text=f"{text}edited"), message_id=message)
        sent = (await self._bot.timeline(room))[-1]
        pairs = []
        for number in range(rounds + 1):
            started = time.perf_counter()
            await adapter.preview(place, Live(text=f"{text}{number}"), message_id=message)
            ours = time.perf_counter() - started
            started = time.perf_counter()
            await self._bot.send(room, sent["type"], sent["content"])
            pairs.append((ours, time.perf_counter() - started))
        return [pair[0] for pair in pairs[1:]], [pair[1] for pair in pairs[1:]]
