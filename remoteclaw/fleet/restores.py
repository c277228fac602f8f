"""A fleet that was restored from a backup: paused until an operator has seen what waits.

The snapshot is older than the loss. What waits in it may have been answered and delivered since, so
nothing of it is begun or sent before `remoteclaw restore --go`.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Sequence
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
        self._told = set[str]()
        """The duties that have logged their wait; a sweeper has several."""

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
        while True:
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                if await self.paused_from() is None:
                    return
                if what not in self._told:
                    self._told.add(what)
                    log.warning("%s: waits for `remoteclaw restore --go`", what)
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


def _json(payload: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        value = orjson.loads(payload)
        return value if isinstance(value, dict) else {}
    return {}
