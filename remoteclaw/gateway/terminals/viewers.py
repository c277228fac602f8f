"""The viewers of a terminal at this gateway: who watches, who types, and the events they get."""

import functools
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.terminals.state import TerminalRecord
from remoteclaw.gateway.feeds import EventReceiver
from remoteclaw.tools.terminals import Terminal
from remoteclaw.tty.keyboard import Keyboard, Typist
from remoteclaw.tty.pacing import MAX_VIEWERS, FramePacer, FrameSource, PacedViewer

#: The most guests of one terminal: the other places are for users, who are never locked out.
MAX_GUESTS = MAX_VIEWERS - 8
#: The events of a terminal.
EVENTS = (
    "terminal.screen",
    "terminal.state",
    "terminal.bell",
    "terminal.clipboard",
    "terminal.gone",
)
TOO_MANY_GUESTS = (
    f"{MAX_GUESTS} people watch this terminal by links already, which is the maximum: try again "
    "later."
)
#: At most this many ids of calls that have typed are remembered for a terminal. A client that got
#: no answer may repeat a call by its id.
MAX_TYPED_CALLS = 1000


class ViewerConnection(EventReceiver, Protocol):
    """A connection over which a terminal is watched."""

    @property
    def is_slow(self) -> bool:
        """Whether the client has not yet read much of what it was sent."""


@dataclass(frozen=True, slots=True)
class _ConnectedViewer:
    typist: Typist | None
    """The user, who may type; None for a guest."""
    pacing: PacedViewer


