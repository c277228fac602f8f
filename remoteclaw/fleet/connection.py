"""The connection to Redis: runs idempotent scripts and commands, and retries them.

A script is retried after a lost connection, a timeout or a restart of Redis, until the caller's
deadline. That is safe because every script is idempotent. Listeners reconnect here as well.
The retries of redis-py are off.
"""

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript

from remoteclaw.clock import boottime
from remoteclaw.config.model.redis import redis_address, sentinel_address
from remoteclaw.errors import (
    ConfigError,
    LeaseLost,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
)
from remoteclaw.fleet import keys
from remoteclaw.fleet.failures import (
    LOGIN,
    MAKE_ROOM,
    TEMPORARY,
    TRANSIENT,
    NotReplicated,
    may_have_run,
    reason,
    refusal,
    write_problem,
)
from remoteclaw.fleet.lua import Script, Value
from remoteclaw.fleet.sentinel import REPLICA_MS, open_primary
from remoteclaw.host.files import format_size

#: A command that takes longer than this, in seconds, has lost its connection.
COMMAND_S = 5.0
#: A command is retried for this long, in seconds, unless the caller gives a deadline.
RETRY_S = 5.0
#: A listener that gets no announcement for this long, in seconds, reads the data itself.
LISTEN_S = 1.0
#: The pause before a listener reconnects, in seconds.
RECONNECT_S = 0.2
#: The maximum number of connections of one process. Each running or waiting call of a gateway
#: occupies one (`gateway/limits.py`); with redis-py's default of 100, further calls would fail.
MAX_CONNECTIONS = 3000
#: The pauses between retries, in seconds; the last one repeats. Together they are about the time
#: that a restarted server needs to load its data.
PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5)

#: The scripts that store new data. A full server refuses them, and runs all other scripts, because
#: those free memory.
ACCEPTING = frozenset(
    (
        *("append", "request", "fire", "fork", "pairing", "add_history", "retry", "store"),
        *("call_change", "call_entry", "call_job", "call_note", "call_run", "call_send"),
        *("call_memory", "call_progress", "call_spawn", "call_tell"),
    )
)
#: The header of a script that a full server runs.
ALLOW_OOM = "#!lua flags=allow-oom\n"
#: The scripts that write nothing, and the flag with which a server answers them while it refuses
#: writes, as with a full disk.
READING = frozenset(
    (
        *("clock", "memory", "owners", "run_id", "session_views", "task_tree", "unsettled_runs"),
        "workers",
    )
)
NO_WRITES = "#!lua flags=no-writes\n"
#: The same for a server before 7.0, which checks its memory before the first write of a script: a
#: command that frees memory is always allowed, and lifts the check for the rest.
ALLOW_OOM_BEFORE_7 = f"redis.call('UNLINK', '{keys.NO_KEY}')\n"

#: Matches the error of a server before 7.0 about a script that begins with flags.
_NO_FLAGS = re.compile("compil|near '#'")


def open_redis(url: str) -> "redis.asyncio.Redis":
    """Return a client without time limits and retries of its own; it connects at its first command.

    The time limit of redis-py would wrap each command in `asyncio.wait_for`, which takes a task for
    each command and, before Python 3.12, sometimes swallows a cancellation.
    Raises `ConfigError` for an invalid address.
    """
    try:
        redis_address(url)
        options: dict[str, Any] = {
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
            "socket_connect_timeout": COMMAND_S,
            "max_connections": MAX_CONNECTIONS,
            "driver_info": None,  # saves two round trips per connection
        }
        if sentinels := sentinel_address(url):
            return open_primary(sentinels, **options)
        if url.startswith("unix:"):
            options["redis_connect_func"] = _done_already
        client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(url, **options)
    except ValueError as error:  # no text of these errors quotes the address and its password
        raise ConfigError(f"[redis] url is not valid: {error}.") from None
    return client


