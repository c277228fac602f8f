"""The exceptions that RemoteClaw raises on purpose, for operators and programs."""

import difflib
from collections.abc import Iterable
from typing import Literal, TypeVar

from remoteclaw.errors.category import ErrorCategory

__all__ = [
    "AccountRefused",
    "AgentUnavailable",
    "AsideFailed",
    "CallError",
    "CallRefused",
    "ConfigError",
    "LeaseLost",
    "MessageRefused",
    "NotFound",
    "PerhapsSent",
    "PlatformAway",
    "PlatformBusy",
    "PlatformRefused",
    "PlatformUnknown",
    "RedisRefused",
    "RedisUnavailable",
    "RedisUnfit",
    "RemoteClawError",
    "ScheduleRefused",
    "StateDirectoryError",
    "StateTooLarge",
    "TerminalsOff",
    "Unsupported",
    "did_you_mean",
    "first_of",
]

#: A platform that limits the rate of requests is asked again after this time at the earliest and at
#: the latest, in seconds.
MIN_BUSY_S, MAX_BUSY_S = 0.25, 24 * 3600.0

_Error = TypeVar("_Error", bound=BaseException)

#: The codes with which the gateway refuses a call. TURN_OVER: the calling agent's turn has ended.
#: NO_TURN: no turn is running. CONFLICT: the call contradicts the current state. GONE: the object
#: of the call no longer exists. REFUSED: the content is not accepted. TOO_MANY: too many calls in a
#: short time.
CallError = Literal[
    "INVALID_REQUEST",
    "UNAUTHORIZED",
    "FORBIDDEN",
    "NOT_FOUND",
    "UNAVAILABLE",
    "TIMEOUT",
    "TURN_OVER",
    "NO_TURN",
    "CONFLICT",
    "GONE",
    "TOO_LARGE",
    "REFUSED",
    "TOO_MANY",
    "INTERNAL",
]


class RemoteClawError(Exception):
    """Base class of the errors that RemoteClaw raises on purpose.

    Its text is one complete sentence for an operator, which the command line prints unchanged.
    """


class ConfigError(RemoteClawError):
    """Raised when the configuration file or an override can't be used."""


class StateDirectoryError(RemoteClawError):
    """Raised when the state directory can't be created, read or written."""


class TerminalsOff(RemoteClawError):
    """Raised when the package that reads the screens of terminals is not installed."""


class RedisUnavailable(RemoteClawError):
    """Raised when Redis can't be reached before the caller's deadline."""

    may_have_run = False
    """Whether a command was sent without an answer, so that Redis may have run it."""


class PerhapsSent(RedisUnavailable):
    """Raised when Redis may have accepted a message. It can be sent again with the same id."""


class RedisUnfit(RemoteClawError):
    """Raised when a Redis server doesn't meet RemoteClaw's requirements."""


class RedisRefused(RemoteClawError):
    """Raised when Redis is reachable but refuses a command (memory, disk, permission)."""


class MessageRefused(RemoteClawError):
    """Raised when a message is not accepted: nothing was stored, and the sender must be told."""


class ScheduleRefused(RemoteClawError):
    """Raised when a cron job's schedule is invalid, or never due."""


class NotFound(RemoteClawError):
    """Raised when a name from an operator or agent matches nothing, or more than one thing."""


class LeaseLost(RemoteClawError):
    """Raised when a fenced write finds a newer epoch: this process must stop at once."""


class CallRefused(RemoteClawError):
    """Raised when the gateway refuses a call; the text is for the caller."""

    def __init__(
        self, code: CallError, message: str, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s
        """The time to wait before the next try, in seconds; None if unknown."""


class PlatformRefused(RemoteClawError):
    """Raised when a chat platform refuses a request for good; the text is for people and agents."""


class Unsupported(PlatformRefused):
    """Raised when a chat platform doesn't support a request at all."""


class PlatformAway(RemoteClawError):
    """Raised when a chat platform is unreachable or broken; the request had no effect."""


class PlatformBusy(RemoteClawError):
    """Raised when a chat platform limits the rate of requests; the request had no effect."""

    def __init__(self, message: str, *, after_s: float, is_account: bool = False) -> None:
        super().__init__(message)
        # In this order, a NaN is the shortest time.
        self.after_s = min(MAX_BUSY_S, max(MIN_BUSY_S, after_s))
        """The time to wait before the next request, in seconds: within the limits, whatever the
        platform says."""
        self.is_account = is_account
        """Whether the limit applies to the whole account, rather than to one chat."""


class PlatformUnknown(RemoteClawError):
    """Raised when it is unknown whether a chat platform carried out a request."""


class AccountRefused(RemoteClawError):
    """Raised when a chat platform refuses an account; the text says what to do."""


class StateTooLarge(RemoteClawError):
    """Raised when an adapter wants to keep more than it may."""


class AgentUnavailable(RemoteClawError):
    """Raised when an agent can't be started or attached; `category` selects the sentence."""

    def __init__(self, message: str, *, category: ErrorCategory) -> None:
        super().__init__(message)
        self.category = category


class AsideFailed(RemoteClawError):
    """Raised when an agent can't answer an aside, a message during its running turn."""


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str) -> str:
    """Return the end of a sentence about an unknown `word`.

    It suggests the most similar word of `known`; without one, it is `otherwise`.
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def first_of(group: BaseExceptionGroup[_Error]) -> _Error:
    """Return the first error of a group, which may contain other groups."""
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first
