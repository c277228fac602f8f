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
    "TerminalsOff",
    "Unsupported",
    "did_you_mean",
    "first_of",
]

_Error = TypeVar("_Error", bound=BaseException)

#: Why the gateway refuses a call: it makes no sense, who calls may not, there is no such thing, it
#: can't be done now, it took too long, or the agent's turn is over, or none runs; it is at odds
#: with what is there, or what it is about is gone; it is too large, it is not taken as it is, or it
#: is asked for too often.
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
    """Base of every error that RemoteClaw raises on purpose.

    Its text is one complete sentence for an operator; the command line prints it as it is.
    """


class ConfigError(RemoteClawError):
    """Raised when the configuration file or an override can't be used."""


class StateDirectoryError(RemoteClawError):
    """Raised when the state directory can't be created, read or written."""


class TerminalsOff(RemoteClawError):
    """Raised when what reads terminals' screens is not installed."""


class RedisUnavailable(RemoteClawError):
    """Raised when Redis can't be reached before the caller's deadline."""

    may_have_run = False
    """Whether a command went out and no answer came: Redis may still run it."""


class PerhapsSent(RedisUnavailable):
    """Raised when Redis may still accept a message; with the same id it counts once."""


class RedisUnfit(RemoteClawError):
    """Raised when a Redis server can't keep the promises that RemoteClaw makes."""


class RedisRefused(RemoteClawError):
    """Raised when Redis is reachable and refuses a command (memory, disk, permission)."""


class MessageRefused(RemoteClawError):
    """Raised before a message is accepted: nothing was stored, the sender must be told."""


class ScheduleRefused(RemoteClawError):
    """Raised when a cron job's schedule is invalid, or never due."""


class NotFound(RemoteClawError):
    """Raised when nothing, or more than one, has the name that an operator or agent gave."""


class LeaseLost(RemoteClawError):
    """Raised when a fenced write finds a newer epoch: this process must stop at once."""


class CallRefused(RemoteClawError):
    """Raised when a call of the gateway can't be answered; its text is for the caller."""

    def __init__(
        self, code: CallError, message: str, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s
        """When it may be asked for again, in seconds, where that is known."""


class PlatformRefused(RemoteClawError):
    """Raised when a chat platform refuses something for good; its text is for people and agents."""


class Unsupported(PlatformRefused):
    """Raised when a chat platform has no such thing at all."""


class PlatformAway(RemoteClawError):
    """Raised when a chat platform can't be reached, or is broken: it has certainly not done it."""


class PlatformBusy(RemoteClawError):
    """Raised when a chat platform is asked too often: it has certainly not done it."""

    def __init__(self, message: str, *, after_s: float, is_account: bool = False) -> None:
        super().__init__(message)
        self.after_s = after_s
        """When it may be asked again, in seconds."""
        self.is_account = is_account
        """Whether that goes for the whole account, and not for one chat alone."""


class PlatformUnknown(RemoteClawError):
    """Raised when a chat platform may have done something, or not."""


class AccountRefused(RemoteClawError):
    """Raised when a chat platform refuses an account; its sentence says what to do."""


class AgentUnavailable(RemoteClawError):
    """Raised when an agent can't be started or attached; carries what a person should hear."""

    def __init__(self, message: str, *, category: ErrorCategory) -> None:
        super().__init__(message)
        self.category = category


class AsideFailed(RemoteClawError):
    """Raised when an agent has no answer beside its running turn."""


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str) -> str:
    """Return the end of a sentence about an unknown word: the nearest known one, or `otherwise`."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def first_of(group: BaseExceptionGroup[_Error]) -> _Error:
    """Return the first error of a group, also where groups are nested."""
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first
