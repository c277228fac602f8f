"""The turns of a session: every write of the lease's owner about them.

Each write carries the lease's epoch. A turn's outcome, its last messages and the removal of its
entries are one step.
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
from remoteclaw.fleet.moves import MovedEnd, ending_above
from remoteclaw.fleet.outcomes import OUTCOME_MS
from remoteclaw.fleet.usage import USAGE_DAYS, Usage
from remoteclaw.messages import SessionKey

if TYPE_CHECKING:
    from remoteclaw.fleet.lease import Lease

#: How long the sums of a day are kept, in milliseconds.
USAGE_MS = (USAGE_DAYS + 1) * 24 * 3600 * 1000
#: How long live text stays readable after the last write, in milliseconds.
LIVE_MS = 60_000

#: How far an attempt has come:
#: "" - not yet recorded;
#: accepted - recorded;
#: postponed - the agent is asked again later;
#: spawned - the prompt is about to be sent;
#: output - the agent has sent text;
#: tool - the agent has used a tool;
#: dropped - no agent is asked, and the entries are dropped.
Phase = Literal["", "accepted", "postponed", "spawned", "output", "tool", "dropped"]


@dataclass(frozen=True, slots=True)
class Batch:
    """What `begin()` recorded: the entries of a turn, and what is known of earlier attempts."""

    turn: str
    attempt: int
    failures: int
    """How many earlier attempts failed; an attempt that was cut off on purpose doesn't count."""
    furthest_phase_before: Phase
    """The furthest phase that an earlier attempt reached; empty for a first attempt."""
    is_stopped: bool
    """True when these entries were stopped before they could begin."""
    is_dropped: bool
    """True when these entries were recorded to be dropped, now or by an earlier attempt."""
    entries: tuple[RawEntry, ...]
    left_out: frozenset[str]
    """The ids of the entries of which the agent only sees the beginning."""
    is_resumed: bool = False
    """True when the earlier attempt was postponed: the turn's notices have been sent already."""
    tries: int = 0
    """How often the agent was asked in attempts that were postponed."""
    told: str = ""
    """What the person was told of the postponement, as `postpone()` was given it."""
    has_below: bool = True
    """False when the session has started no other one."""
    has_beside: bool = True
    """False when nothing was said beside its turns that the agent has not been told."""


@dataclass(frozen=True, slots=True)
class RecordAppend:
    """The lines that a turn adds to the record of its conversation."""

    lines: bytes
    """JSON, one object a line (`session.record`)."""
    most_bytes: int
    """How large the whole record may become; beyond it, the oldest lines are removed."""
    keep_ms: int
    """How long the record is kept after this turn, in milliseconds; 0 removes it."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A turn's result, for the session that has started this one."""

    to: SessionKey
    entry: bytes
    """The result, encoded as an entry of that session's stream."""


