"""Errors: one exception tree, and the sentences that people read.

Two audiences are kept apart.
A `RemoteClawError` is for the operator at a terminal: one line that says what happened, to which
key or file, and what to do.
An `ErrorCategory` is for the person in the chat: `sentence()` turns it into words they can act on,
and never quotes what a CLI printed.
"""

from remoteclaw.errors.category import ErrorCategory, classify_end, classify_error
from remoteclaw.errors.exceptions import (
    AgentUnavailable,
    CallError,
    CallRefused,
    ConfigError,
    LeaseLost,
    MessageRefused,
    NotRunning,
    PerhapsSent,
    PlatformRefused,
    RedisRefused,
    RedisUnavailable,
    RedisUnfit,
    RemoteClawError,
    ScheduleRefused,
    StateDirectoryError,
    UnknownDeadLetter,
    UnknownSession,
    UnknownToken,
    Unsupported,
    did_you_mean,
)
from remoteclaw.errors.sentences import Overdue, sentence

__all__ = [
    "AgentUnavailable",
    "CallError",
    "CallRefused",
    "ConfigError",
    "ErrorCategory",
    "LeaseLost",
    "MessageRefused",
    "NotRunning",
    "Overdue",
    "PerhapsSent",
    "PlatformRefused",
    "RedisRefused",
    "RedisUnavailable",
    "RedisUnfit",
    "RemoteClawError",
    "ScheduleRefused",
    "StateDirectoryError",
    "UnknownDeadLetter",
    "UnknownSession",
    "UnknownToken",
    "Unsupported",
    "classify_end",
    "classify_error",
    "did_you_mean",
    "sentence",
]
