"""The limits on waiting for a model whose requests fail.

CLIs retry failed requests themselves, some without a limit. A turn without any output or tool call
can be repeated later at no loss, so it ends soon and frees its worker.
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

#: The maximum wait in a turn without text or tool calls, in seconds: enough for two or three
#: retries.
MAX_WAIT_BEFORE_OUTPUT_S = 15.0
#: The maximum wait in a turn with text or tool calls, in seconds: longer, because its work would be
#: lost, and a per-minute quota is renewed in that time.
MAX_WAIT_AFTER_OUTPUT_S = 120.0

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


class ModelWait:
    """The wait of one turn for a failing model: since when it fails, and how long to wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failing_since: float | None = None
        self._failure: ErrorEvent | None = None
        """The last failure; None unless the model fails."""
        self._has_output = False
        """Whether the turn has text or tool calls."""

    def note(self, event: AgentEvent) -> None:
        """Update the wait from an event of the turn: any output of the model ends it."""
        if isinstance(event, TextEvent | ToolUseEvent | ToolResultEvent):
            self._has_output = True
        if isinstance(event, TextEvent | ToolUseEvent | ToolResultEvent | ThinkingEvent):
            self._failing_since = self._failure = None

    @property
    def _limit_s(self) -> float:
        return MAX_WAIT_AFTER_OUTPUT_S if self._has_output else MAX_WAIT_BEFORE_OUTPUT_S

    @property
    def remaining_s(self) -> float | None:
        """The seconds until the wait expires; None unless the model fails."""
        if self._failing_since is None:
            return None
        return max(0.0, self._failing_since + self._limit_s - self._clock())

    def expire(self) -> ErrorEvent:
        """End the wait and return the last failure."""
        assert self._failure is not None, "the model fails"
        failure, self._failure, self._failing_since = self._failure, None, None
        return failure

    def note_failure(self, failure: ErrorEvent, wait_s: float = 0.0) -> NoticeEvent | ErrorEvent:
        """Return a notice about a retry in `wait_s` seconds, or the failure if the wait ends.

        It ends if the retry would be too late, or if no retry can help.
        """
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        self._failure = failure
        is_lasting = failure.category in (ErrorCategory.AUTH, ErrorCategory.USAGE_LIMIT)
        if is_lasting or now + wait_s - self._failing_since > self._limit_s:
            return self.expire()
        problem = _NOTICES.get(failure.category, "The model can't be reached")
        when = f" in {wait_s:.0f} s" if wait_s else ""
        return NoticeEvent(f"{problem}; trying again{when}.")


def retry_at_ms(text: str, now_ms: int | None = None) -> int | None:
    """Return the time named in a CLI's message at which the provider accepts requests again.

    It is in milliseconds since 1970; None if `text` names no time. If the CLI also reports the time
    in a field, callers prefer that.
    """
    match = _IN.search(text)
    if match is None:
        return None
    now_ms = round(time.time() * 1000) if now_ms is None else now_ms
    parts = _PART.findall(match[1].lower())
    return now_ms + round(sum(float(count) * _MS[unit] for count, unit in parts))
