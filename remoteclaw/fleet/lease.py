"""The lease of a session: a worker's exclusive right to run its turns, acquired and released.

A lease is an exclusive lock on a session and its state: once another worker acquires it,
Redis refuses every write of the earlier owner.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson
from redis.exceptions import RedisError

from remoteclaw.clock import boottime
from remoteclaw.errors import LeaseLost, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import LISTEN_S, Scripts, announcements
from remoteclaw.fleet.inbound import GRACE_MS, RawEntry
from remoteclaw.fleet.lua import Arguments, Keys
from remoteclaw.fleet.outcomes import OUTCOME_MS
from remoteclaw.fleet.state import STATE_MS, SessionState, pairs
from remoteclaw.fleet.task_tree import TurnWork
from remoteclaw.fleet.turn import Turns
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import FORK_OF

#: Parts of the lease's time: when the owner stops itself, and when the holder kills the agent. The
#: owner stops before the holder acts, and both before another worker can take the lease.
STOP_AT, KILL_AT = 0.8, 0.9
#: How long a CLI's session id is kept since its last use, in milliseconds.
SESSION_MAP_MS = 7 * 24 * 3600 * 1000
#: How long one read waits for an entry, in milliseconds.
BLOCK_MS = 2000
#: How many entries are read at once: with the lease and behind the running turn, and for a batch.
READ_NEXT, READ_ALL = 16, 1000
#: How many hints of a queue are looked at.
MAX_HINTS = 8
#: How long `acquire()` tries while Redis is away, in seconds.
ACQUIRE_S = 10.0

#: How long `listen()` waits before it connects, in seconds: it needs a connection of its own, and
#: the agent should be asked first.
LISTEN_DELAY_S = 0.02


@dataclass(slots=True)
class Lease:
    """One session, held. Every method raises `LeaseLost` once another worker holds the session."""

    sid: str
    epoch: str
    state: SessionState
    """The session's state: as it was when the lease was taken, with what this owner changed."""
    session_map: dict[str, str]
    """By runtime and workspace, what `LeasedSessionMap` keeps of a CLI's conversation."""
    host: str
    """The host that serves the session now."""
    gateway: str | None
    """The address of the host's gateway; None if it had none when the lease was taken."""
    lease_s: float
    renewed_at: float
    """When the last successful renewal was sent, on `boottime()`."""
    scripts: Scripts
    waker: Waker
    turns: Turns = field(init=False)
    work: TurnWork = field(init=False)
    newest_read: str = "0-0"
    """The newest entry that `entries()` has read."""
    is_given_away: bool = False
    """Whether it was given to the holder of a terminal, or may have been."""

    def __post_init__(self) -> None:  # noqa: D105 - it makes the turns of this lease
        self.turns, self.work = Turns(self), TurnWork(self)

    @property
    def stop_at(self) -> float:
        """When this process has to stop by itself, on `boottime()`."""
        return self.renewed_at + STOP_AT * self.lease_s

    @property
    def kill_at(self) -> float:
        """When the holder kills the agent, on `boottime()`."""
        return self.renewed_at + KILL_AT * self.lease_s

    @property
    def session(self) -> SessionKey:
        """The session's key."""
        return self.state.key

    def has_lost_conversation(self, names: Collection[str]) -> bool:
        """Whether the session had a conversation, and has none under these names.

        The conversation's id has expired, or another host or CLI has it.
        """
        return self.state.has_remembered and self.session_map.keys().isdisjoint(names)

    async def reset(
        self,
        turn: str,
        why: str,
        *,
        keep_ms: int,
        keep: int,
        stops_tasks: bool = False,
        copy_of: tuple[str, str] | None = None,
        notes: str | None = None,
    ) -> None:
        """End the conversation, once for each turn: the next conversation knows nothing of it.

        The conversation's record is archived for `keep_ms`, among the newest `keep`; `why` is for
        people. The caller discards the agent first. With `stops_tasks`, all tasks that the session
        has started are stopped. The next conversation is a copy of `copy_of`, if given: its
        name in the session map, and the CLI's id; or it begins with `notes`, a record. Don't call
        it if `state.reset_turn` is this turn: an earlier attempt has done it.
        """
        name, copied = (copy_of[0], f"{FORK_OF}{copy_of[1]}") if copy_of else (None, None)
        now = await self.run_fenced(
            "reset",
            {
                "session_map": keys.session_map(self.sid),
                "record": keys.record(self.sid),
                "archive": keys.archive(self.sid),
            },
            {
                "turn": turn,
                "reason": why,
                "keep_ms": keep_ms,
                "most": keep,
                "sid": self.sid,
                "stops_tasks": stops_tasks,
                "outcomes": keys.outcome_prefix(self.sid),
                "outcome_ms": OUTCOME_MS,
                "done_channel": keys.outcome_channel(self.sid),
                "copy_name": name,
                "copy_of": copied,
                "map_ms": SESSION_MAP_MS,
                "notes": notes if keep_ms else None,
            },
        )
        self.session_map.clear()
        if name and copied:
            self.session_map[name] = copied
        self.state = replace(
            self.state,
            has_remembered=False,
            agent_process=None,
            finished_turn=None,
            grant=None,
            reset_turn=turn,
            reset_reason=why,
            last_heard_ms=int(now),
        )

    @property
    def has_conversation(self) -> bool:
        """Whether a CLI may have a conversation that the session goes on with."""
        return bool(self.session_map) or self.state.has_remembered

    async def recorded(self) -> bytes:
        """Return the record of the conversation; nothing if there is none."""
        client = self.scripts.client
        return (
            await self.scripts.call(client.get, keys.record(self.sid), deadline=self.stop_at) or b""
        )

    # -- a turn --------------------------------------------------------------------------------

    async def entries(self) -> list[RawEntry]:
        """Return the oldest entries of the inbound stream that are not finished."""
        client = self.scripts.client
        entries: list[RawEntry] = await self.scripts.call(
            client.xrange, keys.inbound(self.sid), count=READ_ALL, deadline=self.stop_at
        )
        if entries:
            self.newest_read = entries[-1][0].decode()
        return entries

    async def entries_after(self, after: str) -> list[RawEntry]:
        """Return the oldest entries behind the entry `after`, `READ_NEXT` at most."""
        client = self.scripts.client
        entries: list[RawEntry] = await self.scripts.call(
            client.xrange,
            keys.inbound(self.sid),
            f"({after}",
            count=READ_NEXT,
            deadline=self.stop_at,
        )
        return entries

    async def grant(self, digest: str, tools: Collection[str]) -> None:
        """Name the one agent process that may call tools for the session, by its token's digest."""
        grant = orjson.dumps({"digest": digest, "names": sorted(tools)})
        await self.run_fenced("grant", {}, {"grant": grant})

    async def remember(self, name: str, conversation: str | None) -> None:
        """Keep a conversation under a runtime and workspace; None drops it."""
        self.session_map.pop(name, None)
        if conversation is not None:
            self.session_map[name] = conversation
        self.state = replace(self.state, has_remembered=conversation is not None)
        await self.run_fenced(
            "remember",
            {"session_map": keys.session_map(self.sid)},
            {"name": name, "conversation": conversation, "keep_ms": SESSION_MAP_MS},
        )

    # -- holding it ----------------------------------------------------------------------------

    async def listen(self, told: Callable[[str, str], None]) -> None:
        """Renew until cancelled; call `told` with stop mark and newest entry after each success.

        Renews each second, with each announcement, and as soon as it is connected again, because a
        server that comes back may have lost its last second of writes, the lease among them.
        Raises `LeaseLost` when another worker holds the session, or when no renewal has succeeded
        for 0.8 of the lease: then another worker may soon take it.
        """
        await asyncio.sleep(LISTEN_DELAY_S)
        news = announcements(self.scripts.client, keys.bell(self.sid))
        async with contextlib.aclosing(news):
            while True:
                try:
                    async with asyncio.timeout(self.stop_at - boottime()):
                        await anext(news)
                except TimeoutError:
                    raise LeaseLost("the lease could not be renewed: Redis is away") from None
                if self.is_given_away:
                    return
                try:
                    news_of_turn = await self._renew()
                except LeaseLost:
                    if self.is_given_away:
                        return
                    raise
                told(*news_of_turn)

    async def _renew(self) -> tuple[str, str]:
        """Renew the lease for its whole time; return stop mark and newest entry."""
        if boottime() > self.stop_at:
            raise LeaseLost("the lease was not renewed in time: this process was frozen")
        sent_at = boottime()
        lease_ms = int(self.lease_s * 1000)
        try:
            stop, newest = await self.run_fenced(
                "renew",
                {"active": keys.ACTIVE},
                {"sid": self.sid, "lease_ms": lease_ms, "grace_ms": GRACE_MS},
            )
        except RedisUnavailable as error:
            raise LeaseLost(f"the lease could not be renewed: {error}") from None
        self.renewed_at = max(self.renewed_at, sent_at)
        return stop.decode(), newest.decode()

    async def stays_quiet(self, seconds: float) -> bool:
        """Return whether no entry newer than the last one read comes within these seconds."""
        until = boottime() + seconds
        streams: dict[Any, Any] = {keys.inbound(self.sid): self.newest_read}
        while (left_ms := int((until - boottime()) * 1000)) > 0:
            block = min(left_ms, BLOCK_MS)
            if await self.scripts.call(
                self.scripts.client.xread, streams, count=1, block=block, deadline=self.stop_at
            ):
                return False
        return True

    async def wait(self, seconds: float) -> Literal["entry", "hint", "nothing"]:
        """Wait for the session's next entry, or until another session needs this worker.

        Without Redis it returns at once: the caller's next step waits for Redis.
        """
        try:
            return await self._wait_until(boottime() + seconds)
        except (RedisError, OSError):
            return "nothing"

    async def _wait_until(self, until: float) -> Literal["entry", "hint", "nothing"]:
        client = self.scripts.client
        # Read WAKE before the queue lengths: XREAD then sees a hint that comes between the two.
        async with asyncio.timeout(LISTEN_S):
            newest: Any = await client.xrevrange(keys.WAKE, count=1)
            is_busy = await self._has_competing_hints()
        last_hint: bytes = newest[0][0] if newest else b"0"
        if is_busy:
            return "hint"
        while (left_ms := int((until - boottime()) * 1000)) > 0:
            streams: dict[Any, Any] = {keys.inbound(self.sid): "0", keys.WAKE: last_hint}
            found: Any = await client.xread(
                streams,
                count=1,
                block=min(left_ms, BLOCK_MS),
            )
            for stream, entries in found:
                if stream == keys.inbound(self.sid).encode():
                    return "entry"
                last_hint = entries[-1][0]
                # An idle worker has taken the hint by now: it was blocked on the queue.
                if await self._has_competing_hints():
                    return "hint"
        return "nothing"

    async def needed(self) -> None:
        """Return once another session's hint waits for this worker, and no idle worker takes it."""
        last_hint: Any = None
        while True:
            try:
                if last_hint is None:
                    async with asyncio.timeout(LISTEN_S):
                        newest: Any = await self.scripts.client.xrevrange(keys.WAKE, count=1)
                    last_hint = newest[0][0] if newest else b"0"
                if await self._has_hints_of_others():
                    return
                found: Any = await self.scripts.client.xread(
                    {keys.WAKE: last_hint}, count=1, block=BLOCK_MS
                )
                last_hint = found[-1][1][-1][0] if found else last_hint
            except (RedisError, OSError):
                await asyncio.sleep(LISTEN_S)  # the turn's own steps wait for Redis

    async def _has_hints_of_others(self) -> bool:
        """Whether a hint of another session waits. A leftover one of this session doesn't count."""
        client: Any = self.scripts.client
        for queue in keys.competing(self.state.lane, self.host):
            for job in await client.lrange(queue, 0, MAX_HINTS):
                words = await client.hget(keys.rq_job(job.decode()), "description")
                if words and not words.decode().endswith(f"/{self.sid[:8]}"):
                    return True
        return False

    async def _has_competing_hints(self) -> bool:
        """Whether hints for other sessions wait that are as urgent as this session's, or more."""
        pipeline = self.scripts.client.pipeline(transaction=False)
        for name in keys.competing(self.state.lane, self.host):
            pipeline.llen(name)
        return any(await pipeline.execute())

    # -- leaving it ----------------------------------------------------------------------------

    async def close(self) -> bool:
        """Release the lease and let the session be idle; False, and kept, if an entry waits."""
        reply = await self.run_fenced(
            "close",
            {"inbound": keys.inbound(self.sid), "active": keys.ACTIVE},
            {"sid": self.sid, "keep_ms": STATE_MS},
        )
        self.state = replace(self.state, busy_since_ms=None)
        return bool(reply == b"closed")

    async def release(self, *, delay_s: float = 0.0) -> None:
        """Release the lease while entries remain; the session queues behind those that wait.

        With a delay, no worker is hinted before so many seconds have passed; then workers of all
        hosts are, because this host can't serve the session.
        """
        delay_ms = int(delay_s * 1000) or GRACE_MS
        queue = await self.run_fenced(
            "release",
            {"active": keys.ACTIVE},
            {"sid": self.sid, "delay_ms": delay_ms, "is_elsewhere": delay_s > 0},
        )
        if not delay_s:
            await self.waker.hint(self.sid, str(self.session), queue=queue.decode())

    async def run_fenced(self, name: str, names: Keys, args: Arguments) -> Any:
        """Run a script that is refused once another worker holds the session."""
        return await self.scripts.run(
            name,
            keys={"state": keys.state(self.sid), **names},
            args={"epoch": self.epoch, **args},
            deadline=self.stop_at,
        )


