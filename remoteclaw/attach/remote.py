"""The far terminal: opened, watched and typed in over the gateway, whichever connection it is."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remoteclaw.client.link import Address, GatewayRefused, Link
from remoteclaw.errors import RemoteClawError

#: The states of a terminal that is there.
OPEN = ("starting", "live")
#: How long the gateway may be away until we leave, in seconds: a restart takes a few.
AWAY_S = 60.0
#: Refusals that are over later, such as of a terminal that starts.
FOR_NOW = ("CONFLICT", "UNAVAILABLE", "TIMEOUT")
#: The pause until the keyboard is asked for again, in seconds.
AGAIN_S = 0.3
#: Pause between two questions how a terminal ended, and how long to ask, in seconds.
ASK_EVERY_S, ASK_S = 0.25, 3.0


class NotOpen(RemoteClawError):
    """Raised when there is no terminal to look at."""


@dataclass(frozen=True, slots=True)
class Target:
    """Which terminal."""

    session: str | None = None
    """A session of any channel; else it is a conversation of this host with an agent."""
    agent: str | None = None
    name: str = "main"
    prompt: str = ""

    @property
    def params(self) -> dict[str, str]:
        """Return it as parameters of `terminals.open`."""
        whose = {"session": self.session} if self.session else {"name": self.name}
        given = {**whose, "agent": self.agent, "prompt": self.prompt}
        return {name: value for name, value in given.items() if value}


class Far:
    """A terminal somewhere else."""

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        changed: Callable[[], None],
        drawn: Callable[[Mapping[str, Any]], None],
        said: Callable[[str, str], None],
    ) -> None:
        """`changed` is told that something else is known, `drawn` gets frames.

        `said` gets `bell`, `clipboard` with a text, and `refused` with why the keyboard is not
        ours. None of them may wait.
        """
        self.record: dict[str, Any] = {}
        """The terminal, as the gateway tells of it."""
        self.away = ""
        """The reason why the gateway does not answer; empty if it does."""
        self.is_writer = False
        """Whether this viewer is the writer."""
        self.wants_keyboard = False
        self.is_taking = False
        """Whether the keyboard was asked for and not yet given; typed keys wait until then."""
        self.has_waited = False
        """Whether the terminal had to wait for a running turn."""
        self.gone: asyncio.Future[dict[str, Any] | None] = (
            asyncio.get_running_loop().create_future()
        )
        """The record of a terminal that is there no more; None if the gateway is away for long."""
        self._changed, self._drawn, self._said = changed, drawn, said
        self._name = ""
        """What others are told of us, once we have typed."""
        self._size = (80, 24)
        self._heard = 0
        """How often it was told how the terminal stands: what was asked before is older."""
        self._again = asyncio.Event()
        self._giving_up: asyncio.TimerHandle | None = None
        self._link = Link(
            address,
            token,
            opening=("health", {}),
            opened=lambda _: self._again.set(),
            event=self._event,
            problem=self._problem,
        )

    async def run(self) -> None:
        """Keep connected, until cancelled; see `Link.run`."""
        await self._link.run(patience_s=0)

    @property
    def sid(self) -> str:
        """The session's id."""
        return str(self.record["sid"])

    # -- opening and watching ------------------------------------------------------------------

    async def open(self, target: Target, size: tuple[int, int]) -> None:
        """Open it, unless it is open. Raises `GatewayRefused`."""
        self._size = size
        opened = await self._link.ask(
            "terminals.open", {**target.params, "cols": size[0], "rows": size[1]}
        )
        self.has_waited = bool(opened["waits"])
        self.record = opened["terminal"]

    async def find(self, target: Target) -> None:
        """Find it, and open nothing. Raises `NotOpen`, or `GatewayRefused`."""
        if target.session:
            self.record = await self._link.ask("terminals.get", {"sid": target.session})
        else:
            params = {"agent": target.agent} if target.agent else {}
            told = await self._link.ask("terminals.list", params)
            own = [each for each in told["terminals"] if (each["name"] or "main") == target.name]
            self.record = next((each for each in own if each["state"] in OPEN), {})
        if self.record.get("state") not in OPEN:
            raise NotOpen(
                "No such terminal is open: `remoteclaw attach` without --read-only opens it."
            )

    async def stay(self) -> None:
        """Watch it, on each connection; take the keyboard if it is wanted and free.

        Raises `GatewayRefused`.
        """
        self._again.set()
        while True:
            await self._again.wait()
            self._again.clear()
            try:
                await self._watch()
            except GatewayRefused:
                if not await self._has_ended():
                    raise

    async def _watch(self) -> None:
        heard = self._heard
        self.is_taking = self.wants_keyboard
        told = await self._link.ask("terminals.watch", {"sid": self.sid}, persists=True)
        self._learn(told if heard == self._heard else self.record)
        while self.wants_keyboard:
            try:  # on this connection, too
                await self.take(force=False)
                return
            except GatewayRefused as error:
                is_another_s = error.code == "CONFLICT" and self.record["writer"] != ""
                if is_another_s or error.code not in FOR_NOW:
                    self.is_writer = self.wants_keyboard = False
                    self._said("refused", "" if is_another_s else str(error))
                self.is_taking = False
                self._changed()
            # It starts, or a gateway that has just started isn't attached yet.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._again.wait()
                    return

    async def _has_ended(self) -> bool:
        """Ask how a terminal has ended; return whether it has."""
        with contextlib.suppress(TimeoutError, GatewayRefused):
            async with asyncio.timeout(ASK_S):
                while True:
                    self._learn(await self._link.ask("terminals.get", {"sid": self.sid}))
                    if self.gone.done():
                        return True
                    await asyncio.sleep(ASK_EVERY_S)
        return False

    # -- what is asked of it -------------------------------------------------------------------

    async def take(self, *, force: bool) -> None:
        """Take the keyboard. Raises `GatewayRefused`, also while another one types."""
        cols, rows = self._size
        params = {"sid": self.sid, "cols": cols, "rows": rows, "force": force}
        heard = self._heard
        taken = await self._link.ask("terminals.take", params)
        self._name = taken["writer"]
        self.wants_keyboard = self.is_writer = True
        self.is_taking = False
        self._learn(taken if heard == self._heard else self.record)

    async def type(self, keys: Sequence[str]) -> None:
        """Type, now or never. Raises `GatewayRefused`."""
        await self._do("terminals.type", {"keys": list(keys)})

    async def paste(self, text: str) -> None:
        """Paste, now or never. Raises `GatewayRefused`."""
        await self._do("terminals.paste", {"text": text})

    async def resize(self, size: tuple[int, int]) -> None:
        """Give it the size of our window, if the keyboard is ours."""
        self._size = size
        if self.is_writer and tuple(self.record.get(name) for name in ("cols", "rows")) != size:
            await self._do("terminals.resize", {"cols": size[0], "rows": size[1]})

    async def rows(self, start: int, count: int) -> dict[str, Any]:
        """Return rows that have left its screen. Raises `GatewayRefused`."""
        return await self._link.ask(
            "terminals.history", {"sid": self.sid, "start": start, "count": count}
        )

    async def leave(self) -> None:
        """Give the keyboard back, if the gateway is there."""
        with contextlib.suppress(GatewayRefused):
            await self._link.tell("terminals.leave", {"sid": self.sid})

    def watch_again(self) -> None:
        """Ask for the whole screen: something is missing."""
        self._again.set()

    async def _do(self, method: str, params: Mapping[str, Any]) -> None:
        try:
            await self._link.tell(method, {"sid": self.sid, **params})
        except GatewayRefused as error:
            if error.code == "CONFLICT":
                self.is_writer = self.wants_keyboard = False
            raise

    # -- what is told --------------------------------------------------------------------------

    def _learn(self, record: dict[str, Any]) -> None:
        has_moved = record["state"] != self.record["state"]
        self.record = record
        if self.is_writer and record["writer"] != self._name:
            # Another user has it; if it is free, we want it back.
            self.is_writer, self.wants_keyboard = False, not record["writer"]
            has_moved = has_moved or self.wants_keyboard
        if record["state"] not in OPEN:
            if not self.gone.done():
                self.gone.set_result(record)
        elif has_moved:
            self.is_taking = self.wants_keyboard
            self._again.set()
        self._changed()

    def _event(self, name: str, payload: dict[str, Any]) -> None:
        if not self.record or payload.get("sid") != self.record["sid"]:
            return
        match name:
            case "terminal.screen":
                self._drawn(payload)
            case "terminal.state":
                self._heard += 1
                self._learn(payload)
            case "terminal.bell":
                self._said("bell", "")
            case "terminal.clipboard":
                self._said("clipboard", payload["text"])
            case "terminal.gone":
                self._heard += 1
                self._learn(payload["record"])
                self._again.set()  # it may only be gone from this gateway

    def _problem(self, words: str) -> None:
        self.away = words
        self.is_taking = self.is_taking and not words
        if not words and self._giving_up:
            self._giving_up.cancel()
            self._giving_up = None
        elif words and self._giving_up is None:
            self._giving_up = asyncio.get_running_loop().call_later(AWAY_S, self._give_up)
        self._changed()

    def _give_up(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
