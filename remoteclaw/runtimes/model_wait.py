"""The wait for a model that fails.

CLIs repeat failed requests by themselves, some without an end. A turn in which nothing was said or
done yet can be asked again later at no loss, so it soon gives its worker back.
"""

import re
import time
from collections.abc import Callable

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import (
    AgentEvent,
    ErrorEvent,
    NoticeEvent,
    TextEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)

#: The longest wait while the turn has said and done nothing, in seconds: two or three retries.
FRESH_S = 15.0
#: The longest wait once it has, in seconds: its work would be lost. A minute's quota comes back.
BEGUN_S = 120.0

_NOTICES = {
    ErrorCategory.RETRYABLE: "The model is busy",
    ErrorCategory.USAGE_LIMIT: "The plan's limit is reached",
}
#: "retry in 33.5s", "Suggested retry after 60s", "Retrying after 5293ms", "try again in 2 hours".
_IN = re.compile(
    r"\b(?:retry(?:ing)?|try again) (?:in|after) "
    r"((?:\d{1,9}(?:\.\d+)? ?(?:ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)\b ?)+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|mil|[smhd])")
_MS = {"ms": 1, "mil": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Patience:
    """The time since which the model fails, and whether the turn had begun to act."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failing_since: float | None = None
        self._failure: ErrorEvent | None = None
        """The last one, while the model fails."""
        self._has_begun = False

    def note(self, event: AgentEvent) -> None:
        """Take notice of an event: an answer ends the wait."""
        if isinstance(event, TextEvent | ToolUseEvent | ToolResultEvent):
            self._has_begun = True
        if isinstance(event, TextEvent | ToolUseEvent | ToolResultEvent | ThinkingEvent):
            self._failing_since = self._failure = None

    @property
    def _most_s(self) -> float:
        return BEGUN_S if self._has_begun else FRESH_S

    @property
    def left_s(self) -> float | None:
        """The rest of the wait for a failing model, in seconds; None for one that answers."""
        if self._failing_since is None:
            return None
        return max(0.0, self._failing_since + self._most_s - self._clock())

    def give_up(self) -> ErrorEvent:
        """End the wait; return the failure."""
        assert self._failure is not None, "the model fails"
        failure, self._failure, self._failing_since = self._failure, None, None
        return failure

    def wait(self, failure: ErrorEvent, wait_s: float = 0.0) -> NoticeEvent | ErrorEvent:
        """Return a notice about a retry in `wait_s` seconds, or the failure if the wait is over."""
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        self._failure = failure
        is_lasting = failure.category in (ErrorCategory.AUTH, ErrorCategory.USAGE_LIMIT)
        if is_lasting or now + wait_s - self._failing_since > self._most_s:
            return self.give_up()
        what = _NOTICES.get(failure.category, "The model can't be reached")
        when = f" in {wait_s:.0f} s" if wait_s else ""
        return NoticeEvent(f"{what}; trying again{when}.")


def retry_at_ms(text: str, now_ms: int | None = None) -> int | None:
    """Return when a provider takes requests again, by a CLI's sentence; None if it names no time.

    In milliseconds since 1970. Where a CLI has a field for it, the field counts.
    """
    match = _IN.search(text)
    if match is None:
        return None
    now_ms = round(time.time() * 1000) if now_ms is None else now_ms
    parts = _PART.findall(match[1].lower())
    return now_ms + round(sum(float(count) * _MS[unit] for count, unit in parts))
