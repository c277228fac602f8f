"""Failures of codex's turns, classified by error name, then HTTP status, then text."""

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
    """Return the failure event of an error; `limits` is codex's last report of usage limits."""
    texts = (text(error.get(name)) for name in ("message", "additionalDetails"))
    detail = "; ".join(filter(None, texts)) or "codex failed"
    category = _category(error, detail)
    retry_at = None
    if category is ErrorCategory.USAGE_LIMIT:
        retry_at = _limit_ends_at_ms(limits) or retry_at_ms(detail)
    elif category is ErrorCategory.RETRYABLE:
        retry_at = retry_at_ms(detail)
    # Codex shortens a thread that is too long before the next turn.
    is_repaired = category is ErrorCategory.CONTEXT_OVERFLOW
    return ErrorEvent(
        category, detail, ends_agent=ends_agent, is_repaired=is_repaired, retry_at_ms=retry_at
    )


def _status(info: Any) -> int | None:
    """Return the HTTP status of an error; None if it has none."""
    if isinstance(info, dict):
        for value in info.values():
            if status := count(mapping(value).get("httpStatusCode")):
                return status
    return None


def _limit_ends_at_ms(limits: dict[str, Any]) -> int | None:
    """Return when all reached limits have ended, in milliseconds since 1970; None if unknown."""
    windows = (mapping(limits.get(name)) for name in ("primary", "secondary"))
    ends = [
        count(window.get("resetsAt"))
        for window in windows
        if count(window.get("usedPercent")) >= 100
    ]
    return max(ends, default=0) * 1000 or None


def _category(error: dict[str, Any], detail: str) -> ErrorCategory:
    info = error.get("codexErrorInfo")
    if isinstance(info, str) and info in _CATEGORIES:
        return _CATEGORIES[info]
    category = classify_error(detail, status=_status(info))
    if isinstance(info, dict) and (category is ErrorCategory.FATAL or _status(info) is None):
        return ErrorCategory.UNREACHABLE  # the remaining errors are about the connection
    return category
