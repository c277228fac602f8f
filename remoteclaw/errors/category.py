"""The category of a failure that an agent CLI reported."""

import re
from enum import StrEnum

__all__ = ["OF_THE_MESSAGE", "ErrorCategory", "classify_end", "classify_error"]


class ErrorCategory(StrEnum):
    """The category of a failed turn, by what a person can do about it."""

    RETRYABLE = "retryable"
    UNREACHABLE = "unreachable"
    USAGE_LIMIT = "usage_limit"
    UNKNOWN_MODEL = "unknown_model"
    CONTEXT_OVERFLOW = "context_overflow"
    UNFIT_IMAGE = "unfit_image"
    INVALID_REQUEST = "invalid_request"
    AUTH = "auth"
    BILLING = "billing"
    SESSION_EXPIRED = "session_expired"
    NOT_INSTALLED = "not_installed"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    DIED = "died"
    INTERRUPTED = "interrupted"
    UNREADABLE = "unreadable"
    SUPERSEDED = "superseded"
    ANSWER_TOO_LONG = "answer_too_long"
    FATAL = "fatal"


#: The categories of failures that are due to one message or one conversation.
OF_THE_MESSAGE = frozenset(
    {
        ErrorCategory.CONTEXT_OVERFLOW,
        ErrorCategory.UNFIT_IMAGE,
        ErrorCategory.INVALID_REQUEST,
        ErrorCategory.SESSION_EXPIRED,
        ErrorCategory.UNREADABLE,
        ErrorCategory.ANSWER_TOO_LONG,
    }
)

_BY_STATUS = {
    401: ErrorCategory.AUTH,
    402: ErrorCategory.BILLING,
    403: ErrorCategory.AUTH,
    408: ErrorCategory.RETRYABLE,
    413: ErrorCategory.CONTEXT_OVERFLOW,
    429: ErrorCategory.RETRYABLE,
}

# The first pattern that matches decides, so specific patterns precede general ones.
# Numbers match as whole words only: "429" also occurs inside ids and token counts.
_BY_TEXT: tuple[tuple[ErrorCategory, re.Pattern[str]], ...] = tuple(
    (category, re.compile(pattern, re.IGNORECASE))
    for category, pattern in (
        (
            ErrorCategory.SESSION_EXPIRED,
            r"no (conversation|session|rollout) found|(conversation|session) not found"
            r"|requires a valid session id|no message found with message\.uuid|turn not found",
        ),
        (
            ErrorCategory.UNFIT_IMAGE,
            r"process (input )?image|\b(in)?valid image|unsupported image"
            r"|image.{0,60}(exceed|too large|unsupported|not be processed)",
        ),
        (
            ErrorCategory.UNKNOWN_MODEL,
            r"\bmodel\b.{0,80}(does not exist|not (be )?found|is not supported when|not available)"
            r"|^models/\S+ is not found|issue with the selected model|unknown model|no such model",
        ),
        # A limit that is lifted in time, before one that requires a payment.
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
            # Node reports a broken stream as "terminated"; a shell's "Terminated" means a signal.
            r"|socket hang up|fetch failed|(?-i:(^|rror:? )terminated\W*$)",
        ),
        (ErrorCategory.TIMEOUT, r"timed? ?out"),
    )
)


#: The names that APIs give to a failure with status 400, for a CLI that reports no status.
_INVALID_REQUEST = re.compile(r"invalid_request_error|INVALID_ARGUMENT")

#: A longer error text is searched only in this many characters at its beginning and at its end: a
#: CLI may quote a whole conversation.
MAX_SEARCHED_CHARS = 5000


def classify_error(text: str, *, status: int | None = None) -> ErrorCategory:
    """Return the category of a failure that a CLI reported.

    `status` is the HTTP status of the model's API, if the CLI reports one. It takes precedence over
    `text`, which may quote any number. A 400 is too general, so there the text decides; without a
    known reason, it is INVALID_REQUEST.
    """
    if len(text) > 2 * MAX_SEARCHED_CHARS:
        text = f"{text[:MAX_SEARCHED_CHARS]}\n{text[-MAX_SEARCHED_CHARS:]}"
    by_text = next((c for c, pattern in _BY_TEXT if pattern.search(text)), ErrorCategory.FATAL)
    if status == 429 and by_text in (ErrorCategory.USAGE_LIMIT, ErrorCategory.BILLING):
        return by_text
    # Some CLIs report 500 for every error that has no HTTP status.
    if status == 500 and by_text in (ErrorCategory.UNKNOWN_MODEL, ErrorCategory.UNREACHABLE):
        return by_text
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is not None and status >= 500:
        return ErrorCategory.RETRYABLE
    is_invalid = status == 400 or (status is None and _INVALID_REQUEST.search(text))
    if by_text is ErrorCategory.FATAL and is_invalid:
        return ErrorCategory.INVALID_REQUEST
    return by_text


def classify_end(errors: str) -> ErrorCategory:
    """Return the category of a CLI that ended during its start, by the `errors` that it printed.

    Without a known reason it is DIED and not FATAL, since the next start may succeed.
    """
    category = classify_error(errors)
    return ErrorCategory.DIED if category is ErrorCategory.FATAL else category
