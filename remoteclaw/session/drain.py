"""The drain: takes a session's lease, runs its waiting turns one at a time, gives it back.

This is the life of a message in a worker, top to bottom:
`Drain.run()`, `_SessionDrain.run()`, `_serve()`, `_turn()`, `_attempt()`, `_ask()`.
"""

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from remoteclaw.bridge import Hooks
from remoteclaw.bridge.bridge import LONG_MESSAGE
from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config, QueueConfig, QueueOverride, RecordConfig
from remoteclaw.errors import (
    ErrorCategory,
    LeaseLost,
    RedisUnavailable,
)
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.inbound import NewerEntry, decode_entry
from remoteclaw.fleet.lease import FEW_ENTRIES, Batch, Finished, Lease, Postponement, Record
from remoteclaw.fleet.usage import Usage
from remoteclaw.host.process import identity
from remoteclaw.messages import (
    AgentDeliveryResult,
    ChannelMessage,
    Entry,
    ReplyPayload,
    SessionKey,
    Turn,
    stream_order,
)
from remoteclaw.protocols import (
    FORK_OF,
    BridgeCallbacks,
)
from remoteclaw.session.bridge_of_session import SessionBridge, open_bridge
from remoteclaw.session.notices import failure, said, superseded
from remoteclaw.session.patience import Patience
from remoteclaw.session.queue import Plan, next_batch
from remoteclaw.session.record import digest, lines_of
from remoteclaw.session.reply import Answer
from remoteclaw.session.reset import ENDED_BY_ITSELF, RESET, Resets
from remoteclaw.session.retries import SHORT_MS
from remoteclaw.session.steering import Steering

__all__ = ["Drain"]

#: How often a batch is begun at most: then its sender is told instead.
MOST_ATTEMPTS = 3
#: After so many turns, or so many seconds, a session lets others go first if any wait.
MOST_TURNS, MOST_SECONDS = 8, 60.0
#: How often a drain that waits for the next message asks whether its worker is leaving, in seconds.
LINGER_STEP_S = 1.0
#: After so many seconds it is tried again whether a worker is new enough for a message.
NEWER_S = 30.0
#: How much of a CLI's own words an outcome keeps for operators, in characters.
DETAIL = 500

SECOND_TRY = "(I was interrupted while I worked on this. Here is my second try.)"
CONTEXT_LOST = "(I no longer have our earlier conversation, so I start without it.)"
GOES_ON_FROM_NOTES = "(I no longer have our earlier conversation itself, but notes of it.)"
STOPPED = "Stopped."
NOTHING_TO_STOP = "There is nothing to stop."
NOTHING_SAID = "(The agent finished without saying anything.)"

TOO_MANY = (
    "(While I was busy, more came than the {cap} messages that I keep waiting, so I left out "
    "{count}. Send again what still matters.)"
)

#: What an outcome says of a turn that ended with an error; of any other error, "failed".
STATUS = {
    None: "done",
    ErrorCategory.ABORTED: "stopped",
    ErrorCategory.SUPERSEDED: "interrupted",
}
#: How far an attempt has come that has not reached an agent.
NOT_ASKED = ("", "accepted", "postponed")
#: After so many pauses for typing, what waits is answered although somebody goes on typing.
MOST_PAUSES = 10
#: How many waiting entries are looked at, where all of them matter.
ALL = 1000

log = logging.getLogger(__name__)


