"""The connection to Redis: idempotent scripts and commands, repeated while Redis is away.

redis-py's own retries are off.
A script is repeated here after a lost connection, a timeout or a restart, until the caller's
deadline; that is safe because every script is idempotent. Listeners connect again here as well.
"""

import asyncio
import errno
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript

from remoteclaw.clock import boottime
from remoteclaw.config.model.redis import redis_address
from remoteclaw.errors import (
    ConfigError,
    LeaseLost,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
)
from remoteclaw.fleet.lua import Arguments, Keys, Script
from remoteclaw.host.files import size_in_words

#: How long one command may take before its connection counts as dead, in seconds.
COMMAND_S = 5.0
#: How long Redis may be away before a caller hears of it, in seconds, unless it says otherwise.
AWAY_S = 5.0
#: How long a listener waits for an announcement before it looks by itself, in seconds.
LISTEN_S = 1.0
#: How long a listener waits before it connects again, in seconds.
RECONNECT_S = 0.2
#: How many connections one process opens at most: each call of a gateway that waits for something
#: has one, and redis-py's own limit of 100 would refuse all the others meanwhile.
MAX_CONNECTIONS = 1000
#: Pauses between repeats, in seconds: a restarted server loads its data in about this time.
PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5)

#: The scripts that store something new: a full server refuses them. The others go on, because they
#: make room.
ACCEPTING = frozenset(
    (
        *("append", "ask", "fire", "pairing", "pass", "retry", "store"),
        *("call_change", "call_entry", "call_job", "call_note", "call_run", "call_send"),
        *("call_progress", "call_spawn", "call_tell"),
    )
)
ALLOW_OOM = "#!lua flags=allow-oom\n"
#: The same for a server before 7.0, which looks at its memory until a script has written something.
ALLOW_OOM_BEFORE_7 = "redis.call('UNLINK', 'rc:nothing')\n"

_TRANSIENT = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
    OSError,
)
#: Failures after which Redis can't have got the command: its answers, and those to a connection.
_NOT_RUN = (
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
    socket.gaierror,
)
_NO_CONNECTION = (errno.ECONNREFUSED, errno.ENOENT, errno.EHOSTUNREACH, errno.ENETUNREACH)
#: How a refused login reads. redis-py reports it as a failed connection; waiting does not heal it.
LOGIN = re.compile(
    "NOAUTH|NOPERM|WRONGPASS|Authentication required|already authenticated|username-password", re.I
)

#: How a server that knows no flags calls a script which begins with some.
_NO_FLAGS = re.compile("compil|near '#'")
#: Refusals that end by themselves or by an operator: a full disk, a missing replica, a long script;
#: and what Redis 6.2 says of a failover from inside a script.
_PASSING = re.compile("MISCONF|NOREPLICAS|BUSY|READONLY|LOADING|TRYAGAIN")
MAKE_ROOM = (
    "`remoteclaw replies list` shows what no adapter has delivered and can drop it; or raise its "
    "maxmemory ([redis] maxmemory for RemoteClaw's own)."
)


def open_redis(url: str) -> "redis.asyncio.Redis":
    """Return a client that does not connect yet, and that leaves time limits and repeats to us.

    Its own time limit would wrap each command in `asyncio.wait_for`, which before Python 3.12 now
    and then swallows a cancellation, and takes a task for each command.
    Raises `ConfigError` for an address that can't be used.
    """
    try:
        redis_address(url)
        client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=COMMAND_S,
            max_connections=MAX_CONNECTIONS,
            driver_info=None,  # spares two round trips per connection
        )
    except ValueError as error:  # neither our own text nor redis-py's quotes the address
        raise ConfigError(f"[redis] url is not valid: {error}.") from None
    return client


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a server, in bytes, and whether it is full."""

    used: int
    """The bytes that it uses."""
    limit: int
    """The bytes that count as all of it; 0 if there is no limit."""
    own_limit: int
    """Its own `maxmemory`; 0 if it has none."""
    is_full: bool
    """Whether no new message is accepted."""

    def __str__(self) -> str:
        """Return it for people."""
        if not self.limit:
            return f"{size_in_words(self.used)} in use, without a limit"
        return f"{self.used / self.limit:.0%} of {size_in_words(self.limit)} in use"

    @property
    def problem(self) -> str | None:
        """A sentence about a full server and what to do; None if it isn't."""
        if not self.is_full:
            return None
        goes_on = "nothing new is accepted, what was accepted is finished"
        return f"Redis is full, {self}: {goes_on}. {MAKE_ROOM}"