class Leases:
    """Gives out leases."""

    def __init__(self, scripts: Scripts, waker: Waker, *, lease_s: float) -> None:
        self._scripts = scripts
        self._waker = waker
        self.lease_s = lease_s

    async def acquire(self, sid: str, *, worker: str, host: str) -> Lease | None:
        """Take a session's lease; None if it has no work or another worker holds it.

        `worker` tells people who holds the lease; the session's hints go to `host` from now on.
        """
        sent_at = boottime()
        lease_ms = int(self.lease_s * 1000)
        reply = await self._scripts.run(
            "acquire",
            keys={
                "state": keys.state(sid),
                "active": keys.ACTIVE,
                "session_map": keys.session_map(sid),
                "gateway": keys.gateway(host),
            },
            args={
                "sid": sid,
                "nonce": uuid.uuid4().hex,
                "lease_ms": lease_ms,
                "grace_ms": GRACE_MS,
                "worker": worker,
                "map_ms": SESSION_MAP_MS,
                "host": host,
            },
            deadline=sent_at + ACQUIRE_S,
        )
        if reply[0] != b"acquired":
            return None
        _, epoch, state, known, gateway = reply
        return Lease(
            sid=sid,
            epoch=epoch.decode(),
            state=SessionState.decode(pairs(state)),
            session_map={name.decode(): value.decode() for name, value in pairs(known).items()},
            host=host,
            gateway=gateway.decode() or None,
            lease_s=self.lease_s,
            renewed_at=sent_at,
            scripts=self._scripts,
            waker=self._waker,
        )
