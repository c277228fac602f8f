"""The turns of a session: every write of its lease's owner about them.

Semantics of Kafka's fenced read-process-write: each write carries the lease's epoch, and a turn's
outcome, its last messages and the removal of its entries are one step.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import orjson

from remoteclaw.config.model import QueueOverride
from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import GRACE_MS, RawEntry
from remoteclaw.fleet.outcomes import OUTCOME_MS
from remoteclaw.fleet.usage import USAGE_DAYS, Usage
from remoteclaw.messages import SessionKey

if TYPE_CHECKING:
    from remoteclaw.fleet.lease import Lease

__all__ = ["Batch", "Finished", "Owed", "Phase", "Postponement", "Record", "Turns"]

#: How long the sums of a day are kept, in milliseconds.
USAGE_MS = (USAGE_DAYS + 1) * 24 * 3600 * 1000
#: How long live text stays readable after the last write, in milliseconds.
LIVE_MS = 60_000

#: How far an attempt has come: recorded, waiting to be asked again, prompt about to be sent, first
#: text, first tool; or that its entries are to be dropped.
Phase = Literal["", "accepted", "postponed", "spawned", "output", "tool", "dropped"]


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
    """True when these entries were stopped before they could begin."""
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


class Turns:
    """Begins, marks and ends the turns of a leased session.

    Every method raises `LeaseLost` once another worker holds the session.
    """

    def __init__(self, lease: "Lease") -> None:
        self._lease = lease
        self._batch: Batch | None = None

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
        reply = await self._lease.run(
            "begin",
            {"inbound": keys.inbound(self._lease.sid), "limit": keys.limit(login)},
            {
                "nonce": nonce,
                "outcomes": keys.outcome_prefix(self._lease.sid),
                "entry_ids": ",".join(entry_ids),
                "phase": phase,
                "detail": detail,
                "left_out": ",".join(left_out),
            },
        )
        if reply[0] == b"missing":
            self._lease.forget_waiting()
            return None
        verdict, turn, attempt, before, entries, forgiven, mentioned, busy_since, queue = reply[:9]
        resumed, tries, told, limited_until = reply[9:]
        self._lease.state = replace(
            self._lease.state, busy_since_ms=int(busy_since), queue=_queue(queue)
        )
        self._batch = Batch(
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
        return self._batch

    async def steer(self, entry_ids: Sequence[str]) -> bool:
        """Take entries into the running turn, before its agent is told of them.

        `finish()` says which of them the agent took up, and the others wait again; the next attempt
        is about all of them. False if the turn is being stopped.
        """
        return bool(
            await self._lease.run(
                "steer",
                {},
                {
                    "turn": self._running.turn,
                    "outcomes": keys.outcome_prefix(self._lease.sid),
                    "entry_ids": entry_ids,
                },
            )
        )

    async def mark(
        self, phase: str, detail: str = "", *, agent_process: dict[str, Any] | None = None
    ) -> None:
        """Record how far the running attempt has come; `detail` is for people who trace it.

        `agent_process` says where its agent is: after a crash, the next owner ends that first.
        """
        await self._lease.run(
            "mark",
            {},
            {
                "turn": self._running.turn,
                "phase": phase,
                "detail": detail,
                "outcomes": keys.outcome_prefix(self._lease.sid),
                "agent_process": _json(agent_process),
            },
        )

    async def publish(self, index: int, payload: dict[str, Any]) -> None:
        """Put one complete message of the running turn on its reply stream, once per index."""
        await self._lease.run(
            "publish",
            {"replies": self._reply_stream},
            {
                "turn": self._running.turn,
                "attempt": self._running.attempt,
                "index": index,
                "payload": _json(payload),
            },
        )

    async def show(self, payload: dict[str, Any]) -> None:
        """Show the answer as far as it has come; each call replaces the one before."""
        await self._lease.run(
            "live",
            {"live": keys.live(self._lease.sid)},
            {"text": _json(payload), "keep_ms": LIVE_MS},
        )

    async def postpone(
        self, what: Postponement, *, newest: str, login: str
    ) -> Literal["postponed", "stopped", "news"]:
        """Give the lease back until a time; the running turn's batch is begun again then.

        Nothing of it may have been said or done. "stopped" means that the turn is to end instead,
        and "news" that the session has an entry behind the `newest` that the caller knows.
        """
        verdict = await self._lease.run(
            "postpone",
            {
                "active": keys.ACTIVE,
                "inbound": keys.inbound(self._lease.sid),
                "replies": self._reply_stream,
                "limit": keys.limit(login) if what.is_of_login and login else None,
            },
            {
                "sid": self._lease.sid,
                "newest": newest,
                "until_ms": what.until_ms,
                "reason": what.why,
                "tries": what.tries,
                "told": what.told,
                "outcomes": keys.outcome_prefix(self._lease.sid),
                "done_channel": keys.outcome_channel(self._lease.sid),
                "detail": what.detail,
                "notice": _json(what.notice),
                "later": _json(what.later),
            },
        )
        found: Literal["postponed", "stopped", "news"] = verdict.decode()
        if found == "news":
            self._lease.forget_waiting()
        return found

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

        `reply` is kept in the outcome, for a caller that waits; `payloads` go on the reply stream,
        numbered from `first_index`; `agent_process` says where the agent is parked.
        With the status "dead", the entries become dead letters; else `blobs`, the files that came
        with them, are removed. What is `owed` to another session gets there in the same step.
        `has_heard` says that a person was among those who wrote; `usage` is what the agent took,
        if it was asked.
        """
        done = {*self._running.entry_ids, *(entry_id.encode() for entry_id in steered)}
        left, hints, now, queue, hint = await self._lease.run(
            "finish",
            {
                "inbound": keys.inbound(self._lease.sid),
                "replies": self._reply_stream,
                "dead_letters": keys.DEAD_LETTERS,
                "record": keys.record(self._lease.sid),
                "side_effects": keys.side_effects(self._lease.sid),
                "owed_inbound": keys.inbound(owed.to.sid) if owed else None,
                "owed_state": keys.state(owed.to.sid) if owed else None,
                "active": keys.ACTIVE,
                "sessions": keys.SESSIONS,
                "usage": keys.USAGE,
                "usage_day": keys.usage_day(time.strftime("%Y-%m-%d")),
                "live": keys.live(self._lease.sid),
                "queues": keys.competing(self._lease.state.lane, self._lease.host),
                "blobs": [keys.blob(self._lease.sid, name) for name in blobs],
            },
            {
                "turn": self._running.turn,
                "attempt": self._running.attempt,
                "status": status,
                "outcome_ms": OUTCOME_MS,
                "outcomes": keys.outcome_prefix(self._lease.sid),
                "done_channel": keys.outcome_channel(self._lease.sid),
                "reply": _json(reply),
                "error": _json(error),
                "agent_process": _json(agent_process),
                "sid": self._lease.sid,
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
                "agent": self._lease.session.agent,
                "usage_ms": USAGE_MS,
                "payloads": [orjson.dumps(payload) for payload in payloads],
            },
        )
        self._batch = None
        heard_ms = int(now) if has_heard else self._lease.state.last_heard_ms
        self._lease.state = replace(self._lease.state, last_heard_ms=heard_ms, queue=_queue(queue))
        self._lease.drop_waiting(done, left=int(left))
        if owed:
            await self._lease.waker.try_hint(owed.to, hint.decode())
        return Finished(left=int(left), hints=int(hints), at_ms=int(now))

    async def side_effects(self) -> list[dict[str, Any]]:
        """Return what the tools of the running turn did, in all attempts, oldest first."""
        lease = self._lease
        name = keys.side_effects(lease.sid)
        lines = await lease.scripts.call(
            lease.scripts.client.lrange, name, 0, -1, deadline=lease.fence
        )
        return [orjson.loads(line) for line in lines]

    @property
    def _running(self) -> Batch:
        if self._batch is None:
            raise RuntimeError("no turn is running: begin() comes first")
        return self._batch

    @property
    def _reply_stream(self) -> str:
        return keys.reply_stream(self._lease.session.provider, self._lease.session.account)


def _json(value: Mapping[str, Any] | Sequence[Any] | None) -> bytes | None:
    """Return it as JSON; None for nothing."""
    return orjson.dumps(value) if value else None


def _queue(text: bytes) -> QueueOverride | None:
    """Return a session's own queue settings, which may change at any time."""
    return QueueOverride.model_validate_json(text) if text else None
