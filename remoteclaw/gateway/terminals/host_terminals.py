"""The terminals of this host: maintained by this gateway, and shown to its clients.

A holder sends a terminal's output to one gateway only: of several gateways on a host, the one that
attached last. If that gateway is killed, the next one continues where it was.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from dataclasses import asdict
from typing import Literal

from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable, TerminalsOff
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.terminals.state import HeldLease, TerminalRecord
from remoteclaw.gateway.feeds import EventReceiver, Feeds
from remoteclaw.gateway.terminals.held_terminal import HeldTerminal
from remoteclaw.gateway.terminals.resumable import ResumableTerminals
from remoteclaw.gateway.terminals.viewers import TerminalViewers, ViewerConnection
from remoteclaw.holder.runs import has_terminals
from remoteclaw.host.logs import frames_of
from remoteclaw.tty.keyboard import Typist
from remoteclaw.tty.saved_state import last_screen
from remoteclaw.tty.screen import Screen, warm_up
from remoteclaw.tty.watch import WatchedTerminal

#: Interval of the check which terminals are open on this host, in seconds, and the minimum pause
#: between two checks when changes are announced.
CHECK_S, PAUSE_S = 1.0, 0.05
#: How many times a call checks whether a live terminal is attached, with `PAUSE_S` in between.
MAX_ATTACH_CHECKS = 60
#: How long no other gateway of this host must have announced itself before this one attaches again
#: to a terminal that another gateway took, in seconds: over twice the interval of announcements.
ALONE_S = 12.0

NOT_OPEN = "No terminal is open in this session."
NOT_HERE_YET = "The terminal is still starting: try again in a moment."
ANOTHER = "Another gateway of this host has this terminal now: connect again."

log = logging.getLogger(__name__)


class HostTerminals:
    """The terminals that are open on this host."""

    def __init__(
        self, fleet: Fleet, home: Home, config: Callable[[], Config], feeds: Feeds
    ) -> None:
        """`config` returns the current configuration."""
        self.address: str | None = None
        """This gateway's address, if it is announced to other processes."""
        self.resumable = ResumableTerminals(home.host_id)
        self._fleet = fleet
        self._home = home
        self._host = home.host_id
        self._config = config
        self._feeds = feeds
        self._viewers: dict[str, TerminalViewers] = {}
        self._listeners: dict[str, set[EventReceiver]] = {}
        """The event streams of each session."""
        self._held: dict[str, HeldTerminal] = {}
        self._replaced: set[str] = set()
        """The epochs of the terminals that another gateway of this host has attached to."""
        self._other_seen_at = boottime()
        """When another gateway of this host was announced last, or when this one started."""
        self._screen_problem: str | None = None
        """Why screens can't be shown on this host; empty if they can, None before the check."""
        self._wake = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        feeds.add_listener(keys.TERMINAL_UPDATES, lambda _sid: self._wake.set())

    async def run(self) -> None:
        """Maintain the terminals of this host, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                self._wake.clear()
                try:
                    await self._check_terminals()
                except (RedisUnavailable, RedisRefused):
                    pass
                except Exception as error:  # noqa: BLE001 - a broken record must not end it
                    log.error("terminals can't be checked: %s", frames_of(error))
                await asyncio.sleep(PAUSE_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_S):
                        await self._wake.wait()

    # -- called by handlers and doors ----------------------------------------------------------

    def watch(
        self, connection: ViewerConnection, typist: Typist | None, record: TerminalRecord
    ) -> TerminalViewers:
        """Add a viewer to an open terminal, which may still start. A guest has no `typist`.

        Raises `CallRefused`.
        """
        self._check_here(record)
        if record.sid not in self._viewers:
            self._viewers[record.sid] = TerminalViewers(record, self._listeners)
        viewers = self._viewers[record.sid]
        viewers.join(connection, typist)
        return viewers

    def leave(
        self, connection: ViewerConnection, sid: str | None = None, *, for_good: bool = False
    ) -> None:
        """Remove a viewer from the terminal of `sid`, or from all terminals.

        `for_good` if its user left on purpose.
        """
        for viewers in [self._viewers.get(sid)] if sid else list(self._viewers.values()):
            if viewers is not None:
                viewers.leave(connection, for_good=for_good)

    @contextlib.contextmanager
    def listening(self, sid: str, listener: EventReceiver) -> Iterator[None]:
        """Count an event stream of a session as a viewer of its terminals while the block runs."""
        listeners = self._listeners.setdefault(sid, set())
        listeners.add(listener)
        if viewers := self._viewers.get(sid):
            viewers.refresh()
        try:
            yield
        finally:
            listeners.discard(listener)
            if not listeners:
                del self._listeners[sid]
            if viewers := self._viewers.get(sid):
                viewers.note_leaving()

    def connections_of(self, sid: str) -> Collection[ViewerConnection]:
        """Return the connections over which a terminal of this host is watched."""
        viewers = self._viewers.get(sid)
        return viewers.connections if viewers else ()

    def held_record(self, sid: str) -> TerminalRecord | None:
        """Return the record of a terminal that this gateway maintains, without reading Redis."""
        terminal = self._held.get(sid)
        return terminal.viewers.record if terminal else None

    def newest_record(self, record: TerminalRecord) -> TerminalRecord:
        """Return this gateway's record of the terminal, which may be newer than Redis has it.

        Return `record` itself if this gateway does not maintain the terminal.
        """
        terminal = self._held.get(record.sid)
        is_same = terminal is not None and terminal.held.place.turn == record.entry
        return terminal.viewers.record if terminal and is_same and record.is_open else record

    async def attached(self, record: TerminalRecord) -> tuple[HeldTerminal, WatchedTerminal]:
        """Return a terminal that this gateway is attached to. Raises `CallRefused`.

        If the terminal is live, wait for a gateway that has just started to attach to it.
        """
        for _ in range(MAX_ATTACH_CHECKS if record.state == "live" else 1):
            self._check_here(record)
            terminal = self._held.get(record.sid)
            if terminal is not None and terminal.watching is not None:
                return terminal, terminal.watching
            await asyncio.sleep(PAUSE_S)
        raise CallRefused("CONFLICT", NOT_HERE_YET)

    async def last_screen(self, record: TerminalRecord) -> Screen:
        """Return the last screen of an ended terminal of this host. Raises `CallRefused`."""
        if record.host == self._host and await self._can_show_screens():
            screen = await asyncio.to_thread(last_screen, self._home.terminals / record.sid)
            if screen is not None:
                return screen
        raise CallRefused("CONFLICT", NOT_OPEN)

    async def output(
        self, record: TerminalRecord, offset: int | None
    ) -> AsyncGenerator[tuple[int, bytes | Screen], None]:
        """Yield the raw output after `offset` in parts, each with its own offset, until the end.

        If `offset` is None, or the output there is no longer kept, the first part is the screen as
        it is at the offset yielded with it. Raises `CallRefused`.
        """
        _, watching = await self.attached(record)
        tail = watching.tail
        while True:
            data = None if offset is None else tail.since(offset)
            if data is None or offset is None:
                offset = tail.end
                yield offset, watching.screen
            elif data:
                yield offset, data
                offset += len(data)
            elif tail.is_closed:
                return
            else:
                await tail.wait_for_more()

    def _check_here(self, record: TerminalRecord) -> None:
        if not record.is_open:
            raise CallRefused("CONFLICT", NOT_OPEN)
        if record.host and record.host != self._host:
            raise CallRefused(
                "CONFLICT",
                f"The terminal is open on {record.host}: only that host's gateway shows it.",
            )
        if self._screen_problem:
            raise CallRefused("UNAVAILABLE", self._screen_problem)
        if self._replaced and record.sid not in self._held:
            raise CallRefused("UNAVAILABLE", ANOTHER)

    # -- maintenance ---------------------------------------------------------------------------

    async def _check_terminals(self) -> None:
        assert self._tasks is not None, "it runs"
        if not (self._held or self._replaced or self._viewers) and not await asyncio.to_thread(
            has_terminals, self._home.runs
        ):
            return
        open_terminals = await self._fleet.terminals.held(self._host)
        await self._retake({held.epoch for held in open_terminals})
        for held in open_terminals:
            is_known = held.sid in self._held or held.epoch in self._replaced
            if not is_known and await self._begin(held):
                self._tasks.create_task(self._maintain(self._held[held.sid]))
        await self._update_viewers()

    async def _retake(self, open_epochs: set[str]) -> None:
        """Attach again to terminals that another gateway of this host took, once it has ended."""
        self._replaced &= open_epochs
        if not self._replaced:
            return
        address = await self._fleet.gateways.address(self._host)
        if self.address is None or address != self.address:
            self._other_seen_at = boottime()
        elif boottime() - self._other_seen_at > ALONE_S:
            self._replaced.clear()

    async def _begin(self, held: HeldLease) -> bool:
        """Begin to maintain a terminal; return whether it is still the session's terminal."""
        record = await self._fleet.terminals.record(held.sid)
        if record is None or record.entry != held.place.turn:
            return False
        viewers = self._viewers.get(held.sid)
        if viewers and viewers.record.entry != record.entry:
            viewers.end()  # they watch the session's previous terminal
            viewers = None
        if viewers is None:
            viewers = self._viewers[held.sid] = TerminalViewers(record, self._listeners)
        self._held[held.sid] = HeldTerminal(self._fleet, held, viewers, self._config)
        return True

    async def _maintain(self, terminal: HeldTerminal) -> None:
        held, bell = terminal.held, keys.bell(terminal.held.sid)

        def on_bell(_: bytes | None) -> None:
            terminal.check_session()

        self._feeds.add_listener(bell, on_bell)
        end: Literal["ended", "replaced"] = "ended"
        try:
            end = await terminal.run(has_screens=await self._can_show_screens())
        except Exception as error:  # noqa: BLE001 - must not affect other terminals
            log.error("the terminal of %s is not watched: %s", held.sid[:8], frames_of(error))
            await asyncio.sleep(CHECK_S)
        finally:
            self._feeds.remove_listener(bell, on_bell)
            del self._held[held.sid]
        if end == "replaced":
            self._replaced.add(held.epoch)
            self._other_seen_at = boottime()
            self._viewers.pop(held.sid).end()
        self._wake.set()

    async def _can_show_screens(self) -> bool:
        if self._screen_problem is None:
            self._screen_problem = await asyncio.to_thread(_problem_of_screens)
            if self._screen_problem:
                log.warning("%s", self._screen_problem)
        return not self._screen_problem

    async def _update_viewers(self) -> None:
        """Update the viewers of terminals that are still starting or have ended."""
        sids = [sid for sid in self._viewers if sid not in self._held]
        records = {each.sid: each for each in await self._fleet.terminals.records(sids)}
        for sid in sids:
            viewers, record = self._viewers[sid], records.get(sid)
            if sid in self._held:
                continue
            if record is None or record.entry != viewers.record.entry:
                self._viewers.pop(sid).end()
                continue
            fields = asdict(record)
            del fields["viewers"], fields["writer"]
            viewers.change(**{**fields, "key": record.key})
            if not record.is_open:
                self._viewers.pop(sid).end()
            elif not viewers.count:
                del self._viewers[sid]


def _problem_of_screens() -> str:
    """Return why screens can't be shown on this host; empty if they can."""
    try:
        warm_up()
    except TerminalsOff as error:
        return str(error)
    return ""
