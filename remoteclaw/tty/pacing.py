"""The pacing of frames: how often a viewer of a terminal is told what has changed.

A viewer has a revision of the screen, and is sent what differs from it when its time has come. So a
flood is a few frames a second for all, and a slow viewer delays no other one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

#: How often who types is told at most, and how often others, in seconds.
TYPING_S, WATCHING_S = 1 / 30, 1 / 10
#: How many are a crowd, of which each is told half as often: to send is most of what they cost.
CROWD = 16
#: How long others wait for more of a screen that has begun to change, in seconds: a program writes
#: its screen in several pieces.
GATHER_S = 0.01
#: How long a viewer is left alone that has not yet read what it was sent, in seconds.
SLOW_S = 0.1
#: How many see one terminal.
MAX_VIEWERS = 64

Frame = dict[str, Any]


class Pictured(Protocol):
    """What is shown."""

    @property
    def revision(self) -> int:
        """The number of what is seen now."""

    def frame(self, since: int | None) -> Frame | None:
        """Return what differs from a revision; None for nothing."""


@dataclass(eq=False, slots=True)
class Viewer:
    """One who sees the screen."""

    send: Callable[[Frame], None]
    """Sends a frame; must not wait."""
    is_slow: Callable[[], bool] = lambda: False
    """Whether much of what was sent before has not been read."""
    is_typing: bool = False
    has: int | None = None
    """The revision that it was sent last."""
    next_at: float = 0.0
    """When it may be sent another frame."""
    behind_at: float | None = None
    """When the screen began to differ from what it has."""


@dataclass(slots=True)
class Viewers:
    """Those who see one terminal."""

    screen: Pictured
    all: list[Viewer] = field(default_factory=list)

    def join(self, viewer: Viewer, now: float) -> None:
        """Send the whole screen, and what differs from now on."""
        if viewer not in self.all:
            self.all.append(viewer)
        self._send(viewer, self.screen.frame(None), now)

    def send(self, now: float) -> float | None:
        """Send what is due; return in how many seconds to look again, None for nothing left."""
        left = [viewer.next_at - now for viewer in self.all if viewer.next_at > now]
        ready = [viewer for viewer in self.all if viewer.next_at <= now]
        if not ready:  # to look at the screen costs a millisecond
            return min(left, default=None)
        revision = self.screen.revision
        frames: dict[int | None, Frame | None] = {}
        for viewer in ready:
            if viewer.has == revision:
                continue
            if viewer.behind_at is None:
                viewer.behind_at = now
            if not viewer.is_typing and now < viewer.behind_at + GATHER_S:
                viewer.next_at = viewer.behind_at + GATHER_S
            elif viewer.is_slow():
                viewer.next_at = now + SLOW_S
            else:
                if viewer.has not in frames:
                    frames[viewer.has] = self.screen.frame(viewer.has)
                self._send(viewer, frames[viewer.has], now)
            if viewer.next_at > now:
                left.append(viewer.next_at - now)
        return min(left, default=None)

    def _send(self, viewer: Viewer, frame: Frame | None, now: float) -> None:
        viewer.behind_at = None
        if frame is not None:  # to ask the screen for its revision again would cost half a frame
            viewer.has = frame["revision"]
            watching_s = WATCHING_S * (2 if len(self.all) >= CROWD else 1)
            # All who watch are told at the same times: so the screen is read once for all of them.
            left_s = TYPING_S if viewer.is_typing else watching_s - now % watching_s
            viewer.next_at = now + left_s
            viewer.send(frame)
