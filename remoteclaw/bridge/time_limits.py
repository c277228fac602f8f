"""Time limits of a turn: for the start, for silence, and for the whole.

CLIs repeat failed requests by themselves, some for minutes and without a word. A limit on silence
alone would end long tools; so time counts only while nothing is known to be going on.
"""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from remoteclaw.errors import Overdue
from remoteclaw.events import (
    AgentEvent,
    AnswerEndEvent,
    PermissionEvent,
    PermissionWithdrawnEvent,
    TextEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.protocols import Decision

#: The silence after which the person is told how long the wait may take, in seconds.
SILENCE_S = 20.0
#: The longest pause between two looks, in seconds.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The time limits of an agent, in seconds."""

    start_s: float = 90.0
    """To start."""
    stall_s: float = 300.0
    """To give a sign of life, while no tool runs and no permission is waited for."""
    turn_s: float = 21_600.0
    """For one turn in all."""


class Pace:
    """The times of one turn: its start, the agent's last sign of life, and what it waits for."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        heard: Callable[[], float] = lambda: 0.0,
        used_s: float = 0.0,
    ) -> None:
        """`heard` tells when the agent last printed anything at all, on the same clock.

        `used_s` is what earlier tries of the turn have taken of its time.
        """
        self._used_s = used_s
        self._clock = clock
        self._printed = heard
        self._began = self._heard = clock()
        self._tools: set[str] = set()
        """Tools that run."""
        self._questions = 0
        """Permissions that are waited for."""
        self._was_told = False

    async def noting(self, events: AsyncIterator[AgentEvent]) -> AsyncIterator[AgentEvent]:
        """Yield a turn's events, and note them."""
        self._began = self._heard = self._clock()
        async for event in events:
            self.note(event)
            yield event

    def note(self, event: AgentEvent) -> None:
        """Note an event."""
        self._heard = self._clock()
        self._was_told = False
        match event:
            case ToolUseEvent(_, tool_id):
                self._tools.add(tool_id)
            case ToolResultEvent(tool_id):
                self._tools.discard(tool_id)
            case PermissionEvent():
                self._questions += 1
            case PermissionWithdrawnEvent():
                self._questions = max(0, self._questions - 1)
            case TextEvent() | AnswerEndEvent():
                # Not every CLI tells that a tool is done; but it says nothing while one runs.
                self._tools.clear()

    def decided(self, decision: Decision) -> None:
        """Note the decision about a permission."""
        self._questions = max(0, self._questions - 1)
        if decision.verdict == "deny":
            # What is denied does not run, and not every CLI tells that it ended.
            self._tools.clear()
        self._heard = self._clock()

    @property
    def silence_s(self) -> float:
        """The seconds without a sign of life, while no tool runs and no permission is awaited."""
        is_waiting = bool(self._tools) or self._questions > 0
        return 0.0 if is_waiting else self._clock() - max(self._heard, self._printed())

    def overdue(self, limits: Limits) -> Overdue | None:
        """Return which limit is passed; None if none is."""
        if self._used_s + self._clock() - self._began > limits.turn_s:
            return Overdue("turn_s", limits.turn_s)
        if self.silence_s > limits.stall_s:
            return Overdue("stall_s", limits.stall_s)
        return None

    def notice(self, limits: Limits) -> str:
        """Return words about a silence for the person, once; empty while it is short."""
        if self.silence_s < min(SILENCE_S, limits.stall_s / 2):
            self._was_told = False
            return ""
        if self._was_told:
            return ""
        self._was_told = True
        until = time.localtime(time.time() + limits.stall_s - self.silence_s)
        return f"(No word from the model yet; it is given until {time.strftime('%H:%M', until)}.)"

    def next_look_s(self, limits: Limits) -> float:
        """Return the pause until the next look, in seconds."""
        return min(LOOK_S, limits.stall_s / 4, limits.turn_s / 4)
