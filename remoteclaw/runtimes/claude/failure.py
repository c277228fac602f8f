"""Failures of claude's turns, classified by fields first and by the text last."""

from typing import Any

from remoteclaw.clock import now_ms
from remoteclaw.errors import ErrorCategory, classify_error
from remoteclaw.events import ErrorEvent
from remoteclaw.runtimes.model_wait import retry_at_ms
from remoteclaw.runtimes.wire import count, mapping, text

#: Categories by the names of failures, which are in the message that replaces the model's answer.
_KINDS = {
    "authentication_failed": ErrorCategory.AUTH,
    "oauth_org_not_allowed": ErrorCategory.AUTH,
    "billing_error": ErrorCategory.BILLING,
    "model_not_found": ErrorCategory.UNKNOWN_MODEL,
    "overloaded": ErrorCategory.RETRYABLE,
}
#: The beginning of a result's text if claude knows no cause: the answer ended empty, which happens
#: with an overloaded model.
_BROKE_OFF = "[ede_diagnostic]"


class Failures:
    """Claude's reports of failures, and of the usage limits of the user's plan."""

    def __init__(self) -> None:
        self._kind = ""
        """Claude's name of the running turn's failure."""
        self._is_limit_reached = False
        """Whether a usage limit is reached.

        Claude reports the limit only when it changes, so the value is kept across turns.
        """
        self._limit_ends_at_ms: int | None = None
        """When the reached limit ends; None if unknown."""

    def begin(self) -> None:
        """Forget the failure of an earlier turn."""
        self._kind = ""

    def note(self, message: dict[str, Any]) -> None:
        """Update the state from a line."""
        if message.get("type") == "rate_limit_event":
            limit = mapping(message.get("rate_limit_info"))
            is_rejected = limit.get("status") == "rejected"
            self._is_limit_reached = is_rejected and not limit.get("isUsingOverage")
            ends_s = [count(limit.get(name)) for name in ("resetsAt", "overageResetsAt")]
            self._limit_ends_at_ms = min((end * 1000 for end in ends_s if end), default=None)
        elif message.get("type") == "assistant" and not message.get("parent_tool_use_id"):
            self._kind = text(message.get("error"))

    @property
    def _is_limited(self) -> bool:
        """Whether a usage limit is reached that has not ended, as far as its end is known."""
        ends = self._limit_ends_at_ms
        return self._is_limit_reached and (ends is None or ends > now_ms())

    def of(self, result: dict[str, Any], *, ends_agent: bool) -> ErrorEvent:
        """Return the failure that a result reports."""
        detail = error_text(result)
        status = count(result.get("api_error_status")) or None
        category = _KINDS.get(self._kind) or classify_error(detail, status=status)
        if category is ErrorCategory.FATAL and detail.startswith(_BROKE_OFF):
            category = ErrorCategory.RETRYABLE
        retry_at = retry_at_ms(detail)
        if (self._kind == "rate_limit" or status == 429) and self._is_limited:
            category = ErrorCategory.USAGE_LIMIT
        if category is ErrorCategory.USAGE_LIMIT:  # its end may be over: clocks differ
            retry_at = self._limit_ends_at_ms or retry_at
        may_wait = category in (ErrorCategory.USAGE_LIMIT, ErrorCategory.RETRYABLE)
        return ErrorEvent(
            category,
            detail or "claude failed",
            ends_agent=ends_agent,
            is_repaired="was removed" in detail,
            retry_at_ms=retry_at if may_wait else None,
        )


def error_text(result: dict[str, Any]) -> str:
    """Return the error text of a result; empty if it has none."""
    errors = result.get("errors")
    messages = [text(error) for error in errors] if isinstance(errors, list) else []
    return text(result.get("result")) or "; ".join(filter(None, messages))
