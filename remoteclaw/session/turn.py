"""A turn of a session: `TurnRunner.run()` takes waiting entries to their outcome."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from remoteclaw.config.model import Config, QueueConfig
from remoteclaw.config.tool_policy import is_owned_by
from remoteclaw.errors import (
    AgentUnavailable,
    ConfigError,
    ErrorCategory,
    LeaseLost,
    RedisUnavailable,
)
from remoteclaw.events import Compacted, ErrorEvent
from remoteclaw.fleet.budgets.standing import LimitReached, Standing
from remoteclaw.fleet.sessions.usage import UsageScopes
from remoteclaw.fleet.terminals.state import TerminalPlace
from remoteclaw.fleet.terminals.terminals import Terminals
from remoteclaw.fleet.turns.commands import command_of
from remoteclaw.fleet.turns.inbound import NewerEntry
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Batch, Finished
from remoteclaw.messages import Entry, Turn, has_read_web, stream_order
from remoteclaw.session.asides import TurnAsides
from remoteclaw.session.asking import AgentCaller
from remoteclaw.session.attempt import Attempt, Progress
from remoteclaw.session.bridge import SessionBridge
from remoteclaw.session.budgets import AtLimit, SessionBudgets, TurnBudgets
from remoteclaw.session.ending import Ending, finish, without_agent
from remoteclaw.session.moved_turn import send_end_notice
from remoteclaw.session.notices import (
    RESET,
    SECOND_TRY,
    compact_result,
    failed_result,
    notice_result,
)
from remoteclaw.session.permission import Permissions
from remoteclaw.session.queue import (
    BatchStep,
    NextBatch,
    OpenTurn,
    TurnReaction,
    batch_step,
    interrupts,
    next_batch,
    reaction,
)
from remoteclaw.session.reply import TurnReply
from remoteclaw.session.reset import BY_AGE, Resets
from remoteclaw.session.steering import Steering
from remoteclaw.session.terminal_end import settle_terminal
from remoteclaw.session.terminal_opening import TerminalOpening
from remoteclaw.session.waiting import decode_all
from remoteclaw.telemetry import BEGINS

#: The longest reason of a failed compaction, in characters.
MAX_WHY_CHARS = 200
#: The phases of an attempt that has not reached an agent.
NOT_ASKED = ("", "accepted", "postponed")

log = logging.getLogger(__name__)


class TurnRunner:
    """Runs the turns of a session under one lease, one at a time."""

    def __init__(
        self,
        lease: Lease,
        bridge: SessionBridge,
        config: Config,
        terminals: Terminals,
        opening: TerminalOpening,
        left_terminal: TerminalPlace | None,
    ) -> None:
        """`left_terminal` was started by an earlier owner of the lease, and has ended."""
        self._terminals = terminals
        self._opening = opening
        self._left_terminal = left_terminal
        self._lease = lease
        self._bridge = bridge
        self._config = config
        self.budgets = SessionBudgets(lease, config, bridge.zone)
        self._resets = Resets(lease, config, discard_agent=bridge.keeper.forget)
        self.agent_caller = AgentCaller(lease, bridge, config.record)
        self._running: Attempt | None = None
        self.last_turn: Turn | None = None
        """The last turn, if the session's own agent has answered it; else None."""
        self._was_stopped = False
        """Whether the last turn was stopped, and has said so in the chat."""

    @property
    def queue(self) -> QueueConfig:
        """The session's current queue settings."""
        return self._config.queue_of(self._lease.session, self._lease.state.queue_settings)

    async def warm_up(self, waiting: Sequence[Entry]) -> None:
        """Begin to start the agent for `waiting` entries, unless they reset the conversation."""
        if not await self._resets.reason_for(waiting[0].id, waiting, was_asked=False):
            await self.agent_caller.warm_up(Turn(self._lease.session, tuple(waiting)))

    async def run(self, waiting: Sequence[Entry]) -> Finished | None:
        """Run the next batch to its outcome; None if it was postponed or opened a terminal."""
        plan = next_batch(
            waiting,
            self.queue,
            busy_since_ms=self._lease.state.busy_since_ms,
        )
        attempt = await self._begin(plan, waiting)
        if attempt is None:
            is_postponed = self._lease.is_given_away
            return None if is_postponed else Finished(left=1, competing_hints=0, at_ms=0)
        self._running = attempt
        if attempt.turn.entries[0].terminal:
            return await self._run_terminal(attempt)
        try:
            command = command_of(attempt.turn.entries[0])
            match step := batch_step(attempt.batch, attempt.turn, command=command):
                case BatchStep.AGENT:
                    await self._start_conversation(attempt)
                    await self._send_notices(attempt)
                    answered = await self._answer(attempt)
                    if answered is None:
                        return None
                    ending = answered
                case BatchStep.RESET:
                    await self._start_conversation(attempt)
                    ending = Ending(notice_result(RESET), is_recorded=False)
                case _:
                    ending = without_agent(step, attempt)
            is_told = self._was_stopped and _goes_to_chat(attempt.turn)
            if step is BatchStep.STOPPED and is_told and not attempt.turn.entries[0].waits:
                ending = replace(ending, result=replace(ending.result, payloads=()))
            finished = await self._finish(attempt, ending)
            await self.budgets.tell(finished.budgets)
            is_own = ending.was_asked and not self._lease.state.fallback
            is_last = is_own and ending.status != "failed" and not ending.result.error_category
            self.last_turn = attempt.turn if is_last else None
            self._was_stopped = (
                ending.result.error_category is ErrorCategory.ABORTED
                and not attempt.is_superseded
                and _goes_to_chat(attempt.turn)
            )
            if attempt.asides:  # the next batch must not contain entries that an aside has ended
                ended = await attempt.asides.settle()
                finished = replace(finished, left=max(0, finished.left - ended))
            return finished
        finally:
            if attempt.asides:
                attempt.asides.abandon()
            self.agent_caller.release()
            self._running = None

    async def _answer(self, attempt: Attempt) -> Ending | None:
        """Have the agent answer, or summarize the conversation; None if the turn is postponed."""
        if (keep := self._bridge.keep_of(attempt.turn)) is not None:
            return await self._compact(attempt, keep)
        if attempt.asides:
            attempt.asides.begin()
        result = await self.agent_caller.ask(attempt)
        return Ending(result, was_asked=True) if result else None

    async def _compact(self, attempt: Attempt, keep: str) -> Ending:
        """Have the agent summarize the conversation, as a person has asked."""
        try:
            made = await self.agent_caller.compact_for(attempt, keep=keep)
        except ConfigError as problem:
            made = Compacted(failure=ErrorEvent(ErrorCategory.NOT_INSTALLED, str(problem)))
        index, turn = attempt.reply.next_index, attempt.turn
        if made.done is None and attempt.abort.is_set():
            return Ending(failed_result(turn, ErrorCategory.ABORTED, index=index))
        why = made.failure.detail if made.failure else made.run.text
        result = compact_result(turn, made, why=self._bridge.scrubber.line(why, MAX_WHY_CHARS))
        result = replace(result, payloads=tuple(replace(p, index=index) for p in result.payloads))
        status = "done" if made.done or made.is_empty else "failed"
        return Ending(result, status, was_asked=True, tells_summary=True)

    async def _run_terminal(self, attempt: Attempt) -> Finished | None:
        """Open the turn's terminal, or finish the turn if its terminal has ended.

        Return None once the terminal is open.
        """
        turn, left = attempt.turn, self._left_terminal
        if left and left.turn != turn.id:
            left = None
        if self._lease.state.held and left:
            settled = await settle_terminal(self._terminals, self._lease, left, self._config)
            result = notice_result("")
            if settled.has_failed:
                result = failed_result(turn, ErrorCategory.DIED, settled.reason)
            status = "stopped" if attempt.batch.is_stopped else ""
            ending = Ending(result, status, is_recorded=False, record=settled.record)
            finished = await self._finish(attempt, ending)
            if self._lease.state.context:  # the program may have made it longer
                await self._lease.note_context(None)
            return finished
        step = batch_step(attempt.batch, turn, command=None)
        if step is BatchStep.AGENT:
            try:
                await self._opening.open(attempt, left)
                return None
            except AgentUnavailable as problem:
                ending = Ending(failed_result(turn, problem.category, str(problem)))
        else:
            # Never a dead letter: retrying it later would open a terminal that nobody uses.
            ending = replace(without_agent(step, attempt), status="")
            await self._opening.abandon(str(step))
        return await self._finish(attempt, replace(ending, is_recorded=False))

    def on_lease_renewed(self, stop: str, newest: str) -> None:
        """Send the agent's holder a beat, and apply `reaction()` to the running turn.

        Entries up to the id `stop` are stopped. `newest` is the id of the newest
        message of a person or to a task.
        """
        self._bridge.keeper.beat()
        if (running := self._running) is None:
            return
        if running.permissions:
            running.permissions.check_answers()
        known = running.newest_known
        match reaction(running.turn, running.queue, newest_known=known, stop=stop, newest=newest):
            case TurnReaction.STOP:
                running.abort.set()
                if running.asides:
                    running.asides.stop(stop)
            case TurnReaction.INTERRUPT if not running.abort.is_set():
                if not running.turn.session.is_shared:
                    running.interrupt()
                elif running.interrupting is None or running.interrupting.done():
                    running.interrupting = asyncio.create_task(self._interrupt_if_allowed(running))
            case TurnReaction.READ:
                for receiver in (running.steering, running.asides):
                    if receiver:
                        receiver.announce()

    async def _interrupt_if_allowed(self, running: Attempt) -> None:
        """Interrupt a turn of a shared conversation if one of the newer messages may do that."""
        with contextlib.suppress(LeaseLost, RedisUnavailable, NewerEntry):
            raw = await self._lease.entries_after(running.newest_known)
            for entry in decode_all(raw, self._lease.session):
                is_owner = is_owned_by(self._config, entry.message.provider, entry.message.from_)
                if interrupts(running.turn, entry, is_owner=is_owner):
                    # What waits for its budget would leave the turn without an answer.
                    if running.budgets and await running.budgets.is_at_limit(entry):
                        continue
                    running.interrupt()

    # -- the steps -----------------------------------------------------------------------------

    async def _begin(self, plan: NextBatch, waiting: Sequence[Entry]) -> Attempt | None:
        """Record the batch, or begin the unfinished batch again.

        Return None if its entries are gone, or if the kept batch is still postponed; then the lease
        is released.
        """
        lease, bridge = self._lease, self._bridge
        planned = [entry for entry in waiting if entry.id in plan.batch]
        will_reset = await self._resets.reason_for(planned[0].id, planned, was_asked=False)
        needs_other = will_reset or planned[0].terminal or lease.state.kept_size
        ready_agent = None if needs_other else bridge.keeper.ready
        begins_anew = will_reset is not None
        limits = await self.budgets.of_new(planned, begins_anew=begins_anew)
        begin = partial(
            lease.turns.begin,
            phase="dropped" if plan.is_dropped else "spawned" if ready_agent else "accepted",
            detail=ready_agent or "",
        )
        try:
            batch = await begin(
                plan.batch,
                left_out=plan.left_out,
                budgets=() if plan.is_dropped else limits,
            )
        except LimitReached as limit:
            batch = await self._begin_at_limit(limit.standing, planned, waiting, begin)
        if batch is None:
            return None
        entries = batch.entries
        if not entries[0].terminal:
            lease.state = replace(lease.state, kept_size=0)
        turn = Turn(
            session=lease.session,
            entries=tuple(entry for entry in entries if entry.id not in batch.left_out),
            attempt=batch.attempt,
            was_interrupted=batch.furthest_phase_before not in NOT_ASKED,
            left_out=tuple(entry for entry in entries if entry.id in batch.left_out),
        )
        ids = [lease.newest_read, *(entry.id for entry in entries)]
        attempt = Attempt(
            batch=batch,
            turn=turn,
            queue=self.queue,
            reply=TurnReply(lease, turn),
            progress=Progress(lease, bridge.keeper, recorded=ready_agent),
            waiting_after=[entry for entry in waiting if entry.id not in {e.id for e in entries}],
            newest_known=max(ids, key=stream_order),
        )
        root = await lease.progress.root()

        def usage_scopes() -> UsageScopes:
            entries = (*attempt.turn.entries, *attempt.joined_so_far)
            return UsageScopes.of(self._config, lease.session.agent, root.sid, entries)

        lease.usage_scopes = usage_scopes
        if has_read_web(entries):  # for the result of a later turn of a task
            await lease.turns.note_web()
        BEGINS.log(
            log,
            reference=turn.references,
            session=lease.sid,
            agent=turn.session.agent,
            channel=turn.place.provider,
            attempt=turn.attempt,
            worker=os.getppid(),  # as `status` names it
            host=self._config.fleet.name_of_host,
        )
        if turn.entries[0].terminal:
            return attempt
        await self.agent_caller.choose(attempt)
        permissions = Permissions(
            lease,
            turn,
            self._config,
            bridge.files,
            abort=attempt.abort,
            joined=lambda: attempt.joined_so_far,
            explains_denial=lambda: bridge.explains_denial,
        )
        if permissions.can_ask:
            attempt.permissions = permissions
        if self._config.budgets:
            attempt.budgets = TurnBudgets(
                self.budgets,
                lease,
                attempt.reply,
                entries=lambda: (*attempt.turn.entries, *attempt.joined_so_far),
                stop=attempt.abort.set,
            )
        running = OpenTurn(
            turn, attempt.queue, attempt.waiting_after, bridge.can_steer, bridge.can_aside
        )
        if running.takes_messages or (running.takes_asides and running.can_take_aside):
            attempt.steering = Steering(
                lease,
                running,
                attempt.newest_known,
                is_at_limit=attempt.budgets.is_at_limit if attempt.budgets else None,
            )
        if running.takes_asides and not running.takes_messages:
            attempt.asides = self._new_asides(attempt, running)
        return attempt

    async def _begin_at_limit(
        self,
        standing: Standing,
        planned: Sequence[Entry],
        waiting: Sequence[Entry],
        begin: Callable[..., Awaitable[Batch | None]],
    ) -> Batch | None:
        """Begin what the limit of a budget doesn't refuse, or refuse what it does.

        Return None if that waits; then the lease is released.
        """
        if results := [entry for entry in waiting if entry.origin == "result"]:
            plan = next_batch(results, self.queue, busy_since_ms=None)
            return await begin(plan.batch)
        reached: list[AtLimit] = []
        others = waiting
        while True:
            limited, others = self.budgets.divide(standing, planned, others)
            reached.append(AtLimit(standing, limited))
            if not others:
                break
            # The budget of one person of a group doesn't limit the others.
            plan = next_batch(others, self.queue, busy_since_ms=None)
            planned = [entry for entry in others if entry.id in plan.batch]
            try:
                return await begin(plan.batch, budgets=await self.budgets.of_new(planned))
            except LimitReached as limit:
                standing = limit.standing
        await self._bridge.keeper.park()
        refused = await self.budgets.wait(reached, waiting)
        if refused is None:
            return None
        ids = [entry.id for entry in refused.entries]
        return await begin(ids, phase="dropped", detail="", refused=refused)

    def _new_asides(self, attempt: Attempt, running: OpenTurn) -> TurnAsides:
        """Return the turn's asides; with `steering`, messages can join the turn."""
        return TurnAsides(
            self._lease,
            self._bridge,
            self._config,
            running,
            attempt.reply,
            turn_asked=attempt.progress.asked,
            steering=attempt.steering,
            permissions=attempt.permissions,
            budgets=attempt.budgets,
            history=self.agent_caller.history,
        )

    async def _start_conversation(self, attempt: Attempt) -> None:
        """End the session's conversation if the turn begins a new one."""
        batch, entries = attempt.batch, attempt.turn.entries
        was_asked = attempt.turn.was_interrupted
        if reason := await self._resets.reason_for(batch.turn, entries, was_asked=was_asked):
            await self._resets.end_conversation(batch.turn, reason, entries[0])
            if reason in BY_AGE and not batch.is_resumed:
                await attempt.reply.send_notice(RESET)
        shown = self._resets.in_new_conversation(entries)
        attempt.turn = replace(attempt.turn, entries=shown)

    async def _send_notices(self, attempt: Attempt) -> None:
        """Send the notices before the answer: an interrupted attempt, a lost conversation."""
        if attempt.batch.is_resumed:
            return  # they were sent before the turn was postponed
        await send_end_notice(self._lease, attempt)
        if attempt.turn.was_interrupted:
            await attempt.reply.send_notice(SECOND_TRY)
        names = self._bridge.conversations
        has_lost = names and self._lease.has_lost_conversation(names)
        if has_lost and (notice := await self.agent_caller.notice_of_loss(attempt)):
            await attempt.reply.send_notice(notice)

    async def _finish(self, attempt: Attempt, ending: Ending) -> Finished:
        keeper, settings = self._bridge.keeper, self._config.record
        return await finish(self._lease, keeper, settings, attempt, ending)


def _goes_to_chat(turn: Turn) -> bool:
    """Whether the replies to all entries of a turn go to the session's chat."""
    return all(entry.deliver == "channel" for entry in turn.entries)
