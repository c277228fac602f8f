"""Errors: one exception tree, and the sentences that people read.

Two audiences are kept apart.
A `RemoteClawError` is for the operator at a terminal: one line that says what happened, to which
key or file, and what to do.
An `ErrorCategory` is for the person in the chat: `sentence()` turns it into words they can act on,
and never quotes what a CLI printed.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

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


#: Why the gateway refuses a call: it makes no sense, who calls may not, there is no such thing, it
#: can't be done now, it took too long, or the agent's turn is over, or none runs.
CallError = Literal[
    "INVALID_REQUEST",
    "UNAUTHORIZED",
    "FORBIDDEN",
    "NOT_FOUND",
    "UNAVAILABLE",
    "TIMEOUT",
    "TURN_OVER",
    "NO_TURN",
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


class NotRunning(RemoteClawError):
    """Raised when a command needs the embedded server and it is not running."""


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


class UnknownSession(RemoteClawError):
    """Raised when no session, or more than one, matches what an operator typed."""


class UnknownDeadLetter(RemoteClawError):
    """Raised when there is no such dead letter, or no more."""


class UnknownToken(RemoteClawError):
    """Raised when there is no token with the id that an operator typed."""


class LeaseLost(RemoteClawError):
    """Raised when a fenced write finds a newer epoch: this process must stop at once."""


class CallRefused(RemoteClawError):
    """Raised when a call of the gateway can't be answered; its text is for the caller."""

    def __init__(self, code: CallError, message: str) -> None:
        super().__init__(message)
        self.code = code


class PlatformRefused(RemoteClawError):
    """Raised when a chat platform refuses something for good; its text is for people and agents."""


class Unsupported(PlatformRefused):
    """Raised when a chat platform has no such thing at all."""


class AgentUnavailable(RemoteClawError):
    """Raised when an agent can't be started or attached; carries what a person should hear."""

    def __init__(self, message: str, *, category: "ErrorCategory") -> None:
        super().__init__(message)
        self.category = category


class ErrorCategory(StrEnum):
    """The kind of a failed turn, by what a person can do about it."""

    RETRYABLE = "retryable"
    UNREACHABLE = "unreachable"
    USAGE_LIMIT = "usage_limit"
    UNKNOWN_MODEL = "unknown_model"
    CONTEXT_OVERFLOW = "context_overflow"
    UNFIT_IMAGE = "unfit_image"
    AUTH = "auth"
    BILLING = "billing"
    PERMISSION = "permission"
    SESSION_EXPIRED = "session_expired"
    NOT_INSTALLED = "not_installed"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    DIED = "died"
    INTERRUPTED = "interrupted"
    UNREADABLE = "unreadable"
    SUPERSEDED = "superseded"
    TOO_LONG = "too_long"
    FATAL = "fatal"


_BY_STATUS = {
    401: ErrorCategory.AUTH,
    402: ErrorCategory.BILLING,
    403: ErrorCategory.AUTH,
    408: ErrorCategory.RETRYABLE,
    413: ErrorCategory.CONTEXT_OVERFLOW,
    429: ErrorCategory.RETRYABLE,
}

