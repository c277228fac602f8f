"""Failures of claude's turns: fields first, words last."""

from typing import Any

from remoteclaw.clock import now_ms
from remoteclaw.errors import ErrorCategory, classify_error
from remoteclaw.events import ErrorEvent
from remoteclaw.runtimes.model_wait import retry_at_ms
from remoteclaw.runtimes.wire import count, mapping, text

#: Claude's names of failures, in the message that replaces the model's.
_KINDS = {
    "authentication_failed": ErrorCategory.AUTH,
    "oauth_org_not_allowed": ErrorCategory.AUTH,
    "billing_error": ErrorCategory.BILLING,
    "model_not_found": ErrorCategory.UNKNOWN_MODEL,
    "overloaded": ErrorCategory.RETRYABLE,
}
#: The beginning of a result without a cause: the answer broke off with nothing in it, as an
#: overloaded model's does.
_BROKE_OFF = "[ede_diagnostic]"


class Failures:
    """Claude's reports of failures and of its plan's limits."""

    def __init__(self) -> None:
        self._kind = ""
        """Claude's name of the running turn's failure."""
        self._resets_at_ms: int | None = None
        """The end of the limit that is reached, 0 for an unknown one; None without a limit.

        It is told only when that changes.
        """

    def begin(self) -> None:
        """Forget the failure of an earlier turn."""
        self._kind = ""

    def note(self, message: dict[str, Any]) -> None:
        """Take notice of a line."""
        if message.get("type") == "rate_limit_event":
            limit = mapping(message.get("rate_limit_info"))
            is_reached = limit.get("status") == "rejected" and not limit.get("isUsingOverage")
            ends = [count(limit.get(name)) for name in ("resetsAt", "overageResetsAt")]
            self._resets_at_ms = min(filter(None, ends), default=0) * 1000 if is_reached else None
        elif message.get("type") == "assistant" and not message.get("parent_tool_use_id"):
            self._kind = text(message.get("error"))

    @property
    def _is_limited(self) -> bool:
        """Whether a limit was reached whose end is not past, where it is known."""
        ends = self._resets_at_ms
        return ends is not None and (ends == 0 or ends > now_ms())

    def of(self, result: dict[str, Any], *, ends_agent: bool) -> ErrorEvent:
        """Return what a result says about a failure."""
        detail = complaint(result)
        status = count(result.get("api_error_status")) or None
        category = _KINDS.get(self._kind) or classify_error(detail, status=status)
        if category is ErrorCategory.FATAL and detail.startswith(_BROKE_OFF):
            category = ErrorCategory.RETRYABLE
        retry_at = retry_at_ms(detail)
        if (self._kind == "rate_limit" or status == 429) and self._is_limited:
            category = ErrorCategory.USAGE_LIMIT
            retry_at = self._resets_at_ms or retry_at
        may_wait = category in (ErrorCategory.USAGE_LIMIT, ErrorCategory.RETRYABLE)
        return ErrorEvent(
            category,
            detail or "claude failed",
            ends_agent=ends_agent,
            is_repaired="was removed" in detail,
            retry_at_ms=retry_at if may_wait else None,
        )


def complaint(result: dict[str, Any]) -> str:
    """Return what a result says about a failure."""
    errors = result.get("errors")
    several = [text(error) for error in errors] if isinstance(errors, list) else []
    return text(result.get("result")) or "; ".join(filter(None, several))
