"""The lease of a session: a worker's exclusive right to run the session's turns.

Once another worker acquires the lease, Redis refuses every write of the previous owner.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson
from redis.exceptions import RedisError

from remoteclaw.clock import boottime
from remoteclaw.errors import LeaseLost, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import LISTEN_S, Scripts, announcements
from remoteclaw.fleet.keys import Lane
from remoteclaw.fleet.sessions.state import STATE_MS, ConversationSize, SessionState, pairs
from remoteclaw.fleet.sessions.task_tree import TurnProgress
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.inbound import GRACE_MS, RawEntry
from remoteclaw.fleet.turns.leased_session import LeasedSession
from remoteclaw.fleet.turns.outcomes import OUTCOME_MS
from remoteclaw.fleet.turns.turn import RecordAppend, Turns
from remoteclaw.fleet.wake import Waker
from remoteclaw.protocols import FORK_OF, Conversation

#: A CLI's session id is kept for this long after its last use, in milliseconds.
SESSION_MAP_MS = 7 * 24 * 3600 * 1000
#: The maximum time that one read waits for an entry, in milliseconds.
BLOCK_MS = 2000
#: How often a process that waits for the next message checks whether its worker is leaving, in
#: milliseconds.
LEAVING_MS = 1000
#: The maximum number of entries that are read during a turn, and for a batch.
MAX_NEXT_ENTRIES, MAX_READ_ENTRIES = 16, 1000
#: At most this many hints of a queue are checked.
MAX_HINTS = 9
#: `acquire()` retries for this long while Redis is unavailable, in seconds.
ACQUIRE_S = 10.0

#: The delay before `listen()` connects, in seconds: it opens another connection, which should not
#: delay the request to the agent.
LISTEN_DELAY_S = 0.02


@dataclass(slots=True)
class Lease(LeasedSession):
    """The lease of one session.

    Every method raises `LeaseLost` once another worker holds the lease.
    """

    turns: Turns = field(init=False)
    progress: TurnProgress = field(init=False)

    def __post_init__(self) -> None:  # noqa: D105 - it only creates the parts of this lease
        self.progress = TurnProgress(self)
        self.turns = Turns(self, self.progress)

    def has_lost_conversation(self, names: Collection[str]) -> bool:
        """Whether the session had a conversation, but none under `names` of the session map.

        The CLI's id has expired, or the conversation belongs to another host or CLI.
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
        budgets: Sequence[str] = (),
    ) -> None:
        """End the conversation on behalf of `turn`; the next conversation starts without it.

        The caller discards the agent first. It must not call this if `state.reset_turn` is this
        turn, since an earlier attempt has already ended the conversation.

        The conversation's record is archived for `keep_ms`, with the reason `why` for people; the
        archive keeps the newest `keep` records. With `stops_tasks`, all tasks that the session
        started are stopped. The next conversation is a copy of `copy_of` (its name in the session
        map, and the CLI's id), or begins with the record `notes`, if either is given. What owners
        have decided about its `budgets`, which are keys, is over.
        """
        name = copy_of[0] if copy_of else None
        copied = Conversation(FORK_OF + copy_of[1]) if copy_of else None
        now = await self.run_fenced(
            "reset",
            turn=turn,
            reason=why,
            keep_ms=keep_ms,
            max_archived=keep,
            stops_tasks=stops_tasks,
            outcome_ms=OUTCOME_MS,
            copy_name=name,
            copy_of=copied.encode() if copied else None,
            map_ms=SESSION_MAP_MS,
            notes=notes if keep_ms else None,
            budgets=budgets,
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
            context=None,
            has_untold_summary=False,
        )

    @property
    def has_conversation(self) -> bool:
        """Whether a CLI may have a conversation that the session continues."""
        return bool(self.session_map) or self.state.has_remembered

    async def read_record(self) -> bytes:
        """Return the record of the conversation; empty if it has none."""
        client = self.scripts.client
        return (
            await self.scripts.call(client.get, keys.record(self.sid), deadline=self.stop_at) or b""
        )

    # -- a turn --------------------------------------------------------------------------------

    async def entries(self) -> list[RawEntry]:
        """Return the oldest unfinished entries, at most `MAX_READ_ENTRIES`."""
        entries, self.prefetched_entries = self.prefetched_entries, None
        if entries is None:
            entries = await self._entries_after("0-0", MAX_READ_ENTRIES)
        if entries:
            self.newest_read = entries[-1][0].decode()
        return entries

    async def entries_after(self, after: str) -> list[RawEntry]:
        """Return the oldest entries after the entry `after`, at most `MAX_NEXT_ENTRIES`."""
        return await self._entries_after(after, MAX_NEXT_ENTRIES)

    async def _entries_after(self, after: str, count: int) -> list[RawEntry]:
        """Return entries, each in its newest version: its sender may have edited it."""
        entries: list[RawEntry] = await self.scripts.run(
            "entries",
            sid=self.sid,
            after=after,
            count=count,
            deadline=self.stop_at,
        )
        return entries

    async def grant(self, digest: str, tools: Collection[str]) -> None:
        """Allow the agent whose token has this `digest`, and no other, to call `tools`."""
        grant = orjson.dumps({"digest": digest, "names": sorted(tools)})
        await self.run_fenced("grant", grant=grant)

    async def are_tools_missing(self) -> bool:
        """Whether the newest agent has not asked for its tools, and this turn is to report that."""
        return bool(await self.run_fenced("tools_missing"))

    async def remember(self, name: str, conversation: Conversation | None) -> None:
        """Store the CLI's `conversation` under a `conversation_name()`; None removes it."""
        self.session_map.pop(name, None)
        if conversation is not None:
            self.session_map[name] = conversation
        self.state = replace(self.state, has_remembered=conversation is not None)
        await self.run_fenced(
            "remember",
            name=name,
            conversation=conversation.encode() if conversation else None,
            keep_ms=SESSION_MAP_MS,
        )

    async def note_context(
        self,
        context: ConversationSize | None,
        *,
        has_summary: bool = False,
        usage: Usage | None = None,
        record: RecordAppend | None = None,
    ) -> None:
        """Store the size of the conversation after a turn.

        With `has_summary`, the conversation was summarized since then, which is told with the next
        answer. `usage` is what that has used, also if it did not succeed, and `record` has the
        lines about it.
        """
        self.state = replace(
            self.state,
            context=context,
            has_untold_summary=has_summary or self.state.has_untold_summary,
        )
        await self.run_fenced(
            "context",
            nonce=uuid.uuid4().hex,
            context=str(context) if context else None,
            has_summary=has_summary,
            record=record.lines if record else None,
            record_bytes=record.max_bytes if record else None,
            record_ms=record.keep_ms if record else None,
            **self.usage_args(usage),
        )

    # -- holding it ----------------------------------------------------------------------------

    async def listen(self, on_renewed: Callable[[str, str], None]) -> None:
        """Renew the lease until cancelled, or until it is given away.

        After each renewal, `on_renewed` is called with the stop mark, which is the id up to which
        all entries are stopped, and with the id of the newest message of a person or to a task.

        The lease is renewed each second, at each announcement, and after each reconnection, since a
        restarted server may have lost its last second of writes, including the lease. Raises
        `LeaseLost` if another worker holds the lease, or at `stop_at`, when another worker may soon
        acquire it.
        """
        await asyncio.sleep(LISTEN_DELAY_S)
        rings = announcements(self.scripts.client, keys.bell(self.sid))
        async with contextlib.aclosing(rings):
            while True:
                try:
                    async with asyncio.timeout(self.stop_at - boottime()):
                        await anext(rings)
                except TimeoutError:
                    raise LeaseLost("the lease could not be renewed: Redis is away") from None
                if self.is_given_away:
                    return
                try:
                    stop_mark, newest_entry = await self._renew()
                except LeaseLost:
                    if self.is_given_away:
                        return
                    raise
                on_renewed(stop_mark, newest_entry)

    async def _renew(self) -> tuple[str, str]:
        """Renew the lease for `lease_s`; return the stop mark and the id of that message."""
        if boottime() > self.stop_at:
            raise LeaseLost("the lease was not renewed in time: this process was frozen")
        sent_at = boottime()
        lease_ms = int(self.lease_s * 1000)
        try:
            ids = await self.run_fenced("renew", lease_ms=lease_ms, grace_ms=GRACE_MS)
        except RedisUnavailable as error:
            raise LeaseLost(f"the lease could not be renewed: {error}") from None
        self.renewed_at = max(self.renewed_at, sent_at)
        return ids.stop_entry or "", ids.newest_message or ""

    async def stays_quiet(self, seconds: float) -> bool:
        """Wait for `seconds`; return False at once if an entry newer than `newest_read` arrives."""
        until = boottime() + seconds
        streams: dict[Any, Any] = {keys.inbound(self.sid): self.newest_read}
        while (left_ms := int((until - boottime()) * 1000)) > 0:
            block = min(left_ms, BLOCK_MS)
            if await self.scripts.call(
                self.scripts.client.xread, streams, count=1, block=block, deadline=self.stop_at
            ):
                return False
        return True

    async def wait(
        self, seconds: float, *, lane: Lane | None = None
    ) -> Literal["entry", "hint", "leaving", "nothing"]:
        """Wait for the session's next entry, the hint of another session, or the worker's end.

        Hints count that are at least as urgent as those of `lane`, by default the session's own.
        Returns at once if Redis is unavailable, since the caller's next step waits for Redis.
        """
        try:
            return await self._wait_until(boottime() + seconds, lane or self.state.lane)
        except (RedisError, OSError):
            return "nothing"

    async def _wait_until(
        self, until: float, lane: Lane
    ) -> Literal["entry", "hint", "leaving", "nothing"]:
        client = self.scripts.client
        # WAKE is read before the queues, so that XREAD sees a hint that arrives between the two.
        async with asyncio.timeout(LISTEN_S):
            newest: Any = await client.xrevrange(keys.WAKE, count=1)
            is_busy = await self._has_competing_hints(lane)
        last_hint: bytes = newest[0][0] if newest else b"0"
        if is_busy:
            return "hint"
        while (left_ms := int((until - boottime()) * 1000)) > 0:
            streams: dict[Any, Any] = {keys.inbound(self.sid): "0", keys.WAKE: last_hint}
            block_ms = min(left_ms, LEAVING_MS)
            arrivals: Any = await client.xread(streams, count=MAX_READ_ENTRIES, block=block_ms)
            for stream, entries in arrivals:
                if stream == keys.inbound(self.sid).encode():
                    self.prefetched_entries = entries
                    return "entry"
                last_hint = entries[-1][0]
                # An idle worker, blocked on the queue, would have taken the hint by now.
                if await self._has_competing_hints(lane):
                    return "hint"
            if await self.is_leaving():
                return "leaving"
        return "nothing"

    async def wait_until_needed(self) -> None:
        """Return once another session's hint is waiting, and no idle worker has taken it.

        Return also once this worker is asked to end.
        """
        last_hint: Any = None
        while True:
            try:
                if last_hint is None:
                    async with asyncio.timeout(LISTEN_S):
                        newest: Any = await self.scripts.client.xrevrange(keys.WAKE, count=1)
                    last_hint = newest[0][0] if newest else b"0"
                if await self.is_leaving() or await self._has_hints_of_others():
                    return
                hints: Any = await self.scripts.client.xread(
                    {keys.WAKE: last_hint}, count=1, block=BLOCK_MS
                )
                last_hint = hints[-1][1][-1][0] if hints else last_hint
            except (RedisError, OSError):
                await asyncio.sleep(LISTEN_S)  # the turn's own steps wait for Redis

    async def _has_hints_of_others(self) -> bool:
        """Whether the hint of another session is waiting, at least as urgent as this session's."""
        client: Any = self.scripts.client
        for queue in keys.competing(self.state.lane, self.host, self.label):
            for job in await client.lrange(queue, 0, MAX_HINTS - 1):
                description = await client.hget(keys.rq_job(job.decode()), "description")
                # The running drain may have left a hint of its own session.
                if description and not description.decode().endswith(f"/{self.sid[:8]}"):
                    return True
        return False

    async def _has_competing_hints(self, lane: Lane) -> bool:
        """Whether any hint is waiting that is at least as urgent as those of `lane`."""
        pipeline = self.scripts.client.pipeline(transaction=False)
        for name in keys.competing(lane, self.host, self.label):
            pipeline.llen(name)
        return any(await pipeline.execute())

    # -- leaving it ----------------------------------------------------------------------------

    async def close(self) -> bool:
        """Release the lease and mark the session as idle.

        Returns False, and keeps the lease, if an entry is waiting.
        """
        reply = await self.run_fenced("close", keep_ms=STATE_MS)
        self.state = replace(self.state, busy_since_ms=None)
        return bool(reply == "closed")

    async def release(self, *, delay_s: float = 0.0) -> None:
        """Release the lease while entries remain, and queue the session after the waiting ones.

        A delay means that this host can't serve the session: after `delay_s`, the sweep sends a
        hint to the workers of all hosts.
        """
        delay_ms = int(delay_s * 1000) or GRACE_MS
        queue = await self.run_fenced("release", delay_ms=delay_ms, is_elsewhere=delay_s > 0)
        if not delay_s:
            await self.waker.hint(self.sid, str(self.session), queue=queue)