@dataclass(eq=False, slots=True)
class TerminalViewers:
    """The viewers of one terminal, even while it starts."""

    record: TerminalRecord
    """The terminal's record, as viewers see it."""
    all_listeners: Mapping[str, Collection[EventReceiver]] = field(default_factory=dict)
    """The event streams of each session, which are viewers without frames."""
    keyboard: Keyboard = field(default_factory=Keyboard)
    alone_since: float = field(default_factory=boottime)
    """When the last user left, or when this object was made, on the clock of `boottime()`."""
    _typed_calls: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """The ids of the newest calls that have typed something."""
    _connected: dict[ViewerConnection, _ConnectedViewer] = field(default_factory=dict)
    _pacing: FramePacer | None = None
    """Sends frames of the screen; None while no screen is shown."""
    _has_unsent_state: bool = False

    @property
    def count(self) -> int:
        """The number of viewers, guests included."""
        return len(self._connected) + len(self._listeners)

    @property
    def connections(self) -> Collection[ViewerConnection]:
        """The connections of the viewers, without the event streams."""
        return tuple(self._connected)

    @property
    def user_count(self) -> int:
        """The number of viewers without guests, for whom no terminal is kept open."""
        return self.count - self._guest_count

    @property
    def _guest_count(self) -> int:
        return sum(viewer.typist is None for viewer in self._connected.values())

    @property
    def _listeners(self) -> Collection[EventReceiver]:
        return self.all_listeners.get(self.record.sid, ())

    # -- watching ------------------------------------------------------------------------------

    def join(self, connection: ViewerConnection, typist: Typist | None) -> None:
        """Add a viewer and send it the whole screen. A guest has no `typist`.

        Raises `CallRefused` if the terminal has `MAX_VIEWERS` viewers already, or `MAX_GUESTS`.
        """
        if connection not in self._connected:
            if typist is None and self._guest_count >= MAX_GUESTS:
                raise CallRefused("UNAVAILABLE", TOO_MANY_GUESTS)
            if len(self._connected) >= MAX_VIEWERS:
                raise CallRefused(
                    "UNAVAILABLE",
                    f"{MAX_VIEWERS} viewers watch this terminal already: that is the maximum.",
                )
            send = functools.partial(self._send, connection)
            pacing = PacedViewer(send, lambda: connection.is_slow)
            self._connected[connection] = _ConnectedViewer(typist, pacing)
        if self._pacing:
            self._pacing.join(self._connected[connection].pacing, boottime())
        self.refresh()

    def leave(self, connection: ViewerConnection, *, for_good: bool) -> None:
        """Remove a viewer; `for_good` if its user left the terminal on purpose."""
        self.keyboard.note_disconnect(id(connection), now=boottime(), for_good=for_good)
        if viewer := self._connected.pop(connection, None):
            if self._pacing:
                self._pacing.all.remove(viewer.pacing)
            if viewer.typist is not None:
                self.note_leaving()
        self.refresh()

    def note_leaving(self) -> None:
        """Note that a user's viewer or listener has left."""
        if not self.user_count:
            self.alone_since = boottime()
        self.refresh()

    def _send(self, connection: ViewerConnection, frame: dict[str, Any]) -> None:
        connection.send_event("terminal.screen", {"sid": self.record.sid, **frame})

    # -- typing --------------------------------------------------------------------------------

    def has_typed(self, call_id: str) -> bool:
        """Whether a call has typed already; clients may repeat a call by its id."""
        return call_id in self._typed_calls

    def note_typed(self, call_id: str) -> None:
        """Remember that a call has typed."""
        self._typed_calls[call_id] = None
        while len(self._typed_calls) > MAX_TYPED_CALLS:
            self._typed_calls.popitem(last=False)

    # -- events --------------------------------------------------------------------------------

    def show(self, screen: FrameSource) -> None:
        """Start sending a screen to all viewers."""
        self._pacing = FramePacer(screen)
        for viewer in self._connected.values():
            self._pacing.join(viewer.pacing, boottime())

    def hide(self) -> None:
        """Send the current screen to all viewers, then stop sending it."""
        if self._pacing:
            for viewer in self._pacing.all:
                viewer.next_at, viewer.is_typing = 0.0, True
            self._pacing.send_due(boottime())
            self._pacing = None

    def draw(self) -> float | None:
        """Send the frames that are due.

        Return the seconds until the next frame is due; None if no frame is left to send.
        """
        return self._pacing.send_due(boottime()) if self._pacing else None

    def refresh(self) -> None:
        """Update who types, and send that to all viewers if it has changed.

        A new number of viewers is sent with the next such change, or by `send_state()`.
        """
        self.keyboard.release_if_away(now=boottime())
        for viewer in self._connected.values():
            typist = viewer.typist
            viewer.pacing.is_typing = typist is not None and self.keyboard.is_held_by(typist)
        if self.record.viewers != self.count:
            self.record = replace(self.record, viewers=self.count)
            self._has_unsent_state = True
        self.change(writer=self.keyboard.name)

    def change(self, **changes: Any) -> None:
        """Change fields of the record, and send it to all viewers if it differs from before."""
        changed = replace(self.record, **changes)
        if changed == self.record:
            return
        if (changed.state, changed.activity) != (self.record.state, self.record.activity):
            changed = replace(changed, since_ms=changes.get("since_ms", now_ms()))
        self.record, self._has_unsent_state = changed, True
        self.send_state()

    def send_state(self) -> None:
        """Send the record to all viewers if it has changed since it was sent."""
        if self._has_unsent_state:
            self._has_unsent_state = False
            self.send_event("terminal.state", terminal_of(self.record).to_json())

    def send_event(self, event: str, payload: dict[str, Any]) -> None:
        """Send an event to all viewers."""
        for connection in (*self._connected, *self._listeners):
            connection.send_event(event, payload)

    def end(self) -> None:
        """Send all viewers that this gateway no longer shows the terminal, and remove them."""
        self.hide()
        self.send_event(
            "terminal.gone", {"sid": self.record.sid, "record": terminal_of(self.record).to_json()}
        )
        self._connected.clear()


def terminal_of(record: TerminalRecord) -> Terminal:
    """Return a terminal in the form that methods and events report."""
    return Terminal.of(
        record,
        session_key=str(record.key),
        reason=record.reason or record.needs,
        opened_by=record.by,
        resumable=record.resumable and not record.is_open,
    )
