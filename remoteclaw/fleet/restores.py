"""A fleet that was restored from a backup: paused until an operator has seen what waits.

The snapshot is older than the loss. What waits in it may have been answered and delivered since, so
nothing of it is begun or sent before `remoteclaw restore --go`.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reader import Mark

#: The interval at which a process of a paused fleet looks whether it may begin, in seconds.
LOOK_S = 1.0
#: How long adapters know since when the fleet goes on, in milliseconds: longer than any platform's
#: history is read up.
KNOWN_MS = 90 * 24 * 3600 * 1000
#: How many keys are copied to another Redis at once, and how long that may take, in seconds: each
#: may have a file of 20 MB.
COPIED_KEYS, COPY_S = 50, 600.0
#: A key that expires so soon is not copied, in milliseconds: it could expire in the middle.
EXPIRING_MS = 60_000
#: The keys that are about processes of the lost fleet.
OF_PROCESSES = (
    *("rq:*", "rc:host:*", "rc:worker:*", "rc:gateway:*", "rc:reader:*", "rc:standbys:*"),
    *(keys.PROCESSES, keys.DRAINED, keys.SWEEPER, keys.CRON_SCHEDULER, keys.WORKER_RELEASE),
)
#: Deletes the data of a database.
_FLUSH = "redis.call('SELECT', ARGV[1]) return redis.call('FLUSHDB')"
#: Why a reply is not sent by itself.
HELD = "it was undelivered in the backup, and may have been delivered since"
#: The name of the category in `DeadLetter.why`.
UNKNOWN = "unknown"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """What the snapshot of a paused fleet holds."""

    sessions: int
    """The number of conversations with unfinished messages."""
    reports: int
    """The number of messages that had arrived, and were not accepted yet."""
    letters: int
    """The number of replies that are kept as dead letters."""


class Restores:
    """The pause after a restore."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def choose(self, database: int) -> None:
        """Make one database of a snapshot the first, and delete the others.

        A server that other programs use as well has their data in its snapshot.
        """
        client = self._scripts.client
        if database:
            await self._scripts.call(client.swapdb, 0, database)
        held = await self._scripts.call(client.info, "keyspace")
        for name in held:
            if number := int(name.removeprefix("db")):
                await self._scripts.call(client.eval, _FLUSH, 0, number)

    async def prepare(self, backup_ms: int) -> None:
        """Pause the fleet of a snapshot, which no process uses yet.

        `backup_ms` is the time of the snapshot. Undelivered replies become dead letters, except
        those to the page, which are delivered to Redis itself.
        """
        client = self._scripts.client
        await self._scripts.call(client.set, keys.RESTORED, backup_ms)
        for pattern in OF_PROCESSES:
            async for name in client.scan_iter(match=pattern, count=1000):
                await self._scripts.call(client.unlink, name)
        async for name in client.scan_iter(match=keys.replies("*", "*"), count=1000):
            await self._hold_replies(name.decode())
        for sid in await self._scripts.call(client.zrange, keys.ACTIVE, 0, -1):
            await self._release(sid.decode())

    async def move_to(self, other: Scripts) -> None:
        """Copy the data of a paused fleet to another Redis, and the pause first.

        Raises `RedisRefused` if that one isn't empty or can't take the data, and
        `RedisUnavailable` if it goes away. Then, or when cancelled, it is empty again if it can be
        reached.
        """
        # A user with the smallest rights may not run DBSIZE, and EXISTS removes an expired key.
        probes, held = await other.run_pipeline(
            lambda ask: (ask.exists(keys.PROBE), ask.info("keyspace"))
        )
        if count := held.get(f"db{other.database}", {"keys": probes})["keys"] - probes:
            raise RedisRefused(
                f"That Redis has {count} keys, and a backup needs an empty database: name "
                "another one, such as redis://host:6379/1."
            )
        names = [keys.RESTORED.encode()]
        try:
            await self._copy(other, names)
            cursor = None
            while cursor != 0:
                client = self._scripts.client
                cursor, some = await self._scripts.call(client.scan, cursor or 0, count=COPIED_KEYS)
                names += some
                await self._copy(other, some)
        except BaseException:
            with contextlib.suppress(RedisRefused, RedisUnavailable):
                await other.call(other.client.unlink, *names)
            raise

    async def _copy(self, other: Scripts, names: Sequence[bytes]) -> None:
        found = await self._scripts.run_pipeline(
            lambda ask: [(ask.type(name), ask.pttl(name)) for name in names]
        )
        kept = [
            (name, kind, ttl_ms)
            for name, kind, ttl_ms in zip(names, found[::2], found[1::2], strict=True)
            if ttl_ms == -1 or ttl_ms > EXPIRING_MS
        ]

        def read(ask: Any) -> None:
            for name, kind, _ in kept:
                _read(ask, name, kind)

        def write(ask: Any) -> None:
            for (name, kind, ttl_ms), value, info in zip(
                kept, values[::2], values[1::2], strict=True
            ):
                _write(ask, name, kind, value, info)
                if ttl_ms > 0:
                    ask.pexpire(name, ttl_ms)

        values = await self._scripts.run_pipeline(read, limit_s=COPY_S)
        await other.run_pipeline(write, limit_s=COPY_S)

    async def _release(self, sid: str) -> None:
        """End the lease of a session, and have the first sweep look at it unless it is postponed.

        The attempt that was cut off does not count as failed.
        """
        client, state = self._scripts.client, keys.state(sid)
        owner, epoch, postponed = await self._scripts.call(
            client.hmget, state, ["worker", "epoch", "postponed_until_ms"]
        )
        if owner and epoch:
            await self._scripts.run("expire", sid=sid, epoch=epoch.decode(), is_deliberate=True)
        if not postponed:
            await self._scripts.call(client.zadd, keys.ACTIVE, {sid: 0})

    async def _hold_replies(self, stream: str) -> None:
        provider, account = keys.account_of(stream)
        client, marks = self._scripts.client, keys.delivery_marks(provider, account)
        if provider == "web":
            return
        for reply_id, fields in await self._scripts.call(client.xrange, stream):
            await self._hold(stream, marks, reply_id, fields.get(b"reply", b""))

    async def _hold(self, stream: str, marks: str, reply_id: bytes, payload: bytes) -> None:
        """Make a dead letter of an undelivered reply."""
        reply = _json(payload)
        if "operation" in reply:
            return  # it has expired
        state = keys.state(str(reply.get("sid") or ""))
        mark, key = await self._scripts.run_pipeline(
            lambda ask: (ask.hget(marks, reply_id), ask.hget(state, "key"))
        )
        letter: dict[Any, Any] = {
            "stream": stream,
            "reply": payload,
            "id": reply_id,
            "key": key or b"",
            "category": UNKNOWN,
            "why": HELD,
            # If an operator sends it again, the platform is asked for it first, or people read that
            # it is perhaps there twice.
            "mark": mark or Mark(is_begun=True).encode("letter"),
        }
        await self._scripts.run_pipeline(
            lambda ask: (
                ask.xadd(keys.DEAD_LETTERS, letter),
                ask.xdel(stream, reply_id),
                ask.hdel(marks, reply_id),
            ),
            is_atomic=True,
        )

    async def paused_from(self) -> int | None:
        """Return the time of the backup (ms) of a paused fleet; None if the fleet isn't paused."""
        stored = await self._scripts.call(self._scripts.client.get, keys.RESTORED)
        return int(stored) if stored else None

    async def wait_while_paused(self, what: str) -> None:
        """Return once the fleet is not paused; `what` waits for that, as the log says."""
        is_told = False
        while True:
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                if await self.paused_from() is None:
                    return
                if not is_told:
                    log.warning("%s: waits for `remoteclaw restore --go`", what)
                    is_told = True
            await asyncio.sleep(LOOK_S)

    async def held(self) -> Held:
        """Return how much the snapshot holds."""
        client, reports = self._scripts.client, 0
        async for name in client.scan_iter(match=keys.inbox("*", "*"), count=1000):
            reports += await self._scripts.call(client.hlen, name)
        letters: Sequence[Any] = await self._scripts.call(client.xrange, keys.DEAD_LETTERS)
        held = sum(fields.get(b"why") == HELD.encode() for _, fields in letters)
        sessions = await self._scripts.call(client.zcard, keys.ACTIVE)
        return Held(int(sessions), reports, held)

    async def go(self) -> None:
        """End the pause."""
        now_ms = await self._scripts.now_ms()
        await self._scripts.run_pipeline(
            lambda ask: (
                ask.set(keys.ANSWERED_UNTIL, now_ms, px=KNOWN_MS),
                ask.delete(keys.RESTORED),
            ),
            is_atomic=True,
        )

    async def answered_until(self) -> int:
        """Return the time (ms) before which the lost fleet may have answered; 0 without one."""
        client = self._scripts.client
        stored = await self._scripts.call(client.get, keys.ANSWERED_UNTIL, deadline=math.inf)
        return int(stored or 0)