class Leases:
    """Acquires leases."""

    def __init__(self, scripts: Scripts, waker: Waker, *, lease_s: float) -> None:
        self._scripts = scripts
        self._waker = waker
        self.lease_s = lease_s

    async def acquire(self, sid: str, *, worker: str, host: str, label: str = "") -> Lease | None:
        """Acquire a session's lease; None if no entry is waiting or another worker holds the lease.

        People see the name `worker` as the owner of the lease. `host` becomes the session's host,
        to which its hints go. `label` is that of the worker.
        """
        sent_at = boottime()
        lease_ms = int(self.lease_s * 1000)
        acquired = await self._scripts.run(
            "acquire",
            sid=sid,
            nonce=uuid.uuid4().hex,
            lease_ms=lease_ms,
            grace_ms=GRACE_MS,
            worker=worker,
            map_ms=SESSION_MAP_MS,
            host=host,
            max_entries=MAX_READ_ENTRIES,
            gateway=keys.gateway(host),
            deadline=sent_at + ACQUIRE_S,
        )
        if acquired.status != "acquired":
            return None
        state = pairs(acquired.state)
        return Lease(
            sid=sid,
            epoch=acquired.epoch,
            state=SessionState.decode(state),
            session_map={
                name.decode(): Conversation.decode(value.decode())
                for name, value in pairs(acquired.session_map).items()
            },
            host=host,
            label=label,
            gateway=acquired.gateway,
            lease_s=self.lease_s,
            renewed_at=sent_at,
            acquired_at=sent_at,
            acquired_ms=int(state[b"lease_until_ms"]) - lease_ms,
            prefetched_entries=[(entry_id, fields) for entry_id, fields in acquired.entries],
            scripts=self._scripts,
            waker=self._waker,
        )
