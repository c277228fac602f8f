"""Time limits of a turn: for the agent's start, for silence, and for the whole turn.

CLIs retry failed requests, some for minutes and without any output. Silence while a tool runs, or
while a permission is awaited, does not count, so that long tools are not ended.
"""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from remoteclaw.bridge.activity import COMPACTION_ID
from remoteclaw.errors import Overdue
from remoteclaw.events import (
    AgentEvent,
    AnswerEndEvent,
    CompactionEvent,
    PermissionEvent,
    PermissionWithdrawnEvent,
    TextEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.protocols import Decision

#: The silence after which a notice says how long the wait may take, in seconds.
SILENCE_S = 20.0
#: The maximum pause between two checks of the limits, in seconds.
CHECK_S = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The time limits of an agent, in seconds."""

    start_s: float = 90.0
    """For the start."""
    stall_s: float = 300.0
    """For silence, while no tool runs and no permission is awaited."""
    turn_s: float = 21_600.0
    """For the whole turn."""


class PeopleWait:
    """The time for which a turn waits for people; several waits may overlap."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = self._total_s = 0.0
        self.count = 0
        """The number of waits that have begun and not ended."""

    def begin(self) -> None:
        """Note that a wait begins."""
        if not self.count:
            self._since = self._clock()
        self.count += 1

    def end(self) -> None:
        """Note that a wait has ended; it may be unknown."""
        if self.count == 1:
            self._total_s += self._clock() - self._since
        self.count = max(0, self.count - 1)

    @property
    def seconds(self) -> float:
        """The time so far, in seconds."""
        return self._total_s + (self._clock() - self._since if self.count else 0.0)


class TurnTimer:
    """The times of one turn: its start, the agent's last output, and the tools that run."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        last_output_at: Callable[[], float] = lambda: 0.0,
        used_s: float = 0.0,
    ) -> None:
        """`last_output_at` returns the time of the agent's last output of any kind, on `clock`.

        `used_s` is the time that earlier tries of the turn have used.
        """
        self._used_s = used_s
        self._clock = clock
        self._last_output_at = last_output_at
        self._began_at = self._last_event_at = clock()
        self._tools: set[str] = set()
        """The ids of the running tools."""
        self.people = PeopleWait(clock)
        """The awaited permissions."""
        self._was_noticed = False
        """Whether the notice about the current silence was returned."""

    async def noting(self, events: AsyncIterator[AgentEvent]) -> AsyncIterator[AgentEvent]:
        """Yield a turn's events, and note each of them."""
        self._began_at = self._last_event_at = self._clock()
        async for event in events:
            self.note(event)
            yield event

    def note(self, event: AgentEvent) -> None:
        """Note an event of the turn."""
        self._last_event_at = self._clock()
        self._was_noticed = False
        match event:
            case ToolUseEvent(_, tool_id):
                self._tools.add(tool_id)
            case ToolResultEvent(tool_id):
                self._tools.discard(tool_id)
            case CompactionEvent("began"):  # a summary of a long conversation takes minutes
                self._tools.add(COMPACTION_ID)
            case CompactionEvent():
                self._tools.discard(COMPACTION_ID)
            case PermissionEvent():
                self.people.begin()
            case PermissionWithdrawnEvent():
                self.people.end()
            case TextEvent() | AnswerEndEvent():
                # Not every CLI reports the end of a tool, but none writes text while a tool runs.
                self._tools.clear()

    def decided(self, decision: Decision) -> None:
        """Note the decision about a permission."""
        self.people.end()
        if decision.verdict == "deny":
            # A denied tool does not run, and not every CLI reports its end.
            self._tools.clear()
        self._last_event_at = self._clock()

    @property
    def silence_s(self) -> float:
        """The seconds since the last output; 0 while a tool runs or a permission is awaited."""
        if self._tools or self.people.count:
            return 0.0
        return self._clock() - max(self._last_event_at, self._last_output_at())

    def overdue(self, limits: Limits) -> Overdue | None:
        """Return the exceeded limit; None if none is exceeded."""
        if self._used_s + self._clock() - self._began_at > limits.turn_s:
            return Overdue("turn_s", limits.turn_s)
        if self.silence_s > limits.stall_s:
            return Overdue("stall_s", limits.stall_s)
        return None

    def notice(self, limits: Limits) -> str:
        """Return the notice about a silence, once for each; empty while the silence is short."""
        if self.silence_s < min(SILENCE_S, limits.stall_s / 2):
            self._was_noticed = False
            return ""
        if self._was_noticed:
            return ""
        self._was_noticed = True
        until = time.localtime(time.time() + limits.stall_s - self.silence_s)
        return f"(No response from the model yet; I wait until {time.strftime('%H:%M', until)}.)"

    def next_check_s(self, limits: Limits) -> float:
        """Return the pause until the next check of the limits, in seconds."""
        return min(CHECK_S, limits.stall_s / 4, limits.turn_s / 4)
