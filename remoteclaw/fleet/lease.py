"""A session's lease: the right to run its turns, and every write that the right allows.

Semantics of Azure Service Bus sessions (an exclusive lock on a session and its state) with
Kafka's fenced read-process-write: each write carries the lease's epoch, and a turn's outcome, its
last messages and the removal of its entries are one step.
"""

import asyncio
import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson
from redis.exceptions import RedisError

from remoteclaw.clock import boottime
from remoteclaw.config.model import QueueOverride
from remoteclaw.errors import LeaseLost, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import LISTEN_S, Scripts, announcements
from remoteclaw.fleet.inbound import GRACE_MS
from remoteclaw.fleet.lua import Arguments, Keys
from remoteclaw.fleet.state import SessionState, pairs
from remoteclaw.fleet.usage import USAGE_DAYS, Usage
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import SessionKey

__all__ = [
    "Batch",
    "Finished",
    "Lease",
    "Leases",
    "Owed",
    "Phase",
    "Postponement",
    "Record",
]

#: Parts of the lease's time: renewals come so often, the owner stops itself, its agent is killed.
#: The owner must have stopped before the agent's holder acts, both before anybody can take over.
RENEW_AT, FENCE_AT, KILL_AT = 1 / 6, 0.8, 0.9
#: How long outcomes can be read, in milliseconds.
OUTCOME_MS = 7 * 24 * 3600 * 1000
#: How long an idle session's state is kept, in milliseconds: longer than its CLI session id.
STATE_MS = 8 * 24 * 3600 * 1000
#: How long a CLI's session id is kept since its last use, in milliseconds.
SESSION_MAP_MS = 7 * 24 * 3600 * 1000
#: What stands between such an id and what the CLI's last process has noted with it.
NOTE = "\n"
#: How long the sums of a day are kept, in milliseconds.
USAGE_MS = (USAGE_DAYS + 1) * 24 * 3600 * 1000
#: How long live text stays readable after the last write, in milliseconds.
LIVE_MS = 60_000
#: How long one read waits for an entry, in milliseconds.
BLOCK_MS = 2000
#: How many entries are read at once where the next one is enough.
FEW_ENTRIES = 16
#: How long taking the lease is tried while Redis is away, in seconds.
ACQUIRE_S = 10.0

#: How long a new drain waits before it listens for stops, in seconds: it needs a connection of its
#: own, and the agent should be asked first.
QUIET_S = 0.02

