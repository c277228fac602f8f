"""The turns of a session: how the owner of the lease begins, records and ends them.

Each write carries the lease's epoch. A turn's outcome, its last messages and the removal of its
entries are written in one step.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from remoteclaw.config.budgets import AppliedBudget
from remoteclaw.config.model import QueueOverride
from remoteclaw.fleet import keys
from remoteclaw.fleet.budgets.standing import (
    LimitReached,
    Refused,
    Standing,
    limit_args,
    of_reached,
    refused_args,
    standings,
)
from remoteclaw.fleet.cooling import Cool, cool_args
from remoteclaw.fleet.metrics import BUCKETS
from remoteclaw.fleet.sessions.task_tree import TurnProgress
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.inbound import GRACE_MS, RawEntry, decode
from remoteclaw.fleet.turns.leased_session import LeasedSession
from remoteclaw.fleet.turns.moves import MovedEnd, home_end_args
from remoteclaw.fleet.turns.outcomes import OUTCOME_MS
from remoteclaw.messages import ChatPlace, Entry, SessionKey, place_of
from remoteclaw.protocols import Conversation

#: Live text expires this long after the last write, in milliseconds.
LIVE_MS = 60_000

#: The progress of an attempt:
#: "" - not recorded yet;
#: accepted - recorded;
#: postponed - the agent is asked again later;
#: spawned - the prompt is about to be sent;
#: output - the agent has sent text;
#: tool - the agent has used a tool;
#: dropped - no agent is asked, and the entries are dropped.
Phase = Literal["", "accepted", "postponed", "spawned", "output", "tool", "dropped"]


@dataclass(frozen=True, slots=True)
class Batch:
    """The entries of a turn as `begin()` recorded them, and the state of earlier attempts."""

    turn: str
    attempt: int
    failures: int
    """The number of earlier attempts that failed; attempts cut off on purpose don't count."""
    furthest_phase_before: Phase
    """The furthest phase that an earlier attempt reached; empty for a first attempt."""
    is_stopped: bool
    """Whether the entries were stopped before the turn began."""
    is_dropped: bool
    """Whether the entries were recorded to be dropped, now or by an earlier attempt."""
    entries: tuple[Entry, ...]
    left_out: frozenset[str]
    """The ids of the entries of which the agent sees only the beginning."""
    is_resumed: bool = False
    """Whether the previous attempt was postponed, so that the turn's notices are already sent."""
    tries: int = 0
    """The number of times that the agent was asked in postponed attempts."""
    last_notice: str = ""
    """The content of the last notice about a postponement, as it was passed to `postpone()`."""
    has_tasks: bool = True
    """False if the session has started no tasks."""
    has_aside_notes: bool = True
    """False if there are no notes of asides that the agent has not received."""
    has_denials: bool = True
    """False if there are no reasons of denials that the agent has not received."""
    spent: Usage = field(default_factory=Usage)
    """The usage of earlier attempts that were cut off or postponed."""
    refusal: str | None = None
    """The notice with which the entries are dropped for a budget, perhaps empty; None if they
    aren't."""


@dataclass(frozen=True, slots=True)
class RecordAppend:
    """The lines that a turn adds to the record of its conversation."""

    lines: bytes
    """Lines of JSON, one object each (`session.record`)."""
    max_bytes: int
    """The maximum size of the whole record; beyond it, the oldest lines are removed."""
    keep_ms: int
    """The time for which the record is kept after this turn, in milliseconds; 0 removes it."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a turn, for the parent of its session."""

    to: SessionKey
    """The parent."""
    entry: bytes
    """The result, encoded as an entry of the parent's inbound stream."""


@dataclass(frozen=True, slots=True)
class Postponement:
    """The time until which a turn is postponed, and the notices about this."""

    until_ms: int
    why: str
    """The category of the error for which the turn is postponed."""
    tries: int
    """The number of times that the agent was asked so far."""
    last_notice: str
    """The content of the last notice to the person, so that it is sent once."""
    detail: str
    """The reason, for operators who trace the message."""
    notice: dict[str, Any] | None = None
    """The notice to send now; None if it was already sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWait:
    """The wait of entries for a budget, before their turn begins."""

    budgets: Sequence[str]
    """The ids of the budgets."""
    name: str
    """Their names for people."""
    until_ms: int
    """The end of the first budget's period, at which the entries are tried again."""
    detail: str
    """The reason, for operators who trace the message."""
    entries: Sequence[str]
    told: str
    """What `notice` says: it is sent once."""
    place: ChatPlace
    notice: dict[str, Any] | None
    """The notice to the chat `place`; None if the reply does not go there."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The state after the end of a turn."""

    left: int
    """The number of the session's entries that are waiting."""
    competing_hints: int
    """The number of waiting hints that are at least as urgent as the session's."""
    at_ms: int
    """The end of the turn, in milliseconds on Redis' clock."""
    budgets: Sequence[Standing] = ()
    """The budgets that limit the turn, after it."""


