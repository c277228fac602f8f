"""The terminals of this host: watched over by this gateway, and shown to its clients.

It is the one client of each holder that reads output; of several gateways of a host, the one that
attached last has it. Any of them may be killed: the next one begins where it was.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict
from typing import Literal

from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable, TerminalsOff
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.terminal_state import Held, TerminalRecord
from remoteclaw.gateway.feeds import Feeds
from remoteclaw.gateway.held_terminal import HeldTerminal
from remoteclaw.gateway.resumable import Resumable
from remoteclaw.gateway.viewers import Room, Watcher
from remoteclaw.host.logs import frames_of
from remoteclaw.tty.keyboard import Typist
from remoteclaw.tty.saved_state import last_screen
from remoteclaw.tty.screen import Screen, warm_up
from remoteclaw.tty.watch import Watching

#: Interval of the look at what is open on this host, in seconds, and the shortest one after news.
LOOK_S, SOON_S = 1.0, 0.05
#: How many times to check whether a live terminal is attached, with the pause above.
ATTACH_LOOKS = 60
#: For how long no other gateway of this host has said that it is there, in seconds, until this one
#: takes back a terminal that it had to let go: more than twice as often as they say so.
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
        """Where this gateway is, if that is announced."""
        self.resumable = Resumable(home.host_id)
        self._fleet = fleet
        self._home = home
        self._host = home.host_id
        self._config = config
        self._feeds = feeds
        self._rooms: dict[str, Room] = {}
        self._held: dict[str, HeldTerminal] = {}
        self._let_go: set[str] = set()
        """The epochs of those that another gateway has."""
        self._alone_since = boottime()
        self._off: str | None = None
        """Why there are no screens; empty if there are, None while nobody has looked."""
        self._news = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        feeds.hear(keys.TERMINAL, lambda _sid: self._news.set())

    async def run(self) -> None:
        """Watch over them, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                self._news.clear()
                try:
                    await self._look()
                except (RedisUnavailable, RedisRefused):
                    pass
                except Exception as error:  # noqa: BLE001 - an odd record must not end the gateway
                    log.error("terminals can't be looked at: %s", frames_of(error))
                await asyncio.sleep(SOON_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._news.wait()

    # -- for those who watch -------------------------------------------------------------------

    def watch(self, watcher: Watcher, who: Typist, record: TerminalRecord) -> Room:
        """Show a terminal to a viewer, also one that starts. Raises `CallRefused`."""
        self._check_here(record)
        if record.sid not in self._rooms:
            self._rooms[record.sid] = Room(record)
        room = self._rooms[record.sid]
        room.join(watcher, who)
        return room

    def leave(self, watcher: Watcher, sid: str | None = None, *, for_good: bool = False) -> None:
        """Remove a viewer from a terminal, or from all; `for_good` if its user has said so."""
        for room in [self._rooms.get(sid)] if sid else list(self._rooms.values()):
            if room is not None:
                room.leave(watcher, for_good=for_good)

    def known(self, sid: str) -> TerminalRecord | None:
        """Return a terminal of this gateway, without asking Redis."""
        terminal = self._held.get(sid)
        return terminal.room.record if terminal else None

    def seen(self, record: TerminalRecord) -> TerminalRecord:
        """Return a terminal as it is known here, which may be newer than what is kept of it."""
        terminal = self._held.get(record.sid)
        is_known = terminal is not None and terminal.held.place.turn == record.entry
        return terminal.room.record if terminal and is_known and record.is_open else record

    async def shown(self, record: TerminalRecord) -> tuple[HeldTerminal, Watching]:
        """Return one that has a screen here. Raises `CallRefused`.

        A gateway that has just been started is given a moment to attach.
        """
        for _ in range(ATTACH_LOOKS if record.state == "live" else 1):
            self._check_here(record)
            terminal = self._held.get(record.sid)
            if terminal is not None and terminal.watching is not None:
                return terminal, terminal.watching
            await asyncio.sleep(SOON_S)
        raise CallRefused("CONFLICT", NOT_HERE_YET)

    async def last_screen(self, record: TerminalRecord) -> Screen:
        """Return the screen with which a terminal of this host ended. Raises `CallRefused`."""
        if record.host == self._host and await self._has_screens():
            screen = await asyncio.to_thread(last_screen, self._home.terminals / record.sid)
            if screen is not None:
                return screen
        raise CallRefused("CONFLICT", NOT_OPEN)

    async def output(
        self, record: TerminalRecord, offset: int | None
    ) -> AsyncGenerator[tuple[int, bytes | Screen], None]:
        """Yield the raw output from an offset on, each part with its own, until the terminal ends.

        Output that is not kept is replaced by the screen, as it is at the offset beside it.
        Raises `CallRefused`.
        """
        _, watching = await self.shown(record)
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
                await tail.more()

    def _check_here(self, record: TerminalRecord) -> None:
        if not record.is_open:
            raise CallRefused("CONFLICT", NOT_OPEN)
        if record.host and record.host != self._host:
            raise CallRefused(
                "CONFLICT",
                f"The terminal is open on {record.host}: only that host's gateway shows it.",
            )
        if self._off:
            raise CallRefused("UNAVAILABLE", self._off)
        if self._let_go and record.sid not in self._held:
            raise CallRefused("UNAVAILABLE", ANOTHER)

    # -- looking after them --------------------------------------------------------------------

    async def _look(self) -> None:
        assert self._tasks is not None, "it runs"
        every = await self._fleet.terminals.held(self._host)
        await self._see_others({held.epoch for held in every})
        for held in every:
            is_known = held.sid in self._held or held.epoch in self._let_go
            if not is_known and await self._begin(held):
                self._tasks.create_task(self._look_after(self._held[held.sid]))
        await self._look_at_rooms()

    async def _see_others(self, open_now: set[str]) -> None:
        """Take back what another gateway of this host had, once there is none."""
        self._let_go &= open_now
        if not self._let_go:
            return
        address = await self._fleet.gateways.address(self._host)
        if self.address is None or address != self.address:
            self._alone_since = boottime()
        elif boottime() - self._alone_since > ALONE_S:
            self._let_go.clear()

    async def _begin(self, held: Held) -> bool:
        """Begin to watch over a terminal; return whether it is still the session's."""
        record = await self._fleet.terminals.record(held.sid)
        if record is None or record.entry != held.place.turn:
            return False
        room = self._rooms.get(held.sid)
        if room and room.record.entry != record.entry:
            room.end()  # it shows the one before
            room = None
        if room is None:
            room = self._rooms[held.sid] = Room(record)
        self._held[held.sid] = HeldTerminal(self._fleet, held, room, self._config)
        return True

    async def _look_after(self, terminal: HeldTerminal) -> None:
        held, bell = terminal.held, keys.bell(terminal.held.sid)
        self._feeds.hear(bell, lambda _: terminal.heard())
        how: Literal["ended", "replaced"] = "ended"
        try:
            how = await terminal.run(has_screens=await self._has_screens())
        except Exception as error:  # noqa: BLE001 - one terminal's failure is not the others'
            log.error("the terminal of %s is not watched: %s", held.sid[:8], frames_of(error))
            await asyncio.sleep(LOOK_S)
        finally:
            self._feeds.ignore(bell)
            del self._held[held.sid]
        if how == "replaced":
            self._let_go.add(held.epoch)
            self._alone_since = boottime()
            self._rooms.pop(held.sid).end()
        self._news.set()

    async def _has_screens(self) -> bool:
        if self._off is None:
            self._off = await asyncio.to_thread(_problem)
            if self._off:
                log.warning("%s", self._off)
        return not self._off

    async def _look_at_rooms(self) -> None:
        """Tell those who watch one that is not there yet, or not any more."""
        sids = [sid for sid in self._rooms if sid not in self._held]
        records = {each.sid: each for each in await self._fleet.terminals.records(sids)}
        for sid in sids:
            room, record = self._rooms[sid], records.get(sid)
            if sid in self._held:
                continue
            if record is None or record.entry != room.record.entry:
                self._rooms.pop(sid).end()
                continue
            known = asdict(record)
            del known["viewers"], known["writer"]
            room.change(**{**known, "key": record.key})
            if not record.is_open:
                self._rooms.pop(sid).end()
            elif not room.count:
                del self._rooms[sid]


def _problem() -> str:
    """Return why there are no screens here; empty if there are."""
    try:
        warm_up()
    except TerminalsOff as error:
        return str(error)
    return ""