# The first pattern that matches decides, so the specific ones come first.
# Numbers are matched as whole words only: "429" also occurs inside ids and token counts.
_BY_TEXT: tuple[tuple[ErrorCategory, re.Pattern[str]], ...] = tuple(
    (category, re.compile(pattern, re.IGNORECASE))
    for category, pattern in (
        (
            ErrorCategory.SESSION_EXPIRED,
            r"no (conversation|session|rollout) found|(conversation|session) not found"
            r"|requires a valid session id",
        ),
        (
            ErrorCategory.UNFIT_IMAGE,
            r"could not process image|image.{0,60}(exceed|too large|unsupported|not be processed)"
            r"|unsupported image|invalid image",
        ),
        (
            ErrorCategory.UNKNOWN_MODEL,
            r"\bmodel\b.{0,80}(does not exist|not (be )?found|is not supported when|not available)"
            r"|^models/\S+ is not found|issue with the selected model|unknown model|no such model",
        ),
        # A limit that ends by itself, before one that has to be paid for.
        (
            ErrorCategory.USAGE_LIMIT,
            r"(usage|session|weekly|daily|hourly|monthly|opus|sonnet|fable \S+) (usage )?limit"
            r"(?! is set)|daily quota|usage exceeded|out of usage credits . resets",
        ),
        (
            ErrorCategory.BILLING,
            r"credit balance|quota|billing|payment required|spend limit|usage credits|out of usage"
            r"|usage limit",
        ),
        (
            ErrorCategory.CONTEXT_OVERFLOW,
            r"prompt is too long|context.?(length|window|overflow)|too many tokens"
            r"|maximum context|token.?limit|maximum number of tokens",
        ),
        (
            ErrorCategory.AUTH,
            r"\b40[13]\b|unauthori[sz]ed|forbidden|(invalid|incorrect).?(api.?)?key|authentication"
            r"|not logged in|please run /login",
        ),
        (
            ErrorCategory.RETRYABLE,
            r"rate.?limit|\b(429|503|529)\b|overloaded|too many requests|at capacity"
            r"|resource.?exhausted",
        ),
        (
            ErrorCategory.UNREACHABLE,
            r"ENOTFOUND|EAI_AGAIN|getaddrinfo|\bE(CONN|NET|HOST)[A-Z]+|ETIMEDOUT|EPIPE"
            r"|ConnectionRefused|FailedToOpenSocket|(unable|cannot|failed) to connect"
            r"|network error|connection (was |error)?(reset|refused|closed)|connection error"
            r"|error sending request|stream disconnected|typo in the url|stalled mid-stream"
            # Node's words for a stream that was cut; a shell's "Terminated" is something else.
            r"|socket hang up|fetch failed|(?-i:(^|rror:? )terminated\W*$)",
        ),
        (ErrorCategory.TIMEOUT, r"timed? ?out"),
        (ErrorCategory.PERMISSION, r"EACCES|EPERM|permission denied|operation not permitted"),
    )
)


#: How much of what a CLI said is looked through at its beginning and at its end, in characters: it
#: may quote a whole conversation.
MOST_READ = 5000


def classify_error(text: str, *, status: int | None = None) -> ErrorCategory:
    """Return the category of a failure that a CLI reported.

    `status` is the HTTP status of the model's API where the CLI names it; it is trusted before
    `text`, because a sentence can quote any number.
    A 400 says too little by itself, so its text decides.
    """
    if len(text) > 2 * MOST_READ:
        text = f"{text[:MOST_READ]}\n{text[-MOST_READ:]}"
    said = next((c for c, pattern in _BY_TEXT if pattern.search(text)), ErrorCategory.FATAL)
    if status == 429 and said in (ErrorCategory.USAGE_LIMIT, ErrorCategory.BILLING):
        return said
    # Some CLIs say 500 for whatever has no status of its own.
    if status == 500 and said in (ErrorCategory.UNKNOWN_MODEL, ErrorCategory.UNREACHABLE):
        return said
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is not None and status >= 500:
        return ErrorCategory.RETRYABLE
    return said


def classify_end(errors: str) -> ErrorCategory:
    """Return the category of a CLI that ended while it started, by what it printed about that.

    For no reason that is known it may start the next time.
    """
    category = classify_error(errors)
    return ErrorCategory.DIED if category is ErrorCategory.FATAL else category