async def _done_already(_connection: Any) -> None:
    """Replace a second handshake: on a unix socket, redis-py has done it when it calls this."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a Redis server, and whether it is full."""

    used: int
    """The used memory, in bytes."""
    limit: int
    """The limit that applies, in bytes; 0 if there is none."""
    own_limit: int
    """The server's own `maxmemory`, in bytes; 0 if it has none."""
    is_full: bool
    """Whether new messages are refused."""

    def __str__(self) -> str:
        """Return the used part of the memory as text."""
        if not self.limit:
            return f"{format_size(self.used)} in use, without a limit"
        return f"{self.used / self.limit:.0%} of {format_size(self.limit)} in use"

    @property
    def problem(self) -> str | None:
        """A sentence which says that the server is full and what to do; None if it isn't full."""
        if not self.is_full:
            return None
        effect = "nothing new is accepted, what was accepted is finished"
        return f"Redis is full, {self}: {effect}. {MAKE_ROOM}"


class Scripts:
    """Runs the Lua scripts in `scripts/`, and other commands, with one client."""

    def __init__(
        self,
        client: "redis.asyncio.Redis",
        *,
        memory_limit: int = 0,
        edit: Callable[[str], str] = str,
        is_replicated: bool = False,
    ) -> None:
        """Use `client`, with `memory_limit` in bytes (0 for none). Tests `edit` the sources.

        With `is_replicated`, the result of a script counts once a replica has its writes.
        """
        self.client = client
        self.is_replicated = is_replicated
        self._memory_limit = memory_limit
        self._edit = edit
        self._registered: dict[str, AsyncScript] = {}
        self._header = ALLOW_OOM

    async def run(
        self,
        name: str,
        /,
        *,
        deadline: float | None = None,
        **values: Value,
    ) -> Any:
        """Run a script and return its result (`Script.unpack()`).

        `values` are its arguments, and what fills its keys (`fleet.lua`). `deadline` is a time on
        `boottime()`; the default is 5 seconds from now.
        Raises `LeaseLost` if the script's fence refuses the write, `RedisRefused` if the server
        refuses the script, and `RedisUnavailable` at the deadline.
        """
        script = Script.named(name)
        names, packed = script.pack(values)

        async def send() -> Any:
            header = self._header
            try:
                return await self._evaluate(name, names, packed)
            except exceptions.ResponseError as error:
                if header != ALLOW_OOM or not _NO_FLAGS.search(str(error)):
                    raise
                self._registered, self._header = {}, ALLOW_OOM_BEFORE_7
                return await self._evaluate(name, names, packed)

        return script.unpack(await self.call(send, deadline=deadline))

    @property
    def moves(self) -> int:
        """How often Sentinel has named another primary."""
        return getattr(self.client.connection_pool, "moves", 0)

    async def now_ms(self, *, deadline: float | None = None) -> int:
        """Return the time on Redis' clock, which all hosts share."""
        return int(await self.run("clock", deadline=deadline))

    async def run_id(self) -> str | None:
        """Return the id of the server's run, which another start changes. Waits for the server."""
        run_id: str | None = await self.run("run_id", deadline=math.inf)
        return run_id

    async def refusal(self) -> str | None:
        """Return why the server refuses every write now, as with a full disk; None if it doesn't.

        It then refuses PING, too. None as well if it can't be asked.
        """
        try:
            async with asyncio.timeout(COMMAND_S):
                await self.client.ping()
        except exceptions.ResponseError as error:
            return write_problem(str(error))
        except TRANSIENT:
            pass
        return None

    async def memory(self) -> Memory:
        """Return the memory of the server."""
        memory = await self.run("memory", deadline=boottime() + COMMAND_S)
        return Memory(memory.used, memory.limit, memory.own_limit, bool(memory.is_full))

    def load(self) -> None:
        """Compile all scripts, so that a forked process does not have to."""
        for name in Script.names():
            self._script(name)

    def _script(self, name: str) -> AsyncScript:
        script = self._registered.get(name)
        if script is None:
            header = "" if name in ACCEPTING else self._header
            if name in READING:
                header = NO_WRITES if self._header == ALLOW_OOM else ""
            limit = f"MAX_MEMORY = {self._memory_limit}"
            source = self._edit(Script.named(name).source.replace("MAX_MEMORY = 0", limit))
            script = self._registered[name] = self.client.register_script(header + source)
        return script

    async def _evaluate(self, name: str, names: list[Any], packed: list[Any]) -> Any:
        """Run a script once; raise `NotReplicated` if no replica has what its connection wrote."""
        script = self._script(name)
        if not self.is_replicated:
            return await script(keys=names, args=packed)
        for _ in range(2):
            pipeline: Any = self.client.pipeline(transaction=False)
            pipeline.evalsha(script.sha, len(names), *names, *packed)
            pipeline.execute_command("WAIT", 1, REPLICA_MS)
            result, replicas = await pipeline.execute(raise_on_error=False)
            if not isinstance(result, exceptions.NoScriptError):
                break
            await self.client.script_load(script.script)
        for each in (result, replicas):
            if isinstance(each, Exception):
                raise each
        if not replicas:
            raise NotReplicated("no replica confirms the writes")
        return result

    async def _look_again(self) -> None:
        """Give the idle connections up, so that the next one asks the Sentinels."""
        if self.is_replicated:
            await self.client.connection_pool.disconnect(inuse_connections=False)

    @property
    def database(self) -> int:
        """The number of the database in Redis."""
        return int(self.client.connection_pool.connection_kwargs.get("db") or 0)

    async def call(
        self,
        command: Callable[..., Any],
        *args: Any,
        deadline: float | None = None,
        limit_s: float = 0,
        **options: Any,
    ) -> Any:
        """Run an idempotent command, and retry it while Redis is unavailable.

        `deadline` and the errors are those of `run()`. A command that transfers much may take
        `limit_s` seconds, also beyond the deadline, after which it is not retried.
        """
        if deadline is None:
            deadline = boottime() + RETRY_S
        retries, was_sent = 0, False
        while True:
            try:
                left_s = max(0.0, min(COMMAND_S, deadline - boottime()))
                async with asyncio.timeout(limit_s or left_s):
                    return await command(*args, **options)
            except TRANSIENT as error:
                if LOGIN.search(str(error)):
                    raise RedisRefused(refusal(error)) from None
                unavailable = RedisUnavailable(
                    f"Redis can't be reached ({reason(error)}): nothing goes on until it is back."
                )
                was_sent = was_sent or may_have_run(error)
                unavailable.may_have_run = was_sent
                failure: RemoteClawError = unavailable
            except exceptions.ResponseError as error:
                if str(error).startswith("FENCED"):
                    raise LeaseLost(str(error)) from None
                failure = RedisRefused(refusal(error))
                if not TEMPORARY.search(str(error)):
                    raise failure from None
            await self._look_again()
            pause = PAUSES_S[min(retries, len(PAUSES_S) - 1)]
            retries += 1
            if boottime() + pause > deadline:
                raise failure
            await asyncio.sleep(pause)

    async def run_pipeline(
        self,
        add_commands: Callable[["redis.asyncio.client.Pipeline"], object],
        *,
        is_atomic: bool = False,
        deadline: float | None = None,
        limit_s: float = 0,
    ) -> list[Any]:
        """Run the idempotent commands that `add_commands` adds to a pipeline, in one round trip.

        Return their results in order. `deadline`, `limit_s` and the errors are those of `call()`.
        """

        async def send() -> list[Any]:
            pipeline = self.client.pipeline(transaction=is_atomic)
            add_commands(pipeline)
            return list(await pipeline.execute())

        return list(await self.call(send, deadline=deadline, limit_s=limit_s))


async def announcements(
    client: "redis.asyncio.Redis", channel: str
) -> AsyncGenerator[bytes | None, None]:
    """Yield the messages that are published on a channel, without end, also across reconnects.

    Announcements can be lost. So it also yields None, after each subscription and whenever no
    message arrives for `LISTEN_S`: the caller then reads the announced data itself.
    """
    while True:
        try:
            async with client.pubsub() as pubsub:
                await pubsub.subscribe(channel)
                while True:
                    message = await pubsub.get_message(timeout=LISTEN_S)
                    is_announcement = message is not None and message["type"] == "message"
                    yield message["data"] if is_announcement else None
        except (exceptions.RedisError, OSError):
            await asyncio.sleep(RECONNECT_S)
