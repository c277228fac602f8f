"""Failures of OpenAI's APIs: the Responses API and Chat Completions alike."""

from typing import Any

from tests.support.model_server.conversation import Plan

_INVALID = "invalid_request_error"
#: By status: type, code, message.
_KINDS: dict[int, tuple[str, str | None, str]] = {
    400: (_INVALID, "invalid_value", "Invalid value: the request is not valid."),
    401: (_INVALID, "invalid_api_key", "Incorrect API key provided: nobody's key."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached on requests per min (RPM)."),
    500: ("server_error", None, "The server had an error while processing your request."),
    503: ("server_error", "server_is_overloaded", "The server is currently overloaded."),
}
_ABOUT: dict[str, tuple[int, str, str | None, str]] = {
    "context": (
        400,
        _INVALID,
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try "
        "again.",
    ),
    "credit": (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "limit": (429, "usage_limit_reached", None, "The usage limit has been reached"),
    "model": (
        404,
        _INVALID,
        "model_not_found",
        "The model `scripted-unknown` does not exist or you do not have access to it.",
    ),
    "image": (
        400,
        _INVALID,
        "invalid_value",
        "The image data you provided does not represent a valid image. Please check your input "
        "and try again.",
    ),
}
#: Anthropic's "overloaded", which OpenAI says otherwise.
_STATUSES = {529: 503}


def openai_error(plan: Plan) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of a plan."""
    if plan.about:
        status, kind, code, message = _ABOUT[plan.about]
    else:
        status = _STATUSES.get(plan.status, plan.status)
        kind, code, message = _KINDS.get(status, _KINDS[500])
    error: dict[str, Any] = {"message": message, "type": kind, "param": None, "code": code}
    if plan.about == "limit":
        error |= {"plan_type": "plus", "resets_at": plan.resets_at}
    return status, {"error": error}
