"""The pacing of frames: how often each viewer of a terminal is sent the changes of its screen.

A viewer has a revision of the screen, and is sent the difference when it is due. So a flood of
output becomes a few frames a second, and a slow viewer delays no other viewer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from remoteclaw.tty.frames import Frame

#: The shortest interval between two frames for the viewer who types, and for others, in seconds.
TYPING_S, WATCHING_S = 1 / 30, 1 / 10
#: From this number of viewers on, those who do not type get half as many frames: sending is most of
#: the cost of a viewer.
CROWD = 16
#: How long a changed screen is left to change further before it is sent to viewers who do not type,
#: in seconds: a program writes its screen in several pieces.
GATHER_S = 0.01
#: The pause before a viewer that has not read its earlier frames is checked again, in seconds.
SLOW_S = 0.1
#: The most viewers of one terminal.
MAX_VIEWERS = 64


class FrameSource(Protocol):
    """A screen that viewers see."""

    @property
    def revision(self) -> int:
        """The revision of the current state."""

    def frame(self, since: int | None) -> Frame | None:
        """Return the changes since a revision, a full frame for None; None if nothing changed."""


@dataclass(eq=False, slots=True)
class PacedViewer:
    """A viewer of the screen."""

    send: Callable[[Frame], None]
    """Sends a frame. Must not block."""
    is_slow: Callable[[], bool] = lambda: False
    """Whether the viewer is far behind in reading its earlier frames."""
    is_typing: bool = False
    revision: int | None = None
    """The revision that was sent last."""
    next_at: float = 0.0
    """The earliest time of the next frame."""
    outdated_at: float | None = None
    """When a revision newer than the viewer's was first seen; None while there is none."""


@dataclass(slots=True)
class FramePacer:
    """Sends frames to the viewers of one terminal. Times are on the clock of the caller's `now`."""

    screen: FrameSource
    all: list[PacedViewer] = field(default_factory=list)

    def join(self, viewer: PacedViewer, now: float) -> None:
        """Add a viewer and send it the whole screen."""
        if viewer not in self.all:
            self.all.append(viewer)
        self._send(viewer, self.screen.frame(None), now)

    def send_due(self, now: float) -> float | None:
        """Send the frames that are due.

        Return in how many seconds to call again, None if no viewer waits for a frame.
        """
        delays_s = [viewer.next_at - now for viewer in self.all if viewer.next_at > now]
        due = [viewer for viewer in self.all if viewer.next_at <= now]
        if not due:  # reading the screen costs a millisecond
            return min(delays_s, default=None)
        current = self.screen.revision
        frames: dict[int | None, Frame | None] = {}
        for viewer in due:
            if viewer.revision == current:
                continue
            if viewer.outdated_at is None:
                viewer.outdated_at = now
            if not viewer.is_typing and now < viewer.outdated_at + GATHER_S:
                viewer.next_at = viewer.outdated_at + GATHER_S
            elif viewer.is_slow():
                viewer.next_at = now + SLOW_S
            else:
                if viewer.revision not in frames:
                    frames[viewer.revision] = self.screen.frame(viewer.revision)
                self._send(viewer, frames[viewer.revision], now)
            if viewer.next_at > now:
                delays_s.append(viewer.next_at - now)
        return min(delays_s, default=None)

    def _send(self, viewer: PacedViewer, frame: Frame | None, now: float) -> None:
        viewer.outdated_at = None
        if frame is not None:
            # `screen.revision` could be newer by now, and reading it costs half as much as a frame.
            viewer.revision = frame["revision"]
            watching_s = WATCHING_S * (2 if len(self.all) >= CROWD else 1)
            # Viewers who do not type share their times, so that one read of the screen serves all.
            delay_s = TYPING_S if viewer.is_typing else watching_s - now % watching_s
            viewer.next_at = now + delay_s
            viewer.send(frame)