class Drain:
    """Runs sessions on this host; one object serves any number of them, one after another."""

    def __init__(
        self,
        fleet: Fleet,
        config: Config,
        home: Home,
        hooks: Hooks,
        *,
        worker: str = "",
        is_stale: Callable[[], bool] = lambda: False,
    ) -> None:
        """`worker` is RQ's name of the worker that this is a work-horse of, if it is one.

        Once the configuration `is_stale`, the next turn is left to another drain.
        """
        self._fleet = fleet
        self._config = config
        self._home = home
        self._hooks = hooks
        self._worker = worker
        self._is_stale = is_stale

    async def run(self, sid: str) -> None:
        """Serve a session until it is idle, or until others have waited long enough.

        Without work, or while another worker has the session, it returns at once.
        """
        host = self._home.host_id
        lease = await self._fleet.leases.acquire(sid, worker=f"{host} {identity()}", host=host)
        if lease is None:
            return
        bridge = open_bridge(self._fleet, lease, self._config, self._home, self._hooks)
        try:
            await _SessionDrain(
                lease,
                bridge,
                resets=Resets(lease, self._config, discard_agent=bridge.keeper.forget),
                queue_of=functools.partial(self._config.queue.of, lease.session.provider),
                record=self._config.record,
                retry_limits=self._config.queue.retry_limits,
                linger_s=self._config.fleet.linger_s,
                shows_live=not self._hooks.has("message_sending"),
                is_leaving=functools.partial(self._fleet.workers.is_leaving, self._worker),
                has_tools=lease.gateway is not None or lease.state.grant is not None,
                is_stale=self._is_stale,
            ).run()
        except* (LeaseLost, RedisUnavailable) as lost:
            # Whoever takes the session next goes on from what is recorded.
            log.warning("session %s: given up: %s", sid[:8], _first(lost))