@dataclass(frozen=True, slots=True)
class Postponement:
    """The time until which a turn waits, and the messages about it."""

    until_ms: int
    why: str
    tries: int
    """How often the agent was asked so far."""
    told: str
    """What the person was told of the postponement, so that it is said once."""
    detail: str
    """The reason, for operators who trace the message."""
    notice: dict[str, Any] | None = None
    """The message that goes on the reply stream now."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What the session's owner learns when a turn ends."""

    left: int
    """How many entries of the session wait."""
    competing_hints: int
    """How many hints for other sessions wait that are as urgent, or more."""
    at_ms: int
    """The end of the turn, on Redis' clock."""


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
    ) -> Batch | None:
        """Record a turn of these entries, or begin the unfinished turn again.

        With an agent that is ready, `phase` is "spawned" at once, which spares a `note_phase()`; it
        is "dropped" for entries that get no turn.
        `left_out` are the entries of which the agent only sees the beginning.
        None means that the entries are gone: only an operator can have removed them.
        """
        nonce = uuid.uuid4().hex  # makes a repeated send count as one attempt
        reply = await self._lease.run_fenced(
            "begin",
            {"inbound": keys.inbound(self._lease.sid)},
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
            return None
        verdict, turn, attempt, before, entries, forgiven, begun_left_out = reply[:7]
        busy_since, queue, resumed, tries, told, model, project, below, beside = reply[7:]
        self._lease.state = replace(
            self._lease.state,
            busy_since_ms=int(busy_since),
            queue=_queue(queue),
            model=model.decode() or None,
            turn_project=project.decode() or None,
        )
        self._batch = Batch(
            turn=turn.decode(),
            attempt=int(attempt),
            failures=int(attempt) - 1 - int(forgiven),
            furthest_phase_before=before.decode(),
            is_stopped=verdict == b"stopped",
            is_dropped=verdict == b"dropped",
            entries=tuple(tuple(entry) for entry in entries),
            left_out=frozenset(filter(None, begun_left_out.decode().split(","))),
            is_resumed=resumed == b"1",
            tries=int(tries),
            told=told.decode(),
            has_below=bool(below),
            has_beside=bool(beside),
        )
        return self._batch

    async def join(self, entry_ids: Sequence[str]) -> bool:
        """Record entries as a part of the running turn, before the agent sees them.

        `finish()` names the entries that the agent took up; the others wait again. If the turn is
        attempted again, all of them belong to it. False if the turn is being stopped.
        """
        return bool(
            await self._lease.run_fenced(
                "steer",
                {},
                {
                    "turn": self._running.turn,
                    "outcomes": keys.outcome_prefix(self._lease.sid),
                    "entry_ids": entry_ids,
                },
            )
        )

    async def note_phase(
        self, phase: str, detail: str = "", *, agent_process: dict[str, Any] | None = None
    ) -> None:
        """Record how far the running attempt has come; `detail` is for operators who trace it.

        `agent_process` says where the agent is: after a crash, the next owner ends it first.
        """
        await self._lease.run_fenced(
            "phase",
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
        await self._lease.run_fenced(
            "publish",
            {"replies": self._reply_stream},
            {
                "turn": self._running.turn,
                "attempt": self._running.attempt,
                "index": index,
                "payload": _json(payload),
            },
        )

    async def show(
        self, payload: dict[str, Any], *, for_chat: dict[str, Any] | None = None
    ) -> None:
        """Show the answer as far as it has come; each call replaces the text of the last one.

        `for_chat` is what is announced to the adapter of the session's chat.
        """
        session = self._lease.session
        account = keys.live_of(session.provider, session.account) if for_chat else None
        await self._lease.run_fenced(
            "live",
            {"live": keys.live(self._lease.sid), "account": account},
            {"text": _json(payload), "keep_ms": LIVE_MS, "for_chat": _json(for_chat)},
        )

    async def postpone(
        self, what: Postponement, *, newest: str
    ) -> Literal["postponed", "stopped", "news"]:
        """Give the lease back until a time; then the running turn's batch is begun again.

        The turn must not have said or done anything. "stopped" means that the turn is to end
        instead, and "news" that the session has a new entry: one behind `newest`, which is the last
        entry that the caller knows.
        """
        verdict = await self._lease.run_fenced(
            "postpone",
            {
                "active": keys.ACTIVE,
                "live": keys.live(self._lease.sid),
                "inbound": keys.inbound(self._lease.sid),
                "replies": self._reply_stream,
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
            },
        )
        found: Literal["postponed", "stopped", "news"] = verdict.decode()
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
        taken_up: Sequence[str] = (),
        answered: Sequence[str] = (),
        blobs: Sequence[str] = (),
        record: RecordAppend | None = None,
        task_result: TaskResult | None = None,
        is_about_person: bool = False,
        usage: Usage | None = None,
        told_beside: bytes | None = None,
        moved: MovedEnd | None = None,
    ) -> "Finished":
        """End the running turn, and the joined entries that the agent has `taken_up`.

        `answered` are the entries that were answered before a failure; their outcome is done.

        `reply` is kept in the outcome, for a caller that waits; `payloads` go on the reply stream,
        numbered from `first_index`; `agent_process` says where the agent is parked.
        With the status "dead", the entries become dead letters; else `blobs`, the files that came
        with them, are removed. `task_result` reaches the other session in the same step.
        `is_about_person` says that a person has sent one of the entries. `usage` is what the agent
        took, if it was asked; it counts for the day on this worker's local clock. `told_beside` is
        the last of what it was told of things said beside its turns: they are forgotten.
        `moved` ends the outcome of its entry in the session from which that was moved here, too.
        """
        told = await self._lease.work.names()
        above_keys, above_args = ending_above(moved)
        left, hints, now, queue, hint = await self._lease.run_fenced(
            "finish",
            {
                "inbound": keys.inbound(self._lease.sid),
                "replies": self._reply_stream,
                "dead_letters": keys.DEAD_LETTERS,
                "record": keys.record(self._lease.sid),
                "side_effects": keys.side_effects(self._lease.sid),
                "owed_inbound": keys.inbound(task_result.to.sid) if task_result else None,
                "owed_state": keys.state(task_result.to.sid) if task_result else None,
                "active": keys.ACTIVE,
                "sessions": keys.SESSIONS,
                "usage": keys.USAGE,
                "usage_day": keys.usage_day(time.strftime("%Y-%m-%d")),
                "live": keys.live(self._lease.sid),
                "account": told.account,
                "beside": keys.beside(self._lease.sid),
                **above_keys,
                "queues": keys.competing(self._lease.state.lane, self._lease.host),
                "blobs": [keys.blob(self._lease.sid, name) for name in blobs],
            },
            {
                "turn": self._running.turn,
                "attempt": self._running.attempt,
                "status": status,
                **above_args,
                "outcome_ms": OUTCOME_MS,
                "outcomes": keys.outcome_prefix(self._lease.sid),
                "done_channel": keys.outcome_channel(self._lease.sid),
                "reply": _json(reply),
                "error": _json(error),
                "agent_process": _json(agent_process),
                "sid": self._lease.sid,
                "first_index": first_index,
                "steered": ",".join(taken_up),
                "answered": ",".join(answered),
                "record": record.lines if record else None,
                "record_bytes": record.most_bytes if record else None,
                "record_ms": record.keep_ms if record else None,
                "owed": task_result.entry if task_result else None,
                "owed_sid": task_result.to.sid if task_result else None,
                "owed_key": str(task_result.to) if task_result else None,
                "owed_outcomes": keys.outcome_prefix(task_result.to.sid) if task_result else None,
                "grace_ms": GRACE_MS,
                "has_heard": is_about_person,
                "usage": usage.encode() if usage else None,
                "agent": self._lease.session.agent,
                "usage_ms": USAGE_MS,
                "above": told.above,
                "hint": told.hint,
                "told_beside": told_beside,
                "payloads": [orjson.dumps(payload) for payload in payloads],
            },
        )
        self._batch = None
        heard_ms = int(now) if is_about_person else self._lease.state.last_heard_ms
        self._lease.state = replace(self._lease.state, last_heard_ms=heard_ms, queue=_queue(queue))
        if task_result:
            await self._lease.waker.try_hint(task_result.to, hint.decode())
        return Finished(left=int(left), competing_hints=int(hints), at_ms=int(now))

    async def side_effects(self) -> list[dict[str, Any]]:
        """Return what the tools of the running turn did, in all attempts, oldest first."""
        lease = self._lease
        name = keys.side_effects(lease.sid)
        lines = await lease.scripts.call(
            lease.scripts.client.lrange, name, 0, -1, deadline=lease.stop_at
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
    """Return a value as JSON; None if it is empty."""
    return orjson.dumps(value) if value else None


def _queue(text: bytes) -> QueueOverride | None:
    return QueueOverride.model_validate_json(text) if text else None
