"""The failures of Redis commands: which are retried, which may have run, and what they say."""

import errno
import os
import re
import socket
from collections.abc import Iterator

from redis import exceptions
from redis.asyncio.sentinel import MasterNotFoundError

#: The errors after which a command is repeated.
TRANSIENT = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
    OSError,
)
#: The errors after which Redis has certainly not run the command, because it refused the command or
#: got no connection.
_NOT_RUN = (
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
    socket.gaierror,
)
_NO_CONNECTION = (errno.ECONNREFUSED, errno.ENOENT, errno.EHOSTUNREACH, errno.ENETUNREACH)
#: Matches the error of a refused login. redis-py reports it as a failed connection, but a retry
#: can't succeed.
LOGIN = re.compile(
    "NOAUTH|NOPERM|WRONGPASS|Authentication required|already authenticated|username-password", re.I
)

#: Matches temporary refusals, which are retried: a full disk, a missing replica, a long script, and
#: a failover that Redis 6.2 reports from inside a script.
TEMPORARY = re.compile("MISCONF|NOREPLICAS|BUSY|READONLY|LOADING|TRYAGAIN")
MAKE_ROOM = (
    "`remoteclaw replies list` shows the undelivered replies, and `remoteclaw replies drop` "
    "removes them; or raise its maxmemory (for RemoteClaw's own Redis: [redis] maxmemory)."
)


class NotReplicated(exceptions.ConnectionError):
    """Raised if no replica confirms a write, which a failover would therefore lose."""


def refusal(error: Exception) -> str:
    """Return a sentence about a refused command or login."""
    # redis-py puts the command before the error of a pipeline, and with it what was to be written.
    why = str(error).rpartition("of pipeline caused error: ")[2].strip("(,)'\"")
    return write_problem(why) or f"Redis refuses: {why}."


def write_problem(text: str) -> str | None:
    """Return a sentence about an error that concerns all writes; None for any other error."""
    if "when used memory > 'maxmemory'" in text:
        return (
            "Redis has no memory left (maxmemory): nothing new is accepted until some is freed. "
            f"{MAKE_ROOM}"
        )
    if "MISCONF" in text:
        return "Redis can't write to its disk and refuses writes: free some space, or see its log."
    if "NOREPLICAS" in text:
        return "Redis has no replica that keeps up, and takes no writes (min-replicas-to-write)."
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors behind it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def may_have_run(error: Exception) -> bool:
    """Whether Redis may have run the command that failed, because it was sent without a reply."""
    return not any(
        isinstance(cause, _NOT_RUN)
        or (isinstance(cause, OSError) and cause.errno in _NO_CONNECTION)
        for cause in causes(error)
    )


def reason(error: Exception) -> str:
    """Return the reason of a failure, without the server's address, which the errors contain."""
    if isinstance(error, MasterNotFoundError):
        return "no Sentinel answers that knows a primary of this name"
    for cause in causes(error):
        if isinstance(cause, OSError) and (number := re.search(r"\[Errno (\d+)\]", str(cause))):
            return os.strerror(int(number[1]))
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.rstrip(".")
    if isinstance(error, (TimeoutError, exceptions.TimeoutError)):
        return "it does not answer"
    if "already authenticated" in str(error):  # the answer of a server with a password to HELLO
        return "Authentication required"
    return str(error).rstrip(".") or type(error).__name__