class Turns:
    """Begins, records and ends the turns of a leased session.

    Every method raises `LeaseLost` once another worker holds the session.
    """

    def __init__(self, lease: LeasedSession, progress: TurnProgress) -> None:
        self._lease = lease
        self._progress = progress
        self._batch: Batch | None = None
        self._place: ChatPlace | None = None
        """The chat of the running turn (`Turn.place`)."""

    async def begin(
        self,
        entry_ids: Sequence[str],
        *,
        phase: Phase = "accepted",
        detail: str = "",
        left_out: Sequence[str] = (),
        budgets: Sequence[AppliedBudget] = (),
        refused: Refused | None = None,
    ) -> Batch | None:
        """Record a turn of the entries, or begin the unfinished turn again.

        A turn that has not begun yet is not recorded if the limit of one of `budgets` is reached:
        raises `LimitReached`. With `refused`, the entries are dropped for a budget.

        `phase` is "spawned" if the agent is ready, which saves a call of `note_phase()`, and
        "dropped" for entries that get no turn. `left_out` are the entries of which the agent sees
        only the beginning. Returns None if the entries no longer exist, because their senders have
        withdrawn them, or an operator has removed them.

        If a batch is kept, the session's terminal begins, else the kept batch. While that one is
        postponed, the lease is released (`LeasedSession.is_given_away`), and None returned.
        """
        nonce = uuid.uuid4().hex  # a repeated command with the same nonce is the same attempt
        begun = await self._lease.run_fenced(
            "begin",
            nonce=nonce,
            entry_ids=",".join(entry_ids),
            phase=phase,
            detail=detail,
            left_out=",".join(left_out),
            **limit_args(budgets),
            **refused_args(refused),
        )
        if reached := of_reached(budgets, begun.reached, begun.budgets):
            raise LimitReached(reached)
        if begun.verdict in ("missing", "postponed"):
            self._lease.is_given_away = begun.verdict == "postponed"
            return None
        self._lease.state = replace(
            self._lease.state,
            busy_since_ms=int(begun.busy_since_ms),
            queue_settings=_queue(begun.queue_settings),
            model=begun.model,
            turn_project=begun.turn_project,
            is_quiet=begun.is_quiet == "1",
        )
        self._batch = Batch(
            turn=begun.turn,
            attempt=begun.attempt,
            failures=begun.attempt - 1 - begun.forgiven_attempts,
            furthest_phase_before=begun.phase_before,
            is_stopped=begun.verdict == "stopped",
            is_dropped=begun.verdict == "dropped",
            entries=tuple(decode(entry, self._lease.session) for entry in begun.entries),
            left_out=frozenset(filter(None, begun.left_out.split(","))),
            is_resumed=begun.is_resumed == "1",
            tries=int(begun.tries or 0),
            last_notice=begun.last_notice or "",
            has_tasks=bool(begun.has_tasks),
            has_aside_notes=bool(begun.has_aside_notes),
            has_denials=bool(begun.has_denials),
            spent=Usage.decode(begun.spent),
            refusal=begun.refusal,
        )
        self._place = place_of(self._batch.entries)
        return self._batch

    async def wait_for_budget(
        self, wait: BudgetWait, budgets: Sequence[AppliedBudget], *, newest: str
    ) -> Literal["waits", "news", "passes"]:
        """Release the lease until a time, because the limits of `budgets` are reached.

        Returns "news" if the session has an entry after `newest`, the last entry that the caller
        knows, and "passes" if one of the limits isn't reached any more.
        """
        stream = keys.replies(wait.place.provider, wait.place.account)
        verdict: Literal["waits", "news", "passes"] = await self._lease.run_fenced(
            "wait_for_budget",
            newest=newest,
            until_ms=wait.until_ms,
            budget_ids="\n".join(wait.budgets),
            budget_name=wait.name,
            detail=wait.detail,
            entry_ids=",".join(wait.entries),
            told=wait.told,
            notice=_json(wait.notice),
            replies=stream if wait.notice else None,
            **limit_args(budgets),
        )
        self._lease.is_given_away = verdict == "waits"
        return verdict

    async def count_spent(
        self, usage: Usage, budgets: Sequence[AppliedBudget]
    ) -> tuple[Standing | None, Sequence[Standing]]:
        """Count the usage of the running attempt so far at once.

        Return the first of `budgets` whose limit is reached, if any, and all of them.
        """
        counted = await self._lease.run_fenced(
            "count_spent",
            turn=self._running.turn,
            **self._lease.usage_args(usage),
            **limit_args(budgets),
        )
        reached = of_reached(budgets, counted.reached, counted.budgets)
        return reached, standings(budgets, counted.budgets)

    async def join(self, entry_ids: Sequence[str]) -> list[RawEntry]:
        """Record that entries join the running turn, and return them for the agent.

        The entries that `finish()` does not report as taken up wait again. Another attempt at the
        turn includes all of them. Returns nothing if the turn is being stopped.
        """
        entries: list[RawEntry] = await self._lease.run_fenced(
            "steer", turn=self._running.turn, entry_ids=entry_ids
        )
        return entries

    async def note_phase(
        self, phase: str, detail: str = "", *, agent_process: dict[str, Any] | None = None
    ) -> None:
        """Record the phase of the running attempt; `detail` is for operators who trace it.

        `agent_process` is the address of the agent, which the next owner of the lease ends first
        after a crash.
        """
        await self._lease.run_fenced(
            "phase",
            turn=self._running.turn,
            phase=phase,
            detail=detail,
            agent_process=_json(agent_process),
        )

    async def note_web(self) -> None:
        """Record that the running turn reads what others have written, such as a web page."""
        turn = self._running.turn
        self._lease.state = replace(self._lease.state, web_turn=turn)
        await self._lease.run_fenced("web_turn", turn=turn)

    async def fall_back(
        self, detail: str, *, to: Mapping[str, Any] | None, failed: Cool | None = None
    ) -> None:
        """Record that a fallback is asked: `to` is it, for the session's state.

        None stands for the session's agent itself. The model that has `failed` before is left alone
        from now on. `detail` is for operators who trace the turn.
        """
        await self._lease.run_fenced(
            "fall_back",
            turn=self._running.turn,
            detail=detail,
            fallback=_json(to),
            until_ms=failed.failure.until_ms if failed else None,
            **cool_args(failed),
        )
        self._lease.state = replace(self._lease.state, fallback=dict(to) if to else None)

    async def publish(self, index: int, payload: dict[str, Any]) -> None:
        """Append a message of the running turn to the reply stream, once per index."""
        await self._lease.run_fenced(
            "publish",
            turn=self._running.turn,
            attempt=self._running.attempt,
            index=index,
            payload=_json(payload),
            replies=self._reply_stream,
        )

    async def publish_live_text(
        self,
        payload: dict[str, Any],
        *,
        for_chat: dict[str, Any] | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Publish the partial answer as live text, in place of the previous live text.

        `for_chat` is the form for the adapter of the session's chat; None publishes nothing there.
        `usage` is that of the attempt so far. It counts at once, so it counts if the attempt is cut
        off.
        """
        place = self._running_place
        account = keys.live_of(place.provider, place.account) if for_chat else None
        await self._lease.run_fenced(
            "live",
            turn=self._running.turn,
            attempt=self._running.attempt,
            text=_json(payload),
            keep_ms=LIVE_MS,
            for_chat=_json(for_chat),
            live_of=account,
            **self._lease.usage_args(usage),
        )

    async def postpone(
        self,
        postponement: Postponement,
        *,
        newest: str,
        usage: Usage | None = None,
        failed: Cool | None = None,
    ) -> Literal["postponed", "stopped", "news"]:
        """Release the lease until a time, after which the running turn's batch is begun again.

        The agent must not have written text or used a tool. `usage` is that of the attempt, which
        counts at the turn's end, and `failed` the model that was asked last, which is left alone.
        Returns "stopped" if the turn has to end instead, and "news" if the session has an entry
        after `newest`, the last entry that the caller knows. A terminal that waits opens meanwhile.
        """
        postponed = await self._lease.run_fenced(
            "postpone",
            newest=newest,
            until_ms=postponement.until_ms,
            reason=postponement.why,
            tries=postponement.tries,
            last_notice=postponement.last_notice,
            detail=postponement.detail,
            cool_until_ms=failed.failure.until_ms if failed else None,
            **cool_args(failed),
            notice=_json(postponement.notice),
            replies=self._reply_stream,
            **self._lease.usage_args(usage),
        )
        await self._lease.waker.try_hint(self._lease.session, postponed.queue)
        verdict: Literal["postponed", "stopped", "news"] = postponed.verdict
        return verdict

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
        last_aside_note: bytes | None = None,
        moved: MovedEnd | None = None,
        budgets: Sequence[AppliedBudget] = (),
        conversations: Mapping[str, Conversation] | None = None,
        told_fallback: str | None = None,
        has_untold_summary: bool = False,
    ) -> Finished:
        """End the running turn, and the joined entries that the agent has `taken_up`.

        - `reply` is stored in the outcome, for a caller that waits.
        - `agent_process` is the address of the parked agent.
        - `payloads` are appended to the reply stream, numbered from `first_index`.
        - `answered` are the entries that were answered before a failure; their status is "done".
        - `blobs` are the files of the entries. They are deleted, unless the status is "dead": then
          the entries become dead letters.
        - `task_result` is appended to the parent's stream in the same step.
        - `is_about_person` says that a person sent at least one of the entries.
        - `usage` is that of all attempts, of which only what has not been counted yet is counted;
          None if the agent was not asked.
        - `last_aside_note` is the last note of an aside that the agent received; the notes up to it
          are deleted.
        - `budgets` limit the turn; the result says how much is spent of them.
        - `moved` ends the entry also in the session from which it was moved.
        - `conversations` replace those in the session map.
        - `told_fallback` is the fallback of which the chat now knows that it answers, empty for
          none; None if that has not changed.
        - `has_untold_summary` says that the people have not been told of a summary yet.
        """
        recipients = await self._progress.recipients()
        known = conversations or {}
        finished = await self._lease.run_fenced(
            "finish",
            turn=self._running.turn,
            attempt=self._running.attempt,
            status=status,
            outcome_ms=OUTCOME_MS,
            buckets=BUCKETS,
            reply=_json(reply),
            error=_json(error),
            agent_process=_json(agent_process),
            first_index=first_index,
            steered=",".join(taken_up),
            answered=",".join(answered),
            record=record.lines if record else None,
            record_bytes=record.max_bytes if record else None,
            record_ms=record.keep_ms if record else None,
            result=task_result.entry if task_result else None,
            result_sid=task_result.to.sid if task_result else None,
            result_key=str(task_result.to) if task_result else None,
            grace_ms=GRACE_MS,
            is_about_person=is_about_person,
            above=recipients.above,
            hint=recipients.hint,
            last_note=last_aside_note,
            conversations=_json({name: each.encode() for name, each in known.items()}),
            told_fallback="-" if told_fallback == "" else told_fallback,
            has_untold_summary=has_untold_summary,
            payloads=[orjson.dumps(payload) for payload in payloads],
            replies=self._reply_stream,
            live_of=recipients.account,
            queues=keys.competing(self._lease.state.lane, self._lease.host, self._lease.label),
            blobs=[keys.blob(self._lease.sid, name) for name in blobs],
            **home_end_args(moved),
            **limit_args(budgets),
            **self._lease.usage_args(usage),
        )
        self._batch = None
        heard_ms = finished.now_ms if is_about_person else self._lease.state.last_heard_ms
        self._lease.state = replace(
            self._lease.state,
            last_heard_ms=heard_ms,
            queue_settings=_queue(finished.queue_settings),
            has_untold_summary=has_untold_summary,
        )
        self._lease.session_map |= known
        if told_fallback is not None:
            fallback = self._lease.state.fallback if told_fallback else None
            self._lease.state = replace(
                self._lease.state, told_fallback=told_fallback or None, fallback=fallback
            )
        if task_result:
            await self._lease.waker.try_hint(task_result.to, finished.result_queue)
        return Finished(
            left=finished.left,
            competing_hints=finished.hints,
            at_ms=finished.now_ms,
            budgets=standings(budgets, finished.budgets),
        )

    async def side_effects(self) -> list[dict[str, Any]]:
        """Return the noted side effects of the running turn's tools, in all attempts, in order."""
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
    def _running_place(self) -> ChatPlace:
        if self._place is None:
            raise RuntimeError("no turn is running: begin() comes first")
        return self._place

    @property
    def _reply_stream(self) -> str:
        return keys.replies(self._running_place.provider, self._running_place.account)


def _json(value: Mapping[str, Any] | Sequence[Any] | None) -> bytes | None:
    """Return a value as JSON; None for an empty value."""
    return orjson.dumps(value) if value else None


def _queue(text: str | None) -> QueueOverride | None:
    return QueueOverride.model_validate_json(text) if text else None
