"""Rooms: who watches a terminal of this gateway, who types in it, and what they are told."""

import functools
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.terminal_state import TerminalRecord
from remoteclaw.gateway.feeds import Audience
from remoteclaw.tools.terminals import Terminal
from remoteclaw.tty.keyboard import Keyboard, Typist
from remoteclaw.tty.pacing import MAX_VIEWERS, Pictured, Viewer, Viewers

#: The events of terminals.
EVENTS = (
    "terminal.screen",
    "terminal.state",
    "terminal.bell",
    "terminal.clipboard",
    "terminal.gone",
)
#: How many calls that have typed are remembered of a terminal: they may come again by their names.
MAX_TYPED = 1000


class Watcher(Audience, Protocol):
    """A connection over which a terminal is watched."""

    @property
    def is_slow(self) -> bool:
        """Whether much of what it was sent has not been read."""


@dataclass(frozen=True, slots=True)
class _Seat:
    who: Typist
    viewer: Viewer


@dataclass(eq=False, slots=True)
class Room:
    """The viewers of one terminal, also while it starts."""

    record: TerminalRecord
    """The terminal as they see it."""
    keyboard: Keyboard = field(default_factory=Keyboard)
    alone_since: float = field(default_factory=boottime)
    """Since when it has no viewer."""
    _typed: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """The names of the newest calls that have typed something."""
    _seats: dict[Watcher, _Seat] = field(default_factory=dict)
    _viewers: Viewers | None = None
    _is_untold: bool = False

    @property
    def count(self) -> int:
        """How many watch."""
        return len(self._seats)

    # -- who watches ---------------------------------------------------------------------------

    def join(self, watcher: Watcher, who: Typist) -> None:
        """Add a viewer, who first gets the whole screen.

        Raises `CallRefused` if it is full.
        """
        if watcher not in self._seats:
            if len(self._seats) >= MAX_VIEWERS:
                raise CallRefused(
                    "UNAVAILABLE",
                    f"{MAX_VIEWERS} viewers watch this terminal already, the most there may be.",
                )
            send = functools.partial(self._send, watcher)
            self._seats[watcher] = _Seat(who, Viewer(send, lambda: watcher.is_slow))
        if self._viewers:
            self._viewers.join(self._seats[watcher].viewer, boottime())
        self.seen()

    def leave(self, watcher: Watcher, *, for_good: bool) -> None:
        """Remove a viewer; `for_good` if its user has said so."""
        self.keyboard.left(id(watcher), now=boottime(), for_good=for_good)
        if seat := self._seats.pop(watcher, None):
            if self._viewers:
                self._viewers.all.remove(seat.viewer)
            if not self._seats:
                self.alone_since = boottime()
        self.seen()

    def _send(self, watcher: Watcher, frame: dict[str, Any]) -> None:
        watcher.tell("terminal.screen", {"sid": self.record.sid, **frame})

    # -- who types -----------------------------------------------------------------------------

    def has_typed(self, call: str) -> bool:
        """Whether a call has typed already: the same call may come again."""
        return call in self._typed

    def typed(self, call: str) -> None:
        """Note that a call has typed."""
        self._typed[call] = None
        while len(self._typed) > MAX_TYPED:
            self._typed.popitem(last=False)

    # -- what they see -------------------------------------------------------------------------

    def show(self, screen: Pictured) -> None:
        """Show a screen from now on."""
        self._viewers = Viewers(screen)
        for seat in self._seats.values():
            self._viewers.join(seat.viewer, boottime())

    def hide(self) -> None:
        """Show how the screen is now to all, and then no more of it."""
        if self._viewers:
            for viewer in self._viewers.all:
                viewer.next_at, viewer.is_typing = 0.0, True
            self._viewers.send(boottime())
            self._viewers = None

    def draw(self) -> float | None:
        """Send what is due; return in how many seconds to look again, None if nothing is left."""
        return self._viewers.send(boottime()) if self._viewers else None

    def seen(self) -> None:
        """Update who watches and who types; the number of viewers is told a while later."""
        self.keyboard.lapse(now=boottime())
        for seat in self._seats.values():
            seat.viewer.is_typing = self.keyboard.is_held_by(seat.who)
        if self.record.viewers != self.count:
            self.record = replace(self.record, viewers=self.count)
            self._is_untold = True
        self.change(writer=self.keyboard.name)

    def change(self, **changes: Any) -> None:
        """Change what all see of the terminal, and tell them if it was otherwise."""
        changed = replace(self.record, **changes)
        if changed == self.record:
            return
        if (changed.state, changed.activity) != (self.record.state, self.record.activity):
            changed = replace(changed, since_ms=changes.get("since_ms", now_ms()))
        self.record, self._is_untold = changed, True
        self.tell_state()

    def tell_state(self) -> None:
        """Tell all what they have not been told of the terminal."""
        if self._is_untold:
            self._is_untold = False
            self.tell("terminal.state", terminal_of(self.record).told())

    def tell(self, event: str, payload: dict[str, Any]) -> None:
        """Tell all of an event."""
        for watcher in list(self._seats):
            watcher.tell(event, payload)

    def end(self) -> None:
        """Tell all that the terminal is gone from here, and let them go."""
        self.hide()
        self.tell(
            "terminal.gone", {"sid": self.record.sid, "record": terminal_of(self.record).told()}
        )
        self._seats.clear()


def terminal_of(record: TerminalRecord) -> Terminal:
    """Return a terminal as methods and events tell of it."""
    return Terminal.of(
        record,
        session_key=str(record.key),
        reason=record.reason or record.needs,
        opened_by=record.by,
        resumable=record.resumable and not record.is_open,
    )
