"""Failures of a turn: their category, the words about them, and what ends a conversation."""

import time

from remoteclaw.clock import local_time
from remoteclaw.errors import ErrorCategory, Overdue, sentence
from remoteclaw.events import ErrorEvent
from remoteclaw.messages import Turn

__all__ = ["LONG_MESSAGE", "error_of", "failure_words", "is_fatal_to_conversation"]

#: From which length a message may itself be what a model finds too long, in characters.
LONG_MESSAGE = 50_000
#: What is over so soon is not worth a time of day, in seconds.
SOON_S = 120


def error_of(
    reported: ErrorEvent | None, *, overdue: Overdue | None, is_stopped: bool
) -> ErrorEvent | None:
    """Return the error of a turn without a complete answer; None if nothing went wrong.

    A limit, or a stop, goes before what the agent reported about it.
    """
    if overdue:
        return ErrorEvent(ErrorCategory.TIMEOUT, overdue.detail)
    if is_stopped:
        return ErrorEvent(ErrorCategory.ABORTED, "stopped by request")
    return reported


def failure_words(
    error: ErrorEvent, turn: Turn, *, overdue: Overdue | None, zone: str | None
) -> str:
    """Return what the person reads about a failure."""
    return sentence(
        error.category,
        agent=turn.session.agent,
        reference=turn.reference,
        until=_until(error.retry_at_ms, zone),
        overdue=overdue,
    )


def _until(at_ms: int | None, zone: str | None) -> str:
    """Return in words when the provider takes requests again; nothing if it's not known."""
    if at_ms is None or at_ms / 1000 < time.time() + SOON_S:
        return ""
    at, now = local_time(at_ms, zone), local_time(round(time.time() * 1000), zone)
    return at.strftime("%H:%M %Z" if at.date() == now.date() else "%A, %d %B, %H:%M %Z")


def is_fatal_to_conversation(error: ErrorEvent, turn: Turn) -> bool:
    """Whether a CLI's conversation can't be continued.

    A picture that the model can't read stays in it and fails each further turn, and so does its
    length, unless the CLI has repaired it. A long message may have been too long by itself: if not,
    the next one tells.
    """
    match error.category:
        case ErrorCategory.CONTEXT_OVERFLOW:
            length = sum(len(entry.message.text) for entry in turn.entries)
            return length < LONG_MESSAGE and not error.is_repaired
        case ErrorCategory.UNFIT_IMAGE:
            return not error.is_repaired
        case category:
            return category is ErrorCategory.SESSION_EXPIRED