_SENTENCES = {
    ErrorCategory.RETRYABLE: "The model behind {agent} is busy right now. "
    "Your message was not answered: send it again in a minute.",
    ErrorCategory.UNREACHABLE: "{agent} can't reach its model over the network. "
    "Your message was not answered: send it again when the connection is back.",
    ErrorCategory.USAGE_LIMIT: "{agent}'s account has used up what its plan allows for now. "
    "Your message was not answered: send it again when the limit is lifted.",
    ErrorCategory.UNKNOWN_MODEL: "{agent} is set to a model that its account can't use. "
    "Its operator has to correct `model` under [agents.{agent}]; then send your message again.",
    ErrorCategory.CONTEXT_OVERFLOW: "This conversation, or your message, is too long for {agent}'s "
    "model. Send it again, if it was long in parts.",
    ErrorCategory.UNFIT_IMAGE: "{agent}'s model can't read a picture in this conversation. "
    "Send your message again, without the picture or with another one.",
    ErrorCategory.AUTH: "{agent} isn't signed in to its model. "
    "Its operator has to sign in again on its computer; then send your message again.",
    ErrorCategory.BILLING: "{agent}'s account has no credit or quota left. "
    "Its operator has to top it up; then send your message again.",
    ErrorCategory.PERMISSION: "{agent} wasn't allowed to do that. "
    "Its operator can change what it may do.",
    ErrorCategory.SESSION_EXPIRED: "{agent} no longer has this conversation. "
    "Send your message again to start a new one.",
    ErrorCategory.NOT_INSTALLED: "{agent} can't be started on its computer. "
    "Its operator finds the reason with `remoteclaw doctor`.",
    ErrorCategory.TIMEOUT: "{agent} took too long. Ask again, perhaps for a smaller step.",
    ErrorCategory.ABORTED: "Stopped.",
    ErrorCategory.TOO_LONG: "{agent}'s answer became longer than a million characters, so it was "
    "stopped. Ask for less at once.",
    ErrorCategory.SUPERSEDED: "(I left this for your next message.)",
    ErrorCategory.DIED: "{agent} stopped working in the middle of your message. Part of the work "
    "may be done: check before you send it again.",
    ErrorCategory.INTERRUPTED: "{agent} was cut off while it worked on your message, more than "
    "once, and it isn't tried again. Part of the work may be done: check before you send it again.",
    ErrorCategory.UNREADABLE: "Your message can't be read by the worker that got it, so {agent} "
    "did not see it: send it again. If that fails too, RemoteClaw has to be updated.",
    ErrorCategory.FATAL: "{agent} failed and couldn't finish your message. "
    "Send it again; if it fails again, its operator can look up the reason.",
}


#: What is said where it is known when the provider takes requests again.
_UNTIL = {
    ErrorCategory.RETRYABLE: "The model behind {agent} is busy. "
    "Your message was not answered: send it again after {until}.",
    ErrorCategory.USAGE_LIMIT: "{agent}'s account has used up what its plan allows until {until}. "
    "Your message was not answered: send it again then.",
}
#: What is said of each limit of an agent's time, by the setting's name.
_OVERDUE = {
    "start_s": "{agent} did not start within {span}. Send your message again; if it fails again, "
    "its operator finds the reason with `remoteclaw doctor`. (Limit: start_s.)",
    "stall_s": "{agent} gave no sign of life for {span}, so it was stopped. Ask again; part of the "
    "work may be done. (Limit: stall_s.)",
    "turn_s": "{agent} took longer than {span} in all, so it was stopped. Ask again, perhaps for a "
    "smaller step. (Limit: turn_s.)",
}


@dataclass(frozen=True, slots=True)
class Overdue:
    """The limit of an agent's time that a turn has passed."""

    setting: str
    limit_s: float

    @property
    def detail(self) -> str:
        """The limit as an operator knows it."""
        return f"the limit {self.setting} = {self.limit_s:g} was passed"


def sentence(
    category: ErrorCategory,
    *,
    agent: str,
    reference: str,
    until: str = "",
    overdue: Overdue | None = None,
) -> str:
    """Return what the person in the chat reads about a failed turn.

    `reference` is the turn's id, which `remoteclaw sessions trace` looks up; it is left out where
    nothing went wrong (a turn that the person stopped). `until` is when the provider takes requests
    again, in words.
    """
    template = _SENTENCES[category]
    if category is ErrorCategory.TIMEOUT and overdue:
        template = _OVERDUE[overdue.setting]
    elif until:
        template = _UNTIL.get(category, template)
    span = _in_words(overdue.limit_s) if overdue else ""
    words = template.format(agent=agent, until=until, span=span)
    if category in (ErrorCategory.ABORTED, ErrorCategory.SUPERSEDED):
        return words
    return f"{words} ({reference})"


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str) -> str:
    """Return the end of a sentence about an unknown word: the nearest known one, or `otherwise`."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def _in_words(seconds: float) -> str:
    for unit, size in (("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size and seconds % size == 0:
            return f"{seconds / size:g} {unit}s"
    return f"{seconds:g} s"