#: How far an attempt has come: recorded, waiting to be asked again, prompt about to be sent, first
#: text, first tool; or that its entries are to be dropped.
Phase = Literal["", "accepted", "postponed", "spawned", "output", "tool", "dropped"]
#: An entry as Redis has it: its id, and its fields as a list (from scripts) or a map.
RawEntry = tuple[bytes, list[bytes] | dict[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Batch:
    """What `begin` recorded: the entries of a turn, and what is known of earlier attempts."""

    turn: str
    attempt: int
    failures: int
    """How many attempts before this one failed; one that was cut off on purpose did not."""
    before: Phase
    """The furthest phase that an attempt before reached; empty for a first attempt."""
    is_stopped: bool
    """True when somebody stopped these entries before they could begin."""
    is_dropped: bool
    """True when these entries were recorded to be dropped, now or by an attempt before."""
    entries: tuple[RawEntry, ...]
    left_out: frozenset[str]
    """The ids of the entries of which the agent is only told how they began."""
    is_resumed: bool = False
    """True when the attempt before was postponed: all that it said of itself was said then."""
    tries: int = 0
    """How often the agent was asked in attempts that were postponed."""
    told: str = ""
    """What the person was told of that, as `postpone()` was given it."""
    limited_until_ms: int | None = None
    """Until when the agent's login is known to have used up its plan; None if nothing is known."""

    @property
    def entry_ids(self) -> frozenset[bytes]:
        """The ids of its entries."""
        return frozenset(entry_id for entry_id, _ in self.entries)


@dataclass(frozen=True, slots=True)
class Record:
    """What a turn adds to the record of its conversation."""

    lines: bytes
    """JSON, one object a line (`session.record`)."""
    most_bytes: int
    """How large the whole record may become; then its beginning goes."""
    keep_ms: int
    """How long it is kept after this turn, in milliseconds; 0 removes what there is."""


@dataclass(frozen=True, slots=True)
class Owed:
    """A turn's result, for the session that has started this one."""

    to: SessionKey
    entry: bytes
    """It, as it is to stand on that session's stream."""


@dataclass(frozen=True, slots=True)
class Postponement:
    """Until when a turn waits, and what is said of it."""

    until_ms: int
    why: str
    tries: int
    """How often the agent was asked so far."""
    told: str
    """What the person was told, so that it is said once."""
    detail: str
    """For people who trace the message."""
    notice: dict[str, Any] | None = None
    """What goes on the reply stream now."""
    later: dict[str, Any] | None = None
    """What goes there when a person writes while the turn waits; once."""
    is_of_login: bool = False
    """Whether every session of the agent's login has to wait."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a session's owner learns with the end of a turn."""

    left: int
    """Entries of the session that wait."""
    hints: int
    """Hints for other sessions that are as urgent."""
    at_ms: int
    """Redis' time."""


@dataclass(slots=True)
class Lease:
    """One session, held. Every method raises `LeaseLost` once another worker holds it."""

    sid: str
    epoch: str
    state: SessionState
    """The session's state: as it was when the lease was taken, with what this owner changed."""
    session_ids: dict[str, str]
    """The CLIs' own session ids, by runtime and workspace."""
    notes: dict[str, str]
    """What their last processes have noted with each."""
    waiting: list[RawEntry]
    """The oldest entries, as far as they were read."""
    host: str
    """The host that serves the session now."""
    gateway: str | None
    """The address of its gateway; None if it had none when the lease was taken."""
    lease_s: float
    renewed_at: float
    """When the last successful renewal was sent, on `boottime()`."""
    _scripts: Scripts
    _waker: Waker
    _turn: Batch | None = None
    _is_stale: bool = False
    """Whether there may be more entries than `waiting` has."""

    @property
    def fence(self) -> float:
        """When this process has to stop by itself, on `boottime()`."""
        return self.renewed_at + FENCE_AT * self.lease_s

    @property
    def kill(self) -> float:
        """When the agent is killed by its holder, on `boottime()`."""
        return self.renewed_at + KILL_AT * self.lease_s

    @property
    def session(self) -> SessionKey:
        """The session's key."""
        return self.state.key

    def has_lost(self, name: str) -> bool:
        """Whether the session had a conversation, and has none under this name.

        Its id has expired, or another host or CLI has it.
        """
        return self.state.has_remembered and name not in self.session_ids

    async def reset(
        self, turn: str, why: str, *, keep_ms: int, keep: int, stops_tasks: bool = False
    ) -> None:
        """End the conversation, once for each turn: the next one knows nothing of it.

        Its record is archived for `keep_ms`, among `keep` at most; `why` is for people. The agent
        is discarded before. With `stops_tasks`, all that the session has started is stopped. An
        attempt at the turn that finds in the state what an earlier one did, must not ask for it
        again.
        """
        now = await self._run(
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
            },
        )
        if stops_tasks:
            self.waiting = []  # to be read anew
        self.session_ids.clear()
        self.notes.clear()
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
        """Whether a CLI may have one that the session goes on with."""
        return bool(self.session_ids) or self.state.has_remembered

    async def recorded(self) -> bytes:
        """Return the record of the conversation; nothing if there is none."""
        client = self._scripts.client
        read = functools.partial(client.get, keys.record(self.sid))
        return await self._scripts.call(read, deadline=self.fence) or b""

    # -- a turn --------------------------------------------------------------------------------

    async def entries(self, *, most: int = FEW_ENTRIES) -> list[RawEntry]:
        """Return the oldest entries of the inbound stream that are not finished.

        `most` is how many are wanted; without it, what was read before may do.
        """
        if not self.waiting or (self._is_stale and most > FEW_ENTRIES):
            client = self._scripts.client
            self.waiting = await self._scripts.call(
                lambda: client.xrange(keys.inbound(self.sid), count=most), deadline=self.fence
            )
            self._is_stale = len(self.waiting) == most
        return self.waiting

    async def begin(
        self,
        entry_ids: Sequence[str],
        *,
        phase: Phase = "accepted",
        detail: str = "",
        left_out: Sequence[str] = (),
        login: str = "",
    ) -> Batch | None:
        """Record a turn of these entries, or begin again the one that was never finished.

        With an agent that is ready, `phase` is "spawned" at once, which spares a `mark()`; it is
        "dropped" for entries that get no turn.
        `left_out` are those of the entries which the agent is only told of, and `login` is whose
        plan the agent uses.
        None means that the entries are gone, which only an operator can have done.
        """
        nonce = uuid.uuid4().hex  # the script may be sent twice, the attempt counts once
        reply = await self._run(
            "begin",
            {"inbound": keys.inbound(self.sid), "limit": keys.limit(login)},
            {
                "nonce": nonce,
                "outcomes": keys.outcome_prefix(self.sid),
                "entry_ids": ",".join(entry_ids),
                "phase": phase,
                "detail": detail,
                "left_out": ",".join(left_out),
            },
        )
        if reply[0] == b"missing":
            self.waiting = []
            return None
        verdict, turn, attempt, before, entries, forgiven, mentioned, busy_since, queue = reply[:9]
        resumed, tries, told, limited_until = reply[9:]
        self.state = replace(self.state, busy_since_ms=int(busy_since), queue=_queue(queue))
        self._turn = Batch(
            turn=turn.decode(),
            attempt=int(attempt),
            failures=int(attempt) - 1 - int(forgiven),
            before=before.decode(),
            is_stopped=verdict == b"stopped",
            is_dropped=verdict == b"dropped",
            entries=tuple(tuple(entry) for entry in entries),
            left_out=frozenset(mentioned.decode().split(",")),
            is_resumed=resumed == b"1",
            tries=int(tries),
            told=told.decode(),
            limited_until_ms=int(limited_until) if limited_until else None,
        )
        return self._turn

    async def arrived(self, after: str) -> list[RawEntry]:
        """Return the oldest entries behind this one, a few at most."""
        client = self._scripts.client
        entries: list[RawEntry] = await self._scripts.call(
            lambda: client.xrange(keys.inbound(self.sid), f"({after}", count=FEW_ENTRIES),
            deadline=self.fence,
        )
        return entries

    async def steer(self, entry_ids: Sequence[str]) -> bool:
        """Take entries into the running turn, before its agent is told of them.

        `finish()` says which of them the agent took up, and the others wait again; the next attempt
        is about all of them. False if the turn is being stopped.
        """
        return bool(
            await self._run(
                "steer",
                {},
                {
                    "turn": self._running.turn,
                    "outcomes": keys.outcome_prefix(self.sid),
                    "entry_ids": entry_ids,
                },
            )
        )

    async def mark(
        self, phase: str, detail: str = "", *, agent_process: dict[str, Any] | None = None
    ) -> None:
        """Record how far the running attempt has come; `detail` is for people who trace it.

        `agent_process` says where its agent is: whoever takes over after a crash ends that first.
        """
        await self._run(
            "mark",
            {},
            {
                "turn": self._running.turn,
                "phase": phase,
                "detail": detail,
                "outcomes": keys.outcome_prefix(self.sid),
                "agent_process": _json(agent_process),
            },
        )

    async def publish(self, index: int, payload: dict[str, Any]) -> None:
        """Put one complete message of the running turn on its reply stream, once per index."""
        await self._run(
            "publish",
            {"replies": self._reply_stream},
            {
                "turn": self._running.turn,
                "attempt": self._running.attempt,
                "index": index,
                "payload": _json(payload),
            },
        )

    async def finish(
        self,
        status: str,
        *,
        reply: list[dict[str, Any]],
        error: dict[str, Any] | None = None,
        agent_process: dict[str, Any] | None = None,
        first_index: int = 0,
        payloads: Sequence[dict[str, Any]] = (),
        steered: Sequence[str] = (),
        answered: Sequence[str] = (),
        blobs: Sequence[str] = (),
        record: Record | None = None,
        owed: Owed | None = None,
        has_heard: bool = False,
        usage: Usage | None = None,
    ) -> "Finished":
        """End the running turn, and with it the entries that were `steered` into it.

        Those that were `answered` before it failed are done.

        `reply` is what the outcome keeps for whoever waits for it; `payloads` go on the reply
        stream, numbered from `first_index`; `agent_process` says where the agent is parked.
        With the status "dead", the entries become dead letters; else `blobs`, the files that came
        with them, are removed. What is `owed` to another session gets there in the same step.
        `has_heard` says that a person was among those who wrote; `usage` is what the agent took,
        if it was asked.
        """
        done = {*self._running.entry_ids, *(entry_id.encode() for entry_id in steered)}
        left, hints, now, queue, hint = await self._run(
            "finish",
            {
                "inbound": keys.inbound(self.sid),
                "replies": self._reply_stream,
                "dead_letters": keys.DEAD_LETTERS,
                "record": keys.record(self.sid),
                "side_effects": keys.side_effects(self.sid),
                "owed_inbound": keys.inbound(owed.to.sid) if owed else None,
                "owed_state": keys.state(owed.to.sid) if owed else None,
                "active": keys.ACTIVE,
                "sessions": keys.SESSIONS,
                "usage": keys.USAGE,
                "usage_day": keys.usage_day(time.strftime("%Y-%m-%d")),
                "live": keys.live(self.sid),
                "queues": keys.competing(self.state.lane, self.host),
                "blobs": [keys.blob(self.sid, name) for name in blobs],
            },
            {
                "turn": self._running.turn,
                "attempt": self._running.attempt,
                "status": status,
                "outcome_ms": OUTCOME_MS,
                "outcomes": keys.outcome_prefix(self.sid),
                "done_channel": keys.outcome_channel(self.sid),
                "reply": _json(reply),
                "error": _json(error),
                "agent_process": _json(agent_process),
                "sid": self.sid,
                "first_index": first_index,
                "steered": ",".join(steered),
                "answered": ",".join(answered),
                "record": record.lines if record else None,
                "record_bytes": record.most_bytes if record else None,
                "record_ms": record.keep_ms if record else None,
                "owed": owed.entry if owed else None,
                "owed_sid": owed.to.sid if owed else None,
                "owed_key": str(owed.to) if owed else None,
                "owed_outcomes": keys.outcome_prefix(owed.to.sid) if owed else None,
                "grace_ms": GRACE_MS,
                "has_heard": has_heard,
                "usage": usage.encode() if usage else None,
                "agent": self.session.agent,
                "usage_ms": USAGE_MS,
                "payloads": [orjson.dumps(payload) for payload in payloads],
            },
        )
        self._turn = None
        heard_ms = int(now) if has_heard else self.state.last_heard_ms
        self.state = replace(self.state, last_heard_ms=heard_ms, queue=_queue(queue))
        self.waiting = [entry for entry in self.waiting if entry[0] not in done]
        self._is_stale = int(left) != len(self.waiting)
        if owed:
            await self._waker.try_hint(owed.to, hint.decode())
        return Finished(left=int(left), hints=int(hints), at_ms=int(now))

    async def show(self, payload: dict[str, Any]) -> None:
        """Show the answer as far as it has come; each call replaces the one before."""
        await self._run(
            "live",
            {"live": keys.live(self.sid)},
            {"text": _json(payload), "keep_ms": LIVE_MS},
        )

    async def side_effects(self) -> list[dict[str, Any]]:
        """Return what the tools of the running turn did, in all attempts, oldest first."""
        read = functools.partial(self._scripts.client.lrange, keys.side_effects(self.sid), 0, -1)
        return [orjson.loads(line) for line in await self._scripts.call(read, deadline=self.fence)]

    async def grant(self, digest: str, tools: Collection[str]) -> None:
        """Name the one agent process that may call tools for the session, by its token's digest."""
        grant = _json({"digest": digest, "names": sorted(tools)})
        await self._run("grant", {}, {"grant": grant})

    async def remember(self, name: str, session_id: str | None, note: str = "") -> None:
        """Keep the CLI's session id under a runtime and workspace, with a note; None drops it."""
        self.session_ids.pop(name, None)
        self.notes.pop(name, None)
        if session_id is not None:
            self.session_ids[name] = session_id
            self.notes[name] = note
        await self._run(
            "remember",
            {"session_map": keys.session_map(self.sid)},
            {
                "name": name,
                "session_id": f"{session_id}{NOTE}{note}" if note else session_id,
                "keep_ms": SESSION_MAP_MS,
            },
        )

    # -- holding it ----------------------------------------------------------------------------

    async def keep(self, renewed: Callable[[str, str], None]) -> None:
        """Renew until cancelled; call `renewed` with stop mark and newest entry after each success.

        Raises `LeaseLost` when somebody else holds the session, or when no renewal has succeeded
        for 0.8 of the lease: then somebody else soon may.
        """
        while True:
            await asyncio.sleep(self.lease_s * RENEW_AT)
            renewed(*await self._renew())

    async def watch(self, told: Callable[[str, str], None]) -> None:
        """Call `told` with stop mark and newest entry when either changes, until cancelled.

        Renews as soon as it is connected again, because a server that comes back may have lost the
        lease with its last second, and then each second, because announcements get lost. Raises
        `LeaseLost` as `keep()` does.
        """
        await asyncio.sleep(QUIET_S)
        news = announcements(self._scripts.client, keys.bell(self.sid))
        async with contextlib.aclosing(news):
            async for text in news:
                if text is None:
                    told(*await self._renew())
                else:
                    what, _, entry_id = text.decode().partition(" ")
                    told(entry_id if what == "stop" else "", entry_id if what == "entry" else "")

    async def _renew(self) -> tuple[str, str]:
        """Hold the lease for its whole time again; return stop mark and newest entry."""
        if boottime() > self.fence:
            raise LeaseLost("the lease was not renewed in time: this process was frozen")
        sent_at = boottime()
        lease_ms = int(self.lease_s * 1000)
        try:
            stop, newest = await self._run(
                "renew",
                {"active": keys.ACTIVE},
                {"sid": self.sid, "lease_ms": lease_ms, "grace_ms": GRACE_MS},
            )
        except RedisUnavailable as error:
            raise LeaseLost(f"the lease could not be renewed: {error}") from None
        self.renewed_at = max(self.renewed_at, sent_at)
        return stop.decode(), newest.decode()

    async def quiet(self, seconds: float) -> bool:
        """Wait whether the session gets another entry than those that were read; True if not."""
        until = boottime() + seconds
        streams: dict[Any, Any] = {keys.inbound(self.sid): self.waiting[-1][0]}
        while (left_ms := int((until - boottime()) * 1000)) > 0:
            block = min(left_ms, BLOCK_MS)
            read = functools.partial(self._scripts.client.xread, streams, count=1, block=block)
            if await self._scripts.call(read, deadline=self.fence):
                self.waiting = []  # to be read anew
                return False
        return True

    async def wait(self, seconds: float) -> Literal["entry", "hint", "nothing"]:
        """Wait for the session's next entry, or for a hint that finds no idle worker.

        Without Redis it returns at once: the caller's next step waits for it.
        """
        try:
            return await self._wait_until(boottime() + seconds)
        except (RedisError, OSError):
            return "nothing"

    async def _wait_until(self, until: float) -> Literal["entry", "hint", "nothing"]:
        client = self._scripts.client
        # Read before the queue is: a hint that comes between the two is then seen by XREAD.
        async with asyncio.timeout(LISTEN_S):
            newest: Any = await client.xrevrange(keys.WAKE, count=1)
            is_busy = await self._others()
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
                    self.waiting, self._is_stale = entries, False
                    return "entry"
                last_hint = entries[-1][0]
                # An idle worker has taken the job by now: it was blocked on the queue.
                if await self._others():
                    return "hint"
        return "nothing"

    async def _others(self) -> bool:
        """Whether hints wait that are as urgent as this session's."""
        pipeline = self._scripts.client.pipeline(transaction=False)
        for name in keys.competing(self.state.lane, self.host):
            pipeline.llen(name)
        return any(await pipeline.execute())

    # -- leaving it ----------------------------------------------------------------------------

    async def close(self) -> bool:
        """Give the lease back and let the session be idle; False if there is more to do."""
        reply = await self._run(
            "close",
            {"inbound": keys.inbound(self.sid), "active": keys.ACTIVE},
            {"sid": self.sid, "keep_ms": STATE_MS},
        )
        self.state = replace(self.state, busy_since_ms=None)
        return bool(reply == b"closed")

    async def release(self, *, delay_s: float = 0.0) -> None:
        """Give the lease back while entries remain, behind the other sessions that wait.

        With a delay, nobody is hinted before so many seconds have passed, and any host may be: this
        one can't serve it.
        """
        delay_ms = int(delay_s * 1000) or GRACE_MS
        queue = await self._run(
            "release",
            {"active": keys.ACTIVE},
            {"sid": self.sid, "delay_ms": delay_ms, "is_elsewhere": delay_s > 0},
        )
        if not delay_s:
            await self._waker.hint(self.sid, str(self.session), queue=queue.decode())

    async def postpone(
        self, what: Postponement, *, newest: str, login: str
    ) -> Literal["postponed", "stopped", "news"]:
        """Give the lease back until a time; the running turn's batch is begun again then.

        Nothing of it may have been said or done. "stopped" means that the turn is to end instead,
        and "news" that the session has an entry behind the `newest` that the caller knows.
        """
        verdict = await self._run(
            "postpone",
            {
                "active": keys.ACTIVE,
                "inbound": keys.inbound(self.sid),
                "replies": self._reply_stream,
                "limit": keys.limit(login) if what.is_of_login and login else None,
            },
            {
                "sid": self.sid,
                "newest": newest,
                "until_ms": what.until_ms,
                "reason": what.why,
                "tries": what.tries,
                "told": what.told,
                "outcomes": keys.outcome_prefix(self.sid),
                "done_channel": keys.outcome_channel(self.sid),
                "detail": what.detail,
                "notice": _json(what.notice),
                "later": _json(what.later),
            },
        )
        found: Literal["postponed", "stopped", "news"] = verdict.decode()
        if found == "news":
            self.waiting = []  # to be read again
        return found

    @property
    def _running(self) -> Batch:
        if self._turn is None:
            raise RuntimeError("no turn is running: begin() comes first")
        return self._turn

    @property
    def _reply_stream(self) -> str:
        return keys.reply_stream(self.session.provider, self.session.account)

    async def _run(self, name: str, names: Keys, args: Arguments) -> Any:
        """Run a script that is refused once another worker holds the session."""
        return await self._scripts.run(
            name,
            keys={"state": keys.state(self.sid), **names},
            args={"epoch": self.epoch, **args},
            deadline=self.fence,
        )


class Leases:
    """Gives out leases."""

    def __init__(self, scripts: Scripts, waker: Waker, *, lease_s: float) -> None:
        self._scripts = scripts
        self._waker = waker
        self.lease_s = lease_s

    async def acquire(self, sid: str, *, worker: str, host: str) -> Lease | None:
        """Take a session's lease; None if it has no work or somebody else holds it.

        `worker` says who holds it, for people; from now on its hints go to `host`.
        """
        sent_at = boottime()
        lease_ms = int(self.lease_s * 1000)
        reply = await self._scripts.run(
            "acquire",
            keys={
                "state": keys.state(sid),
                "inbound": keys.inbound(sid),
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
                "most_entries": FEW_ENTRIES,
                "map_ms": SESSION_MAP_MS,
                "host": host,
            },
            deadline=sent_at + ACQUIRE_S,
        )
        if reply[0] != b"acquired":
            return None
        _, epoch, state, session_ids, entries, gateway = reply
        known = {name.decode(): value.decode() for name, value in pairs(session_ids).items()}
        return Lease(
            sid=sid,
            epoch=epoch.decode(),
            state=SessionState.decode(pairs(state)),
            session_ids={name: value.partition(NOTE)[0] for name, value in known.items()},
            notes={name: value.partition(NOTE)[2] for name, value in known.items()},
            waiting=[tuple(entry) for entry in entries],
            host=host,
            gateway=gateway.decode() or None,
            lease_s=self.lease_s,
            renewed_at=sent_at,
            _scripts=self._scripts,
            _waker=self._waker,
            _is_stale=len(entries) == FEW_ENTRIES,
        )


def _json(value: Mapping[str, Any] | Sequence[Any] | None) -> bytes | None:
    """Return it as JSON; None for nothing."""
    return orjson.dumps(value) if value else None


def _queue(text: bytes) -> QueueOverride | None:
    """Return a session's own queue settings, which may change at any time."""
    return QueueOverride.model_validate_json(text) if text else None