class _SessionDrain:
    """One session under one lease."""

    def __init__(
        self,
        lease: Lease,
        bridge: SessionBridge,
        *,
        resets: Resets,
        queue_of: Callable[[QueueOverride | None], QueueConfig],
        record: RecordConfig,
        retry_limits: bool,
        linger_s: float,
        shows_live: bool,
        is_leaving: Callable[[], Awaitable[bool]],
        has_tools: bool,
        is_stale: Callable[[], bool],
    ) -> None:
        """What a hook may change is not shown before (`shows_live`)."""
        self._lease = lease
        self._bridge = bridge.handler
        self._keeper = bridge.keeper
        self._conversation = bridge.conversation
        """Its name in the session map; None if that isn't known."""
        self._login = bridge.login
        self._zone = bridge.zone
        self._retry_limits = retry_limits
        self._resets = resets
        self._queue_of = queue_of
        self._queue_known: tuple[QueueOverride | None, QueueConfig] | None = None
        """The session's own settings, and what they come to."""
        self._record = record
        self._linger_s = linger_s
        self._shows_live = shows_live
        self._is_leaving = is_leaving
        self._has_tools = has_tools
        """Whether the agent may have done something through RemoteClaw's own tools."""
        self._is_stale = is_stale
        self._unreadable: dict[str, str] = {}
        """Entries that nobody can read, each with the reason."""
        self._running: Turn | None = None
        self._behind: list[Entry] = []
        """What was known to wait behind the running turn when it began."""
        self._abort = asyncio.Event()
        self._newest = ""
        """The newest entry that was known when the running turn began."""
        self._is_overtaken = False
        """Whether the running turn is stopped for a newer message."""
        self._steering: Steering | None = None
        """Where the running turn's agent hears of newer messages from."""
        self._marks: set[asyncio.Task[None]] = set()
        self._reached_phases: set[str] = set()
        self._recorded: str | None = None
        """The agent that was recorded as asked when the turn began."""

    @property
    def _queue(self) -> QueueConfig:
        """What becomes of messages to the busy session, as it was last read."""
        own = self._lease.state.queue
        if self._queue_known is None or self._queue_known[0] != own:
            self._queue_known = (own, self._queue_of(own))
        return self._queue_known[1]

    async def run(self) -> None:
        """Serve the session while the lease is kept."""
        try:
            async with asyncio.TaskGroup() as tasks:
                keep = tasks.create_task(self._lease.keep(self._renewed))
                watch = tasks.create_task(self._lease.watch(self._renewed))
                try:
                    await self._serve()
                finally:
                    keep.cancel()
                    watch.cancel()
        finally:
            await self._keeper.abandon()
            await self._bridge.settle()

    async def _serve(self) -> None:
        turns, since = 0, boottime()
        finished: Finished | None = None
        while True:
            try:
                waiting = await self._waiting()
                if not waiting:
                    await self._keeper.park()
                    if await self._lease.close():
                        return
                    continue  # a message came meanwhile
                is_stale = turns and self._is_stale()
                if finished and not is_stale:
                    waiting = await self._when_quiet(waiting, finished)
                    is_stale = self._is_stale()  # that may have taken a minute
                if is_stale:  # whoever takes it next reads the configuration
                    await self._keeper.park()
                    await self._lease.release()
                    return
                plan = next_batch(
                    waiting,
                    self._queue,
                    busy_since_ms=self._lease.state.busy_since_ms,
                    command_of=self._resets.command_of,
                )
                finished = await self._turn(plan, waiting)
                if finished is None:
                    return  # it is postponed, and the lease given back
            except NewerEntry as newer:
                log.warning("session %s waits for a newer worker: %s", self._lease.sid[:8], newer)
                await self._keeper.park()
                await self._lease.release(delay_s=NEWER_S)
                return
            turns += 1
            is_leaving = await self._is_leaving()
            has_had_much = turns >= MOST_TURNS or boottime() > since + MOST_SECONDS
            if finished.left and (is_leaving or (finished.hints and has_had_much)):
                await self._keeper.park()
                await self._lease.release()
                return
            if not finished.left and not finished.hints and not is_leaving:
                await self._linger()
                finished = None  # what comes while it lingers starts at once

    async def _linger(self) -> None:
        """Wait for the next message, unless others have work or the worker is asked to end."""
        until = boottime() + self._linger_s
        while (left_s := until - boottime()) > 0:
            came = await self._lease.wait(min(left_s, LINGER_STEP_S))
            if came != "nothing" or await self._is_leaving():
                return

    async def _waiting(self) -> list[Entry]:
        """Return the entries that wait, oldest first: as many as the queue's mode asks for.

        One that can't be read is there as well, in other words; from one that only a newer worker
        can read, nothing more is returned. Raises `NewerEntry` if that is the first one.
        """
        takes_all = self._queue.mode in ("collect", "interrupt") or self._queue.cap
        entries: list[Entry] = []
        for entry_id, fields in await self._lease.entries(most=ALL if takes_all else FEW_ENTRIES):
            try:
                entry = self._decoded(entry_id, fields)
            except NewerEntry:
                if not entries:
                    raise
                break
            if entry.id in self._unreadable and entries:
                break
            entries.append(entry)
            if entry.id in self._unreadable:
                break  # it is dealt with alone
        return entries

    async def _when_quiet(self, waiting: list[Entry], finished: Finished) -> list[Entry]:
        """Wait until the person has stopped typing; return what waits then.

        Not if there is as much as may wait, not for a message that interrupted a turn, not if a
        command waits, and not for ever.
        """
        debounce_s = self._queue.debounce_ms / 1000
        pause_s = debounce_s - (finished.at_ms - waiting[-1].at_ms) / 1000
        until = boottime() + MOST_PAUSES * debounce_s
        while pause_s > 0 and boottime() < until:
            is_full = len(waiting) >= (self._queue.cap or ALL)
            is_urgent = self._queue.mode in ("interrupt", "steer") or any(
                map(self._resets.command_of, waiting)
            )
            if is_full or is_urgent or waiting[-1].deliver != "channel":
                break
            if await self._lease.quiet(min(pause_s, debounce_s)):
                break
            waiting = await self._waiting()
            pause_s = debounce_s
        return waiting

    # -- one turn ------------------------------------------------------------------------------

    async def _turn(self, plan: Plan, waiting: Sequence[Entry]) -> Finished | None:
        """Run the next batch, of what waits, to its outcome; None if it is postponed."""
        planned = [entry for entry in waiting if entry.id in plan.batch]
        will_reset = await self._resets.why(planned[0].id, planned, was_asked=False)
        ready = None if will_reset else self._keeper.ready
        batch = await self._lease.begin(
            plan.batch,
            phase="dropped" if plan.is_dropped else "spawned" if ready else "accepted",
            detail=ready or "",
            left_out=plan.left_out,
            login=self._login,
        )
        self._recorded = ready
        if batch is None:
            return Finished(left=0, hints=0, at_ms=0)
        entries = [self._decoded(*entry) for entry in batch.entries]
        known = [entry_id.decode() for entry_id, _ in (*batch.entries, *self._lease.waiting)]
        self._newest = max(known, key=stream_order)
        turn = Turn(
            session=self._lease.session,
            entries=tuple(entry for entry in entries if entry.id not in batch.left_out),
            attempt=batch.attempt,
            was_interrupted=batch.before not in NOT_ASKED,
            left_out=tuple(entry for entry in entries if entry.id in batch.left_out),
        )
        self._behind = [entry for entry in waiting if entry.id not in {e.id for e in entries}]
        self._abort.clear()
        self._is_overtaken = False
        self._reached_phases.clear()
        self._running = turn
        is_chat = turn.entries[-1].deliver == "channel"
        # Nothing that a person has sent is overtaken by what comes later.
        is_next = all(entry.origin != "chat" for entry in self._behind)
        if self._queue.mode == "steer" and is_chat and is_next and self._bridge.can_steer:
            self._steering = Steering(self._lease, self._newest, command_of=self._resets.command_of)
        try:
            return await self._attempt(batch, Answer(self._lease, turn))
        finally:
            self._running = self._steering = None

    def _decoded(self, entry_id: bytes, fields: Any) -> Entry:
        """Return an entry; one that can't be read stands there in other words."""
        try:
            return decode_entry(entry_id, fields)
        except ValueError as error:
            self._unreadable[entry_id.decode()] = str(error)
            return _in_place_of(entry_id.decode(), self._lease.session)

    async def _attempt(self, batch: Batch, answer: Answer) -> Finished | None:
        turn = answer.turn
        if all(map(self._resets.is_stop, turn.entries)):
            return await self._finish(answer, self._about_stop(turn), is_recorded=False)
        if batch.is_dropped:
            await self._begin_anew(batch, answer)
            words = TOO_MANY.format(count=len(turn.entries), cap=self._queue.cap)
            return await self._finish(answer, said(words), status="dropped")
        # What an operator wants is not stopped with what people want.
        if batch.is_stopped and turn.entries[0].origin != "operator":
            return await self._finish(answer, failure(turn, ErrorCategory.ABORTED))
        if unreadable := [self._unreadable[e.id] for e in turn.entries if e.id in self._unreadable]:
            told = failure(turn, ErrorCategory.UNREADABLE, unreadable[0])
            return await self._finish(answer, told, status="dead")
        if batch.failures >= MOST_ATTEMPTS:
            told = failure(turn, ErrorCategory.INTERRUPTED)
            return await self._finish(answer, told, status="dead")
        if await self._begin_anew(batch, answer):
            return await self._finish(answer, said(RESET), is_recorded=False)
        if not batch.is_resumed:  # else it was said before the turn was postponed
            if turn.was_interrupted:
                await answer.say(SECOND_TRY)
            if self._conversation and self._lease.has_lost(self._conversation):
                await answer.say(await self._what_is_lost())
        result = await self._patiently(batch, answer)
        if result is None:
            return None
        is_lost = result.error_category is ErrorCategory.UNFIT_IMAGE or (
            # Else that was said before it was asked again.
            result.error_category is ErrorCategory.CONTEXT_OVERFLOW and not self._may_ask_again
        )
        if is_lost and self._has_dropped_conversation and self._keeper.finished_turn:
            index = result.payloads[-1].index + 1
            lost = ReplyPayload(await self._what_is_lost(), index=index, is_ours=True)
            result = replace(result, payloads=(*result.payloads, lost))
        if self._is_overtaken and result.error_category is ErrorCategory.ABORTED:
            result = superseded(result, answer.turn)
        return await self._finish(answer, result, was_asked=True)

    def _about_stop(self, turn: Turn) -> AgentDeliveryResult:
        """Return what is said to a command to stop; what was stopped in the chat has said it."""
        if any(entry.stopped for entry in turn.entries) and turn.entries[-1].deliver == "channel":
            return said("")
        has_stopped = any(entry.stopped or entry.stopped_below for entry in turn.entries)
        return said(STOPPED if has_stopped else NOTHING_TO_STOP)

    async def _patiently(self, batch: Batch, answer: Answer) -> AgentDeliveryResult | None:
        """Ask until there is an answer, or a failure to be told; None if the turn is postponed.

        It is asked again later only if its agent could neither say nor do anything.
        """
        patience = Patience(answer, batch, zone=self._zone, keeps_at_limit=self._retry_limits)
        began = time.monotonic()
        result = patience.known_limit()
        if result is None:
            patience.count()
            result = await self._ask_afresh(answer, began)
        while self._may_ask_again and (at_ms := patience.again_at_ms(result)):
            pause_ms = at_ms - _now_ms()
            if pause_ms <= SHORT_MS:
                is_stopped = await self._pause(pause_ms, result)
            elif await self._postpone(patience.postponement(result, at_ms)):
                return None
            else:
                is_stopped = True
            if is_stopped:
                return failure(answer.turn, ErrorCategory.ABORTED, index=answer.next_index)
            patience.count()
            result = await self._ask_afresh(answer, began)
        return patience.in_the_end(result)

    @property
    def _may_ask_again(self) -> bool:
        """Whether the agent is not known to have said or done anything since it was asked."""
        return not self._reached_phases & {"output", "tool"}

    async def _ask_afresh(self, answer: Answer, began: float) -> AgentDeliveryResult:
        """Ask, and ask another process at once where the failure was the one's own.

        That had been warm and was ending already, or no longer knew the conversation, or the
        conversation had become too long.
        """
        # Where a hook chooses the directory, the conversation's name is not known here.
        is_fork = any(name.startswith(FORK_OF) for name in self._lease.session_ids.values())
        again = {ErrorCategory.SESSION_EXPIRED, ErrorCategory.DIED}
        length = sum(len(entry.message.text) for entry in answer.turn.entries)
        if self._keeper.finished_turn and length < LONG_MESSAGE:
            again.add(ErrorCategory.CONTEXT_OVERFLOW)
        result = await self._ask(answer, used_s=time.monotonic() - began)
        while (category := result.error_category) in again and self._may_ask_again:
            again.discard(category)
            if category is ErrorCategory.DIED and "spawned" in self._reached_phases:
                await answer.say(SECOND_TRY)  # what it did unseen is done a second time
            if category is ErrorCategory.SESSION_EXPIRED and (
                self._keeper.finished_turn or is_fork
            ):
                await answer.say(await self._what_is_lost())
            if category is ErrorCategory.CONTEXT_OVERFLOW and self._has_dropped_conversation:
                await answer.say(await self._what_is_lost())
            result = await self._ask(answer, used_s=time.monotonic() - began)
        return result

    async def _pause(self, pause_ms: int, result: AgentDeliveryResult) -> bool:
        """Wait a moment with the agent at hand; return whether the turn is stopped meanwhile."""
        await self._settle_marks()
        # After a crash the turn is asked as if it had not been.
        detail = f"for {pause_ms / 1000:.1f} s: {result.error_category}"
        await self._lease.mark("postponed", detail)
        self._recorded = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                await self._abort.wait()
        return self._abort.is_set()

    async def _postpone(self, what: Postponement) -> bool:
        """Give the session back until a time; False if the turn is to be stopped instead.

        So it is when the conversation is to end behind it: nobody waits for the limit then.
        """
        await self._settle_marks()
        await self._keeper.park()
        behind = self._behind
        while not any(map(self._resets.is_reset, behind)):
            newest = self._newest
            verdict = await self._lease.postpone(what, newest=newest, login=self._login)
            if verdict != "news":
                return verdict == "postponed"
            behind = []
            for entry_id, fields in await self._lease.arrived(newest):
                self._newest = entry_id.decode()
                with contextlib.suppress(NewerEntry):
                    behind.append(self._decoded(entry_id, fields))
        return False

    async def _settle_marks(self) -> None:
        """Wait for what is still being recorded of the running attempt."""
        marks, self._marks = self._marks, set()
        await asyncio.gather(*marks)

    async def _begin_anew(self, batch: Batch, answer: Answer) -> bool:
        """End the conversation if the turn is to begin another; return whether that was all."""
        entries = answer.turn.entries
        was_asked = batch.before not in NOT_ASKED
        if why := await self._resets.why(batch.turn, entries, was_asked=was_asked):
            await self._resets.end_conversation(batch.turn, why)
            if (words := ENDED_BY_ITSELF.get(why)) and not batch.is_resumed:
                await answer.say(words)
        answer.turn = replace(answer.turn, entries=self._resets.in_new_conversation(entries))
        return self._resets.is_alone(entries)

    @property
    def _has_dropped_conversation(self) -> bool:
        return bool(self._conversation) and self._conversation not in self._lease.session_ids

    async def _what_is_lost(self) -> str:
        return GOES_ON_FROM_NOTES if await self._history() else CONTEXT_LOST

    async def _ask(self, answer: Answer, *, used_s: float = 0.0) -> AgentDeliveryResult:
        """Take the turn through the bridge, with live text beside it.

        `used_s` is what has passed of the time that it may take.
        """
        self._reached_phases.clear()
        callbacks = BridgeCallbacks(
            on_partial_reply=answer.publish,
            on_live_text=answer.show if self._shows_live else None,
            on_activity=answer.show_activity if self._shows_live else None,
            on_phase=self._reached,
        )
        async with asyncio.TaskGroup() as tasks:
            showing = tasks.create_task(answer.keep_showing())
            try:
                return await self._bridge.handle(
                    answer.turn,
                    callbacks,
                    self._abort,
                    first_index=answer.next_index,
                    newcomers=self._steering.entries if self._steering else None,
                    history=self._history,
                    effects=self._lease.effects if self._has_tools else None,
                    used_s=used_s,
                )
            finally:
                showing.cancel()
                answer.show_activity(())

    async def _finish(
        self,
        answer: Answer,
        result: AgentDeliveryResult,
        *,
        status: str = "",
        is_recorded: bool = True,
        was_asked: bool = False,
    ) -> Finished:
        error = None
        status = status or STATUS.get(result.error_category, "failed")
        if result.error_category is not None:
            detail = (result.error or "")[:DETAIL]
            error = {"category": str(result.error_category), "detail": detail}
        # What is still being recorded was sent before the outcome; nobody has to wait for it.
        marks, self._marks = self._marks, set()
        payloads = result.payloads
        is_empty = error is None and not any(not payload.is_ours for payload in payloads)
        if is_empty and status == "done" and not result.is_silent:
            index = payloads[-1].index + 1 if payloads else answer.next_index
            nothing = ReplyPayload(NOTHING_SAID, index=index, is_ours=True)
            payloads = (*payloads, nothing)
        entries = self._entries_of(answer.turn, result.steered)
        left = await answer.finish(
            status,
            payloads,
            error=error,
            agent_process=self._keeper.record(),
            steered=result.steered,
            answered=result.answered,
            blobs=[file.blob for entry in entries for file in entry.message.attachments],
            record=self._to_record(answer.turn, result) if is_recorded else None,
            has_heard=was_asked and any(e.origin == "chat" for e in entries),
            usage=Usage.of(result.run) if was_asked else None,
        )
        await asyncio.gather(*marks)
        self._keeper.finished(answer.turn.id)
        return left

    def _entries_of(self, turn: Turn, steered: Sequence[str]) -> tuple[Entry, ...]:
        """Return all that the turn answers."""
        joined = self._steering.taken(steered) if self._steering else ()
        return (*turn.left_out, *turn.entries, *joined)

    # -- the record ----------------------------------------------------------------------------

    def _to_record(self, turn: Turn, result: AgentDeliveryResult) -> Record:
        if not self._record.keep_days:
            return Record(b"", 0, 0)
        joined = self._steering.taken(result.steered) if self._steering else ()
        most_bytes = self._record.max_kb * 1024
        lines = lines_of(turn, joined, result, at_ms=_now_ms(), most_bytes=most_bytes // 2)
        return Record(lines, most_bytes, self._record.keep_ms)

    async def _history(self) -> list[dict[str, str]]:
        """Return what a new agent process has to know of the conversation."""
        recorded = await self._lease.recorded()
        return digest(recorded, since_ms=_now_ms() - self._record.keep_ms)

    # -- phases, stops and renewals ------------------------------------------------------------

    async def _reached(self, phase: str, detail: str) -> None:
        """Record a phase: before the agent is asked, later ones beside its answer."""
        self._reached_phases.add(phase)
        if phase != "spawned":
            self._marks.add(asyncio.create_task(self._lease.mark(phase, detail)))
        elif detail != self._recorded:
            await self._lease.mark(phase, detail, agent_process=self._keeper.record())

    @property
    def _may_be_interrupted(self) -> bool:
        """Whether a newer message stops the running turn.

        Not if somebody waits for its reply, nor if it is about what no person has sent, such as a
        cron job or a task's result: nobody would send that again.
        """
        if self._running is None or self._running.entries[-1].deliver != "channel":
            return False
        is_said = all(entry.origin == "chat" for entry in self._running.entries)
        return self._queue.mode == "interrupt" and is_said

    def _renewed(self, stop_mark: str, newest: str) -> None:
        self._keeper.beat()
        self._told(stop_mark, newest)

    def _told(self, stop_mark: str, newest: str) -> None:
        """Stop the running turn if the mark covers it, or if a newer message interrupts it."""
        if self._running is None:
            return
        last = self._running.entries[-1].id
        if stop_mark and _at_most(last, stop_mark):
            self._abort.set()
        elif newest and self._may_be_interrupted and not self._abort.is_set():
            # What was waiting when the turn began does not interrupt it.
            self._is_overtaken = not _at_most(newest, self._newest)
            if self._is_overtaken:
                self._abort.set()
        elif newest and self._steering:
            self._steering.announce()


def _in_place_of(entry_id: str, session: SessionKey) -> Entry:
    """Return an entry that says where a message that can't be read has to be answered."""
    # Unchecked: the session may be of a channel whose name is refused by now.
    message = ChannelMessage.model_construct(
        id=entry_id,
        text="(unreadable)",
        from_=session.user,
        channel_id=session.channel_id,
        provider=session.provider,
        account=session.account,
        thread_id=session.thread,
        timestamp=int(entry_id.partition("-")[0]),
    )
    return Entry(entry_id, message, deliver="parent" if session.task else "channel")


def _now_ms() -> int:
    return int(time.time() * 1000)


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    """Return the innermost first exception of nested groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _at_most(entry_id: str, mark: str) -> bool:
    """Whether a stream id is not after another."""
    return stream_order(entry_id) <= stream_order(mark)
