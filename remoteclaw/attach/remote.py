"""The remote terminal: opened, watched and typed in through the gateway, across reconnects."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remoteclaw.client.link import Address, GatewayRefused, Link
from remoteclaw.errors import RemoteClawError

#: The states of an open terminal.
OPEN_STATES = ("starting", "live")
#: How long the gateway may be unavailable before we leave, in seconds; a restart takes a few.
MAX_AWAY_S = 60.0
#: The codes of refusals that may be temporary, such as those of a terminal that is starting.
TEMPORARY_CODES = ("CONFLICT", "UNAVAILABLE", "TIMEOUT")
#: The pause before the keyboard is requested again, in seconds.
RETRY_TAKE_S = 0.3
#: The interval of polls for how a terminal ended, and how long to poll, in seconds.
END_POLL_S, END_WAIT_S = 0.25, 3.0
#: How long to wait for the last screen of an ended program, in seconds.
LAST_SCREEN_S = 3.0


class NotOpen(RemoteClawError):
    """Raised when the terminal to watch is not open."""


@dataclass(frozen=True, slots=True)
class TerminalTarget:
    """The terminal to attach to."""

    session: str | None = None
    """A session of any channel; None for the conversation `name` of this host with `agent`."""
    agent: str | None = None
    name: str = "main"
    prompt: str = ""

    @property
    def params(self) -> dict[str, str]:
        """The target as parameters of `terminals.open`."""
        conversation = {"session": self.session} if self.session else {"name": self.name}
        params = {**conversation, "agent": self.agent, "prompt": self.prompt}
        return {name: value for name, value in params.items() if value}


class RemoteTerminal:
    """A terminal of the gateway's host."""

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        on_change: Callable[[], None],
        on_frame: Callable[[Mapping[str, Any]], None],
        on_notice: Callable[[str, str], None],
    ) -> None:
        """`on_change` is called after changes of the attributes, and `on_frame` gets frames.

        `on_notice` gets `bell`, `clipboard` with a text, or `refused` with the reason why this
        viewer does not have the keyboard. None of them may block.
        """
        self.record: dict[str, Any] = {}
        """The terminal's record, from the gateway."""
        self.away_reason = ""
        """Why the gateway does not answer; empty if it does."""
        self.is_writer = False
        """Whether this viewer has the keyboard."""
        self.wants_keyboard = False
        self.is_taking = False
        """Whether the keyboard is requested but not granted yet; typed keys wait until then."""
        self.has_waited = False
        """Whether the terminal had to wait for a running turn."""
        self.gone: asyncio.Future[dict[str, Any] | None] = (
            asyncio.get_running_loop().create_future()
        )
        """Done with the terminal's record when it has ended, or with None after `MAX_AWAY_S`."""
        self._on_change, self._on_frame, self._on_notice = on_change, on_frame, on_notice
        self._name = ""
        """Our name as `writer` of the record, once we have had the keyboard."""
        self._size = (80, 24)
        self._event_count = 0
        """The number of events with a record. A reply to an earlier request has an older one."""
        self._rewatch = asyncio.Event()
        self._away_timer: asyncio.TimerHandle | None = None
        self._link = Link(
            address,
            token,
            opening=("health", {}),
            on_open=lambda _: self._rewatch.set(),
            on_event=self._event,
            on_problem=self._note_problem,
        )

    async def run(self) -> None:
        """Keep connected, until cancelled; see `Link.run`."""
        await self._link.run(connect_s=0)

    @property
    def sid(self) -> str:
        """The session's id."""
        return str(self.record["sid"])

    # -- opening and watching ------------------------------------------------------------------

    async def open(self, target: TerminalTarget, size: tuple[int, int]) -> None:
        """Open the terminal unless it is open. Raises `GatewayRefused`."""
        self._size = size
        opened = await self._link.ask(
            "terminals.open", {**target.params, "cols": size[0], "rows": size[1]}
        )
        self.has_waited = bool(opened["waits"])
        self.record = opened["terminal"]

    async def find(self, target: TerminalTarget) -> None:
        """Find the open terminal. Raises `NotOpen` or `GatewayRefused`."""
        if target.session:
            self.record = await self._link.ask("terminals.get", {"sid": target.session})
        else:
            params = {"agent": target.agent} if target.agent else {}
            reply = await self._link.ask("terminals.list", params)
            named = [each for each in reply["terminals"] if (each["name"] or "main") == target.name]
            self.record = next((each for each in named if each["state"] in OPEN_STATES), {})
        if self.record.get("state") not in OPEN_STATES:
            raise NotOpen(
                "No such terminal is open: `remoteclaw attach` without --read-only opens it."
            )

    async def keep_watching(self) -> None:
        """Watch on each connection, and take the keyboard if it is wanted and free.

        Raises `GatewayRefused`.
        """
        self._rewatch.set()
        while True:
            await self._rewatch.wait()
            self._rewatch.clear()
            try:
                await self._watch()
            except GatewayRefused:
                if not await self._has_ended():
                    raise

    async def _watch(self) -> None:
        event_count = self._event_count
        self.is_taking = self.wants_keyboard
        record = await self._link.ask("terminals.watch", {"sid": self.sid}, persists=True)
        self._update(record if event_count == self._event_count else self.record)
        while self.wants_keyboard:
            try:  # also if it was ours on the last connection: a new one does not have it
                await self.take(force=False)
                return
            except GatewayRefused as error:
                has_other_writer = error.code == "CONFLICT" and self.record["writer"] != ""
                if has_other_writer or error.code not in TEMPORARY_CODES:
                    self.is_writer = self.wants_keyboard = False
                    self._on_notice("refused", "" if has_other_writer else str(error))
                self.is_taking = False
                self._on_change()
            # The terminal is starting, or a restarted gateway is not attached to it yet.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_TAKE_S):
                    await self._rewatch.wait()
                    return

    async def _has_ended(self) -> bool:
        """Poll the terminal's record; return whether the terminal has ended."""
        with contextlib.suppress(TimeoutError, GatewayRefused):
            async with asyncio.timeout(END_WAIT_S):
                while True:
                    self._update(await self._link.ask("terminals.get", {"sid": self.sid}))
                    if self.gone.done():
                        return True
                    await asyncio.sleep(END_POLL_S)
        return False

    # -- requests ------------------------------------------------------------------------------

    async def take(self, *, force: bool) -> None:
        """Take the keyboard.

        Raises `GatewayRefused`; without `force`, also while another user has the keyboard.
        """
        cols, rows = self._size
        params = {"sid": self.sid, "cols": cols, "rows": rows, "force": force}
        event_count = self._event_count
        taken = await self._link.ask("terminals.take", params)
        self._name = taken["writer"]
        self.wants_keyboard = self.is_writer = True
        self.is_taking = False
        self._update(taken if event_count == self._event_count else self.record)

    async def type(self, keys: Sequence[str]) -> None:
        """Type keys, which are dropped without a connection. Raises `GatewayRefused`."""
        await self._send("terminals.type", {"keys": list(keys)})

    async def resize(self, size: tuple[int, int]) -> None:
        """Set the size of our window; the terminal is resized only while we have the keyboard."""
        self._size = size
        if self.is_writer and tuple(self.record.get(name) for name in ("cols", "rows")) != size:
            await self._send("terminals.resize", {"cols": size[0], "rows": size[1]})

    async def scrollback(self, start: int, count: int) -> dict[str, Any]:
        """Return the reply to `terminals.history`. Raises `GatewayRefused`."""
        return await self._link.ask(
            "terminals.history", {"sid": self.sid, "start": start, "count": count}
        )

    async def last_screen(self) -> str:
        """Return the text of the screen that an ended program left; empty if it is not kept."""
        with contextlib.suppress(GatewayRefused, TimeoutError):
            async with asyncio.timeout(LAST_SCREEN_S):
                screen = await self._link.ask_once("terminals.screen", {"sid": self.sid})
                lines = str(screen["text"] if screen else "").split("\n")
                return "\n".join(line for line in lines if line.strip())
        return ""

    async def leave(self) -> None:
        """Stop watching and release the keyboard, if the gateway is available."""
        with contextlib.suppress(GatewayRefused):
            await self._link.ask_once("terminals.leave", {"sid": self.sid})

    def watch_again(self) -> None:
        """Request a full frame, because one is missing."""
        self._rewatch.set()

    async def _send(self, method: str, params: Mapping[str, Any]) -> None:
        try:
            await self._link.ask_once(method, {"sid": self.sid, **params})
        except GatewayRefused as error:
            if error.code == "CONFLICT":
                self.is_writer = self.wants_keyboard = False
            raise

    # -- events --------------------------------------------------------------------------------

    def _update(self, record: dict[str, Any]) -> None:
        is_new_state = record["state"] != self.record["state"]
        self.record = record
        if self.is_writer and record["writer"] != self._name:
            # Another user has taken the keyboard, or it is free and we take it back.
            self.is_writer, self.wants_keyboard = False, not record["writer"]
            is_new_state = is_new_state or self.wants_keyboard
        if record["state"] not in OPEN_STATES:
            if not self.gone.done():
                self.gone.set_result(record)
        elif is_new_state:
            self.is_taking = self.wants_keyboard
            self._rewatch.set()
        self._on_change()

    def _event(self, name: str, payload: dict[str, Any]) -> None:
        if not self.record or payload.get("sid") != self.record["sid"]:
            return
        match name:
            case "terminal.screen":
                self._on_frame(payload)
            case "terminal.state":
                self._event_count += 1
                self._update(payload)
            case "terminal.bell":
                self._on_notice("bell", "")
            case "terminal.clipboard":
                self._on_notice("clipboard", payload["text"])
            case "terminal.gone":
                self._event_count += 1
                self._update(payload["record"])
                self._rewatch.set()  # another gateway may have the terminal now

    def _note_problem(self, reason: str) -> None:
        self.away_reason = reason
        self.is_taking = self.is_taking and not reason
        if not reason and self._away_timer:
            self._away_timer.cancel()
            self._away_timer = None
        elif reason and self._away_timer is None:
            self._away_timer = asyncio.get_running_loop().call_later(MAX_AWAY_S, self._give_up)
        self._on_change()

    def _give_up(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
