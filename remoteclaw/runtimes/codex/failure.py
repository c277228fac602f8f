"""Failures of codex's turns, classified by error name, then HTTP status, then text."""

import re
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
#: The texts of failures that codex reports under the name `other`, besides the body of an API's
#: refusal with status 400.
_OTHER = re.compile(r"unexpected status (\d{3})|Fatal error")


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
    return ErrorEvent(category, detail, ends_agent=ends_agent, retry_at_ms=retry_at)


def _status(info: Any, detail: str) -> int | None:
    """Return the HTTP status of an error; None if it has none."""
    if info == "other":
        other = _OTHER.match(detail)
        return 400 if other is None else int(other[1]) if other[1] else None
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
    status = _status(info, detail)
    category = classify_error(detail, status=status)
    if isinstance(info, dict) and (category is ErrorCategory.FATAL or status is None):
        return ErrorCategory.UNREACHABLE  # the remaining errors are about the connection
    return category
