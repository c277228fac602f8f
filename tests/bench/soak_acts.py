"""Random acts of people at one terminal during a soak."""

import asyncio
import contextlib
import random
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake

from remoteclaw.clock import now_ms
from remoteclaw.messages import SessionKey
from tests.bench.stage import Stage, parked
from tests.support.doors import Refused, RpcClient
from tests.support.waiting import HANG_S, eventually
from tests.support.watched import Screen

#: The maximum times for which a terminal is watched and for which it is left alone, in seconds.
WATCHED_S, ALONE_S = 8.0, 3.0
#: The number of tries to answer a dialog, and the time limit of each, in seconds.
KEYS, KEY_S = 5, 4.0
#: The maximum time without a gateway after a kill, in seconds.
AWAY_S = 60.0
#: The errors of a lost connection.
CUT = (ConnectionClosed, InvalidHandshake, OSError)


@dataclass
class Tally:
    """The numbers of acts by their results."""

    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """Refusals by act and code: another user has the keyboard, or the terminal is not idle."""
    cut: Counter[str] = field(default_factory=Counter)
    """Acts during which the gateway was killed."""
    failed: list[str] = field(default_factory=list)


class Seat:
    """One session with a terminal."""

    def __init__(self, stage: Stage, tally: Tally, agent: str, name: str, *, is_real: bool) -> None:
        """`is_real` if its program is a CLI, which takes turns."""
        self.sid = ""
        self._stage, self._tally = stage, tally
        self._agent, self._name, self._is_real = agent, name, is_real
        self._random = random.Random(name)
        self._key: SessionKey

    async def run(self, until: float) -> None:
        """Do random acts until a time of `time.monotonic()`; the terminal stays open."""
        acts: dict[Callable[[], Awaitable[None]], int] = {
            self._watch: 4,
            self._type: 4,
            self._resize: 2,
            self._park: 1,
        }
        if self._is_real:
            acts |= {self._input: 3, self._ask: 1, self._hand_over: 1}
        else:
            acts |= {self._play: 3}
        while time.monotonic() < until:
            (act,) = self._random.choices(list(acts), list(acts.values()))
            await self._try(act)
            await asyncio.sleep(self._random.uniform(0, ALONE_S))

    async def _try(self, act: Callable[[], Awaitable[None]]) -> None:
        name = act.__name__.strip("_")
        try:
            await self._open()
            await act()
            self._tally.done[name] += 1
        except Refused as refused:
            self._tally.refused[f"{name} {refused.code}"] += 1
        except CUT:
            self._tally.cut[name] += 1
        except (AssertionError, TimeoutError):
            where = f"{self._name} ({self._agent}), {name}, at {time.strftime('%H:%M:%S')}"
            self._tally.failed.append(f"{where}: {traceback.format_exc(limit=-4)}")

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[RpcClient]:
        """Connect as soon as a gateway is running."""
        async with contextlib.AsyncExitStack() as exits:
            until = time.monotonic() + AWAY_S
            while True:
                try:
                    door = self._stage.door
                    client = await exits.enter_async_context(door.connected(self._stage.token))
                    break
                except CUT:
                    assert time.monotonic() < until, "no gateway has come back"
                    await asyncio.sleep(0.2)
            yield client

    async def _open(self) -> None:
        """Open the terminal if it is closed, and wait until it is live."""
        async with self._client() as client:
            if not self.sid:
                about = {"agent": self._agent, "name": self._name}
                terminal = (await client.call("terminals.open", about))["terminal"]
                self.sid, self._key = terminal["sid"], SessionKey.parse(terminal["sessionKey"])
            elif (await self._record(client))["state"] not in ("starting", "live"):
                await client.call("terminals.open", {"session": self.sid})

            async def is_live() -> bool:
                terminal = await self._record(client)
                assert terminal["state"] in ("starting", "live"), terminal
                return bool(terminal["state"] == "live")

            await eventually(is_live)

    async def _record(self, client: RpcClient) -> dict[str, Any]:
        record: dict[str, Any] = await client.call("terminals.get", {"sid": self.sid})
        return record

    async def _wait_for(
        self, client: RpcClient, *activities: str, within_s: float = HANG_S
    ) -> None:
        """Wait until the program reports one of `activities`."""

        async def is_reported() -> bool:
            return (await self._record(client))["activity"] in activities

        await eventually(is_reported, within_s=within_s)

    # -- acts ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Some viewers watch for a while; one of them disconnects without closing."""
        async with contextlib.AsyncExitStack() as exits:
            screens = []
            for _ in range(self._random.randint(1, 5)):
                client = await exits.enter_async_context(self._client())
                await client.call("terminals.watch", {"sid": self.sid})
                screens.append(Screen(client, self.sid))
            until = time.monotonic() + self._random.uniform(0.5, WATCHED_S)
            while time.monotonic() < until:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        for screen in screens:
                            screen.take(await screen.client.event("terminal.screen"))
            screens[0].client.socket.transport.abort()

    async def _type(self) -> None:
        """A user takes the keyboard, types and sends a text."""
        async with self._client() as client:
            about = {"sid": self.sid}
            await client.call("terminals.watch", about)
            await client.call("terminals.take", {**about, "force": True})
            for letter in f"SAY:word-{self._random.randint(0, 99)}":
                await client.call("terminals.type", {**about, "keys": [f"t:{letter}"]})
            await asyncio.sleep(0.2)
            await client.call("terminals.type", {**about, "keys": ["k:enter"]})
            if self._is_real:
                await self._wait_for(client, "idle", "waiting")
                await self._answer(client)

    async def _answer(self, client: RpcClient) -> None:
        """Answer a dialog if one is open; codex drops a key that arrives while it opens."""
        if (await self._record(client))["activity"] != "waiting":
            return
        for _ in range(KEYS):
            await client.call("terminals.type", {"sid": self.sid, "keys": ["k:enter"]})
            with contextlib.suppress(AssertionError):
                await self._wait_for(client, "idle", within_s=KEY_S)
                return
        await self._wait_for(client, "idle")

    async def _input(self) -> None:
        """A client sends a text to the idle terminal."""
        async with self._client() as client:
            await self._answer(client)
            await client.call(
                "terminals.type", {"sid": self.sid, "keys": ["p:SAY:by-input"], "submit": True}
            )
            await self._wait_for(client, "idle")

    async def _ask(self) -> None:
        """The program asks for permission, and a user presses Enter."""
        async with self._client() as client:
            await self._answer(client)
            await client.call(
                "terminals.type", {"sid": self.sid, "keys": ["p:SHELL:touch made"], "submit": True}
            )
            await self._wait_for(client, "waiting", "idle")
            await self._answer(client)

    async def _play(self) -> None:
        """The program draws frames for a while."""
        async with self._client() as client:
            about = {"sid": self.sid}
            await client.call("terminals.take", {**about, "force": True})
            await client.call("terminals.type", {**about, "keys": ["b:10"]})
            await client.call("terminals.watch", about)
            await asyncio.sleep(self._random.uniform(0.5, WATCHED_S))
            await client.call("terminals.type", {**about, "keys": ["b:10"]})

    async def _resize(self) -> None:
        """A user resizes a window."""
        async with self._client() as client:
            await client.call("terminals.take", {"sid": self.sid, "force": True})
            for _ in range(self._random.randint(1, 20)):
                size = {"cols": self._random.randint(40, 200), "rows": self._random.randint(10, 60)}
                await client.call("terminals.resize", {"sid": self.sid, **size})
                await asyncio.sleep(0.02)

    async def _park(self) -> None:
        """Park the terminal; the next act opens it again."""
        async with self._client() as client:
            await parked(client, self.sid)

    async def _hand_over(self) -> None:
        """A chat message arrives without viewers; park the terminal if it isn't handed over."""
        message = self._key.message(
            id=f"{self._name}-{now_ms()}",
            text="SAY:by-chat",
            timestamp=now_ms(),
            chat_kind="thread" if self._key.thread else "direct",
            is_addressed=True,
        )
        inbound = self._stage.stack.fleet.inbound
        accepted = await inbound.append(message, agent=self._key.agent, deliver="channel")
        outcomes = self._stage.stack.fleet.outcomes
        about = (accepted.session.sid, accepted.entry_id)
        outcome = await outcomes.wait(*about, timeout_s=15.0)
        if outcome is None or not outcome.is_final:
            async with self._client() as client:
                await parked(client, self.sid)
            outcome = await outcomes.wait(*about, timeout_s=AWAY_S)
        assert outcome is not None, "the message was not answered"
        assert outcome.status == "done", outcome
