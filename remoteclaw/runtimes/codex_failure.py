"""Failures of codex' turns: its own word first, the HTTP status, then its sentence."""

from typing import Any

from remoteclaw.errors import ErrorCategory, classify_error
from remoteclaw.events import ErrorEvent
from remoteclaw.runtimes.model_wait import retry_at_ms
from remoteclaw.runtimes.wire import count, mapping, text

_CATEGORIES = {
    "contextWindowExceeded": ErrorCategory.CONTEXT_OVERFLOW,
    "sessionBudgetExceeded": ErrorCategory.BILLING,
    "usageLimitExceeded": ErrorCategory.USAGE_LIMIT,
    "modelNotFound": ErrorCategory.UNKNOWN_MODEL,
    "rateLimitExceeded": ErrorCategory.RETRYABLE,
    "serverOverloaded": ErrorCategory.RETRYABLE,
    "flexUnavailable": ErrorCategory.RETRYABLE,
    "policyCapacityUnavailable": ErrorCategory.RETRYABLE,
    "internalServerError": ErrorCategory.RETRYABLE,
    "unauthorized": ErrorCategory.AUTH,
}


def failure_of(
    error: dict[str, Any], limits: dict[str, Any], *, ends_agent: bool = False
) -> ErrorEvent:
    """Return what an error means; `limits` is how much of the plan is used up."""
    said = (text(error.get(name)) for name in ("message", "additionalDetails"))
    detail = "; ".join(filter(None, said)) or "codex failed"
    category = _category(error, detail)
    retry_at = None
    if category is ErrorCategory.USAGE_LIMIT:
        retry_at = _limit_ends_at_ms(limits) or retry_at_ms(detail)
    elif category is ErrorCategory.RETRYABLE:
        retry_at = retry_at_ms(detail)
    # Of a thread that is too long it makes a shorter one before the next turn.
    is_repaired = category is ErrorCategory.CONTEXT_OVERFLOW
    return ErrorEvent(
        category, detail, ends_agent=ends_agent, is_repaired=is_repaired, retry_at_ms=retry_at
    )


def _status(info: Any) -> int | None:
    """Return the HTTP status that an error names."""
    if isinstance(info, dict):
        for value in info.values():
            if status := count(mapping(value).get("httpStatusCode")):
                return status
    return None


def _limit_ends_at_ms(limits: dict[str, Any]) -> int | None:
    """Return when the plan's limits that are reached have ended, in milliseconds since 1970."""
    windows = (mapping(limits.get(name)) for name in ("primary", "secondary"))
    ends = [count(one.get("resetsAt")) for one in windows if count(one.get("usedPercent")) >= 100]
    return max(ends, default=0) * 1000 or None


def _category(error: dict[str, Any], detail: str) -> ErrorCategory:
    info = error.get("codexErrorInfo")
    if isinstance(info, str) and info in _CATEGORIES:
        return _CATEGORIES[info]
    category = classify_error(detail, status=_status(info))
    if isinstance(info, dict) and (category is ErrorCategory.FATAL or _status(info) is None):
        return ErrorCategory.UNREACHABLE  # each of the others is about the connection
    return category