def paused_problem(backup_ms: int | None) -> str | None:
    """Return a sentence that the fleet is paused, and what to do; None if it is not."""
    if backup_ms is None:
        return None
    return (
        "the fleet was restored from a backup and is paused: `remoteclaw restore` lists what "
        "waits, and `remoteclaw restore --go` starts it."
    )


#: How a key of each type is read. `RESTORE` would refuse what a server of another kind has dumped.
_READ: Mapping[bytes, Callable[[Any, bytes], object]] = {
    b"string": lambda ask, name: ask.get(name),
    b"hash": lambda ask, name: ask.hgetall(name),
    b"list": lambda ask, name: ask.lrange(name, 0, -1),
    b"set": lambda ask, name: ask.smembers(name),
    b"zset": lambda ask, name: ask.zrange(name, 0, -1, withscores=True),
    b"stream": lambda ask, name: ask.xrange(name),
}


def _read(ask: Any, name: bytes, kind: bytes) -> None:
    """Ask for a key's value, and for what else a stream needs."""
    _READ[kind](ask, name)
    if kind == b"stream":
        ask.xinfo_stream(name)
    else:
        ask.exists(name)


def _write(ask: Any, name: bytes, kind: bytes, value: Any, info: Any) -> None:
    """Write a key as it was read; a retry finds what it has stored already."""
    match kind:
        case b"string":
            ask.set(name, value)
        case b"hash":
            ask.hset(name, mapping=value)
        case b"list":
            ask.unlink(name)
            ask.rpush(name, *value)
        case b"set":
            ask.sadd(name, *value)
        case b"zset":
            ask.zadd(name, dict(value))
        case b"stream":
            ask.unlink(name)
            for entry, fields in value:
                ask.xadd(name, fields, id=entry)
            last = info["last-generated-id"]
            if last not in (b"0-0", *(entry for entry, _ in value[-1:])):
                # Its last entries were removed, and later ids must be greater.
                ask.xadd(name, {"": ""}, id=last)
                ask.xdel(name, last)


def _json(payload: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        value = orjson.loads(payload)
        return value if isinstance(value, dict) else {}
    return {}