class Scripts:
    """Runs the Lua scripts of `scripts/` on one client."""

    def __init__(
        self,
        client: "redis.asyncio.Redis",
        *,
        memory_limit: int = 0,
        edit: Callable[[str], str] = str,
    ) -> None:
        """Run them with another limit of memory (bytes); tests `edit` their sources."""
        self.client = client
        self._memory_limit = memory_limit
        self._edit = edit
        self._known: dict[str, AsyncScript] = {}
        self._header = ALLOW_OOM

    async def run(
        self,
        name: str,
        *,
        keys: Keys = MappingProxyType({}),
        args: Arguments = MappingProxyType({}),
        deadline: float | None = None,
    ) -> Any:
        """Run a script and return its reply; `deadline` is on `boottime()`, else in 5 seconds.

        Raises `LeaseLost` for a fenced write, `RedisRefused` when the server refuses, and
        `RedisUnavailable` at the deadline.
        """
        names, values = Script.named(name).pack(keys, args)

        async def send() -> Any:
            header = self._header
            try:
                return await self._script(name)(keys=names, args=values)
            except exceptions.ResponseError as error:
                if header != ALLOW_OOM or not _NO_FLAGS.search(str(error)):
                    raise
                self._known, self._header = {}, ALLOW_OOM_BEFORE_7  # it knows no flags
                return await self._script(name)(keys=names, args=values)

        return await self.call(send, deadline=deadline)

    async def now_ms(self, *, deadline: float | None = None) -> int:
        """Return the time on Redis' clock, which all hosts share."""
        return int(await self.run("clock", deadline=deadline))

    async def memory(self) -> Memory:
        """Return how full the server is."""
        told = await self.run("memory", deadline=boottime() + COMMAND_S)
        used, limit, own, is_full = map(int, told)
        return Memory(used, limit, own, bool(is_full))

    def _script(self, name: str) -> AsyncScript:
        script = self._known.get(name)
        if script is None:
            header = "" if name in ACCEPTING else self._header
            limit = f"MAX_MEMORY = {self._memory_limit}"
            source = self._edit(Script.named(name).source.replace("MAX_MEMORY = 0", limit))
            script = self._known[name] = self.client.register_script(header + source)
        return script

    async def call(
        self,
        command: Callable[..., Any],
        *args: Any,
        deadline: float | None = None,
        **options: Any,
    ) -> Any:
        """Await an idempotent command, and repeat it while Redis is away; as `run()` otherwise."""
        if deadline is None:
            deadline = boottime() + AWAY_S
        repeats, may_have_run = 0, False
        while True:
            try:
                async with asyncio.timeout(max(0.0, min(COMMAND_S, deadline - boottime()))):
                    return await command(*args, **options)
            except _TRANSIENT as error:
                if LOGIN.search(str(error)):
                    raise RedisRefused(_refusal(error)) from None
                away = RedisUnavailable(
                    f"Redis can't be reached ({reason(error)}): nothing goes on until it is back."
                )
                away.may_have_run = may_have_run = may_have_run or _may_have_run(error)
                failure: RemoteClawError = away
            except exceptions.ResponseError as error:
                if str(error).startswith("FENCED"):
                    raise LeaseLost(str(error)) from None
                failure = RedisRefused(_refusal(error))
                if not _PASSING.search(str(error)):
                    raise failure from None
            pause = PAUSES_S[min(repeats, len(PAUSES_S) - 1)]
            repeats += 1
            if boottime() + pause > deadline:
                raise failure
            await asyncio.sleep(pause)

    async def together(
        self,
        ask: Callable[["redis.asyncio.client.Pipeline"], object],
        *,
        is_atomic: bool = False,
        deadline: float | None = None,
    ) -> list[Any]:
        """Send the idempotent commands that `ask` gives a pipeline; return all results, in order.

        They take one round trip. Raises as `call()`.
        """

        async def send() -> list[Any]:
            pipeline = self.client.pipeline(transaction=is_atomic)
            ask(pipeline)
            return list(await pipeline.execute())

        return list(await self.call(send, deadline=deadline))


async def announcements(
    client: "redis.asyncio.Redis", channel: str
) -> AsyncGenerator[bytes | None, None]:
    """Yield what is published on a channel, for ever, whether Redis is there or not.

    Announcements get lost. So None comes once the channel is heard, then now and again: it is
    time to look by oneself.
    """
    while True:
        try:
            async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
                await pubsub.subscribe(channel)
                yield None
                while True:
                    message = await pubsub.get_message(timeout=LISTEN_S)
                    yield None if message is None else message["data"]
        except (exceptions.RedisError, OSError):
            await asyncio.sleep(RECONNECT_S)


def _refusal(error: Exception) -> str:
    return unwritable(str(error)) or f"Redis refuses: {error}."


def unwritable(text: str) -> str | None:
    """Return what a refusal of every write means; None for another one."""
    if "when used memory > 'maxmemory'" in text:
        return (
            "Redis has no memory left (maxmemory): nothing new is accepted until some is freed. "
            f"{MAKE_ROOM}"
        )
    if "MISCONF" in text:
        return "Redis can't write to its disk and refuses writes: free some space, or see its log."
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _may_have_run(error: Exception) -> bool:
    """Whether Redis may run a command that failed so: it went out, and no answer came."""
    return not any(
        isinstance(cause, _NOT_RUN)
        or (isinstance(cause, OSError) and cause.errno in _NO_CONNECTION)
        for cause in _causes(error)
    )


def reason(error: Exception) -> str:
    """Return why something failed, without the address that redis-py and asyncio repeat."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and (number := re.search(r"\[Errno (\d+)\]", str(cause))):
            return os.strerror(int(number[1]))
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.rstrip(".")
    if isinstance(error, (TimeoutError, exceptions.TimeoutError)):
        return "it does not answer"
    return str(error).rstrip(".") or type(error).__name__
