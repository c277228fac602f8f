"""Calls of the agent for a turn, repeated if the agent could not work."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from remoteclaw.clock import now_ms
from remoteclaw.config.model import RecordConfig
from remoteclaw.errors import ConfigError, ErrorCategory
from remoteclaw.events import AgentUsage, Compacted, ErrorEvent, PermissionEvent
from remoteclaw.fleet.cooling import Cool, Failure
from remoteclaw.fleet.requests.turn_requests import TurnRequests
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.asides import Asides
from remoteclaw.fleet.turns.inbound import NewerEntry
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Postponement
from remoteclaw.messages import AgentDeliveryResult, ToolCall, Turn
from remoteclaw.protocols import NOTHING_SEEN, BridgeCallbacks, Decision, TurnSources
from remoteclaw.session.attempt import Attempt
from remoteclaw.session.bridge import SessionBridge
from remoteclaw.session.fallbacks import OF_THE_AGENT, SWITCHING, Choice, switch_notice
from remoteclaw.session.notices import CONTEXT_LOST, SECOND_TRY, failed_result, with_notice
from remoteclaw.session.permission import Permissions
from remoteclaw.session.queue import may_be_postponed
from remoteclaw.session.record import count_refusals, digest, has_message, has_notice
from remoteclaw.session.reply import TurnReply
from remoteclaw.session.retry import (
    RETRIED_AT_ONCE,
    SHORT_MS,
    LastNotice,
    next_try_ms,
    postponement,
)
from remoteclaw.session.task_notes import keep_noting
from remoteclaw.session.waiting import decode_all
from remoteclaw.session.ways_out import WaysOut
from remoteclaw.telemetry import ASKS, PAUSES, REPEATS, noting_wait

#: The denial of a tool that an agent asks for after the limit of a budget is reached.
BUDGET_USED_UP = "The budget is used up, so this turn ends here."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one agent has answered."""

    result: AgentDeliveryResult
    delay: Callable[[], Postponement] | None = None
    """Returns the postponement of the turn, if it is to be asked again later; None if it is
    over."""


class AgentCaller:
    """Calls the agent of one session under one lease."""

    def __init__(
        self,
        lease: Lease,
        bridge: SessionBridge,
        record: RecordConfig,
    ) -> None:
        self._lease = lease
        self._bridge = bridge
        self._record = record

    async def warm_up(self, turn: Turn) -> None:
        """Begin to start the agent for `turn`; any error is left for the turn to report."""
        bridge, state = self._bridge, self._lease.state
        if bridge.channel and bridge.workspace and not state.fallback:
            with contextlib.suppress(ConfigError):
                workspace = bridge.workspace(state.project)
                model, _ = bridge.model_of(turn, state)
                await bridge.channel.warm_up(turn, model=model, workspace=workspace)

    async def choose(self, attempt: Attempt) -> None:
        """Choose who is asked, and in which order: the agent, or a fallback while it is left alone.

        The choice follows from what the fleet knows now, so a turn that is begun again after a
        crash is asked of the same ones.
        """
        bridge = self._bridge
        if bridge.fallbacks is None:
            return
        model, _ = bridge.model_of(attempt.turn, self._lease.state)
        choices = await bridge.fallbacks.choices(attempt.turn, model)
        attempt.own, attempt.failure = choices[0]
        attempt.choices = [choice for choice, failure in choices if failure is None]
        if attempt.failure:
            able = [choice for choice in attempt.choices if self._can_answer(attempt, choice)]
            attempt.choices = [*able, attempt.own]  # if none answers, its own failure decides
        self._work_with(attempt.choices[0])

    async def ask(self, attempt: Attempt) -> AgentDeliveryResult | None:
        """Ask the agent until it answers or fails for good; None if the turn is postponed.

        If the agent can't answer soon, its fallbacks are asked at once, and only if none of them
        answers, the turn is asked again later. The turn is asked of another one, or again later,
        only if no agent has written text or used a tool.
        """
        if attempt.own is None:  # there is no agent
            return (await self._ask_patiently(attempt, None)).result
        of_own: Answer | None = None
        failed: tuple[Choice, AgentDeliveryResult] | None = None
        for choice in attempt.choices:
            if not self._can_answer(attempt, choice):
                continue
            is_other = choice.agent != self._lease.session.agent
            if is_other and attempt.budgets and await attempt.budgets.is_used_up(choice.agent):
                continue
            if choice.name or failed or self._lease.state.fallback:
                await self._note_choice(attempt, choice, failed)
            self._work_with(choice)
            answer = await self._ask_patiently(attempt, choice)
            result, failed = answer.result, (choice, answer.result)
            if choice.name == "":
                of_own = answer
            if self._is_final(attempt, choice, result):
                told = self._lease.state.told_fallback or ""
                if not attempt.progress.is_silent and choice.name != told:
                    attempt.newly_told_fallback = choice.name
                return result
            if not choice.name and result.error_category:
                attempt.failure = Failure(result.error_category, result.retry_at_ms)
        assert of_own is not None, "the agent itself is always asked"
        return await self._keep_or_fail(attempt, of_own, failed)

    def _is_final(self, attempt: Attempt, choice: Choice, result: AgentDeliveryResult) -> bool:
        """Whether no fallback may be asked after a result."""
        category = result.error_category
        if category is None or not attempt.progress.is_silent or attempt.abort.is_set():
            return True
        if category is ErrorCategory.DIED and attempt.progress.was_asked:
            return True  # it may have done work that it did not report
        # A fallback that can't work at all, for example because it isn't signed in, is no answer.
        return category is ErrorCategory.ABORTED or (not choice.name and category not in SWITCHING)

    def _can_answer(self, attempt: Attempt, choice: Choice) -> bool:
        """Whether a choice can answer, and may; the agent itself always may."""
        if not choice.name or self._bridge.fallbacks is None:
            return True
        if why := self._bridge.fallbacks.misfit_of(choice):
            log.warning("%s: %s isn't asked: %s", attempt.turn.references, choice.name, why)
            return False
        is_shared = attempt.failure and attempt.failure.category in OF_THE_AGENT
        return not is_shared or choice.agent != self._lease.session.agent

    async def _keep_or_fail(
        self,
        attempt: Attempt,
        of_own: "Answer",
        failed: tuple[Choice, AgentDeliveryResult] | None,
    ) -> AgentDeliveryResult | None:
        """Postpone the turn as the agent's own failure says, or return the failure."""
        assert attempt.own is not None, "an agent was asked"
        self._work_with(attempt.own)
        if of_own.delay is None:
            if failed and failed[0].key:
                await self._note_choice(attempt, attempt.own, failed)
            return _renumbered(of_own.result, attempt.reply.next_index)
        cool = None
        if failed and self._bridge.fallbacks:
            choice = await self._bridge.fallbacks.with_keys(failed[0])
            cool = choice.cool(failed[1])
        if await self._postpone(attempt, of_own.delay(), cool):
            return None
        index = attempt.reply.next_index
        return failed_result(attempt.turn, ErrorCategory.ABORTED, index=index)

    def release(self) -> None:
        """Return to the session's agent after a turn."""
        self._bridge.working, self._lease.fallback_agent = self._bridge.channel, ""

    def _work_with(self, choice: Choice) -> None:
        own = self._lease.session.agent
        self._bridge.working, self._bridge.working_model = choice.channel, choice.asked_model
        self._lease.fallback_agent = "" if choice.agent == own else choice.agent

    async def _note_choice(
        self, attempt: Attempt, choice: Choice, failed: tuple[Choice, AgentDeliveryResult] | None
    ) -> None:
        """Record who is asked, and that the one that has failed before is left alone."""
        failure = attempt.failure
        detail, by = f"{choice.agent} itself", None
        if choice.name and failure:
            detail = f"{choice.name}: {failure.category} of {self._lease.session.agent}"
            by = {"by": choice.name, "why": failure.category, "until_ms": failure.until_ms}
        await attempt.progress.start_over()
        await self._lease.turns.fall_back(
            detail, to=by, failed=failed[0].cool(failed[1]) if failed else None
        )
        ASKS.log(log, **_about(attempt), agent=detail)

    async def _ask_patiently(self, attempt: Attempt, choice: Choice | None) -> "Answer":
        """Ask one agent until it answers or fails for longer than a short pause."""
        own, batch = choice is None or not choice.name, attempt.batch
        tries = batch.tries if own else 0
        told = LastNotice.parse(batch.last_notice) if own else LastNotice()
        channel = choice.channel if choice else self._bridge.channel
        ways = WaysOut(
            channel,
            attempt.abort,
            compact=partial(self._make_room, attempt),
            count_refusals=self._count_refusals,
            notice_of_loss=partial(self.notice_of_loss, attempt),
        )
        # A worker may have been killed in a short pause, a session postponed, or the agent's last
        # message answered by a fallback.
        repeats = batch.is_resumed or batch.furthest_phase_before == "postponed"
        repeats = repeats or not own or bool(self._lease.state.told_fallback)
        while True:
            result = await self._ask_once(attempt, choice, ways, repeats=repeats)
            repeats, now = True, now_ms()
            category = result.error_category
            tries += category is not ErrorCategory.USAGE_LIMIT  # a limit is waited for without end
            at_ms = next_try_ms(
                category, tries=tries, retry_at_ms=result.retry_at_ms, now_ms=now, told=told
            )
            if at_ms is None or not attempt.progress.is_silent:
                return Answer(result)
            if at_ms - now > SHORT_MS:
                delay = partial(
                    postponement,
                    result,
                    attempt.reply,
                    tries=tries,
                    told=told,
                    at_ms=at_ms,
                    now_ms=now,
                    zone=self._zone(attempt),
                )
                return Answer(result, delay)
            if await self._pause(attempt, at_ms - now, result):
                index = attempt.reply.next_index
                return Answer(failed_result(attempt.turn, ErrorCategory.ABORTED, index=index))

    async def _ask_once(
        self, attempt: Attempt, choice: Choice | None, ways: WaysOut, *, repeats: bool
    ) -> AgentDeliveryResult:
        """Ask once; if the process or the conversation failed, ask at once another way."""
        repeated: set[ErrorCategory | None] = set()
        while True:
            conversations = set(self._lease.session_map)
            result = await self._handle(attempt, choice, ways, repeats=repeats)
            category, progress = result.error_category, attempt.progress
            may_repeat = category in RETRIED_AT_ONCE and category not in repeated
            is_repeated = may_repeat and progress.is_silent
            if progress.is_silent and not is_repeated:
                index = attempt.reply.next_index
                final = await ways.prepare(result, attempt.turn, index=index)
                is_repeated, result = final is None, final or result
            if not is_repeated:
                result = await ways.settle(result, is_silent=progress.is_silent)
            has_lost = bool(conversations - set(self._lease.session_map))
            notice = await self.notice_of_loss(attempt) if has_lost else ""
            if not is_repeated and notice:
                return with_notice(result, notice, index=attempt.reply.next_index)
            if not is_repeated:
                return result
            REPEATS.log(log, **_about(attempt), category=str(category))
            repeated.add(category)
            if category is ErrorCategory.DIED and progress.was_asked:
                # The dead process may have done work that it did not report.
                await attempt.reply.send_notice(SECOND_TRY)
            if notice:
                await attempt.reply.send_notice(notice)

    async def _handle(
        self, attempt: Attempt, choice: Choice | None, ways: WaysOut, *, repeats: bool
    ) -> AgentDeliveryResult:
        """Run the turn through the bridge once, and publish its live text."""
        reply, bridge = attempt.reply, self._bridge.working
        attempt.progress.restart()
        problem, workspace = self._bridge.problem, None
        project, of_project = self._lease.state.turn_project, False
        try:
            if self._bridge.workspace:
                workspace = self._bridge.workspace(project)
        except ConfigError as error:
            problem, of_project = str(error), project is not None
        if bridge is None or workspace is None:
            category = ErrorCategory.NOT_INSTALLED
            return failed_result(
                attempt.turn, category, problem, reply.next_index, is_for_all=of_project
            )
        callbacks = BridgeCallbacks(
            on_partial_reply=reply.publish,
            on_live_text=reply.show,
            on_activity=reply.show_activity,
            on_tool=partial(_note_tool, attempt),
            on_plan=reply.show_plan,
            on_usage=partial(_note_usage, attempt),
            on_phase=attempt.progress.reached,
            on_permission=partial(_decide, attempt.permissions, attempt)
            if attempt.permissions
            else None,
            on_withdrawn=attempt.permissions.retract if attempt.permissions else None,
        )
        memory = self._bridge.memory
        _, model_setting = self._bridge.model_of(attempt.turn, self._lease.state)
        sources = TurnSources(
            newcomers=attempt.steering.entries if attempt.steering else None,
            history=self.history,
            effects=self._lease.turns.side_effects,
            denials=TurnRequests(self._lease, attempt.batch.turn).unreported_denials
            if attempt.batch.has_denials
            else None,
            tasks=self._lease.progress.unfinished_tasks if attempt.batch.has_tasks else None,
            aside_notes=partial(self._aside_notes, attempt)
            if attempt.batch.has_aside_notes
            else None,
            memory=memory.read if memory and memory.may_read(attempt.turn) else None,
            is_earlier_message=self._is_earlier_message,
        )
        price = self._bridge.price
        reply.begin_call(price)
        async with asyncio.TaskGroup() as tasks:
            showing = tasks.create_task(reply.keep_showing())
            checking: asyncio.Task[None] | None = None
            noting = tasks.create_task(
                keep_noting(self._lease, attempt.batch.turn, reply, self._bridge.scrubber)
            )
            try:
                if attempt.budgets:
                    checking = tasks.create_task(attempt.budgets.keep_checking())
                result = await bridge.handle(
                    attempt.turn,
                    callbacks,
                    attempt.abort,
                    first_index=reply.next_index,
                    sources=sources,
                    used_s=time.monotonic() - attempt.began,
                    model=choice.model if choice else None,
                    model_setting=model_setting,
                    workspace=workspace,
                    begins_anew=ways.begins_anew,
                    repeats=repeats,
                    opening=self._opening(attempt, choice, ways),
                )
                reply.count_usage(Usage.of(result.run, price))
                return result
            finally:
                showing.cancel()
                noting.cancel()
                if checking:
                    checking.cancel()
                reply.show_activity(())

    def _zone(self, attempt: Attempt) -> str | None:
        return attempt.turn.entries[-1].message.timezone or self._bridge.zone

    def _opening(self, attempt: Attempt, choice: Choice | None, ways: WaysOut) -> str:
        """Return the notices before the agent's first words."""
        notice = ""
        if choice and attempt.own:
            told, zone = self._lease.state.told_fallback or "", self._zone(attempt)
            notice = switch_notice(attempt.own, choice, attempt.failure, told=told, zone=zone)
        return "\n\n".join(filter(None, (notice, ways.opening)))

    async def compact(
        self,
        turn: Turn,
        abort: asyncio.Event,
        *,
        keep: str = "",
        callbacks: BridgeCallbacks | None = None,
    ) -> Compacted:
        """Have the agent summarize the conversation of `turn`; `keep` says what is to be kept.

        Raises `ConfigError` if the session's project is no longer configured.
        """
        bridge, state = self._bridge, self._lease.state
        if bridge.channel is None or bridge.workspace is None:
            return Compacted(failure=ErrorEvent(ErrorCategory.NOT_INSTALLED, bridge.problem))
        workspace, (model, _) = bridge.workspace(state.turn_project), bridge.model_of(turn, state)
        return await bridge.channel.compact(
            turn,
            abort,
            keep=keep,
            callbacks=callbacks,
            model=model,
            workspace=workspace,
        )

    async def compact_for(self, attempt: Attempt, *, keep: str) -> Compacted:
        """Compact on behalf of a person, and show it."""
        callbacks = BridgeCallbacks(on_phase=attempt.progress.reached)
        compacting = self.compact(attempt.turn, attempt.abort, keep=keep, callbacks=callbacks)
        return await self._shown(attempt.reply, compacting)

    async def _make_room(self, attempt: Attempt) -> Compacted:
        """Compact the conversation after a refusal, and show it."""
        assert self._bridge.working is not None, "it has refused"
        return await self._shown(attempt.reply, self._bridge.working.compact_last(attempt.abort))

    async def _shown(
        self, reply: TurnReply, compacting: Coroutine[Any, Any, Compacted]
    ) -> Compacted:
        """Await a compaction, show it as a tool meanwhile, and count what it uses."""
        async with asyncio.TaskGroup() as tasks:
            showing = tasks.create_task(reply.keep_showing())
            try:
                with reply.making_room():
                    made = await compacting
            finally:
                showing.cancel()
        reply.count_usage(self.usage_of(made))
        return made

    def usage_of(self, made: Compacted) -> Usage:
        """Return what a compaction has used, which is no turn."""
        return replace(Usage.of(made.run, self._bridge.price), turns=0)

    async def _pause(self, attempt: Attempt, pause_ms: int, result: AgentDeliveryResult) -> bool:
        """Wait `pause_ms` and keep the agent; return whether the turn was stopped in that time."""
        detail = f"for {pause_ms / 1000:.1f} s: {result.error_category}"
        await attempt.progress.postponed(detail)
        PAUSES.log(log, **_about(attempt), reason=detail)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                await attempt.abort.wait()
        return attempt.abort.is_set()

    async def _postpone(self, attempt: Attempt, delay: Postponement, failed: Cool | None) -> bool:
        """Release the session until `delay.until_ms`; False if the turn must be stopped instead.

        The model that has `failed` last is left alone.
        """
        await attempt.progress.settle()
        if attempt.asides:
            attempt.asides.abandon()
        await self._bridge.keeper.park()
        waiting_after = attempt.waiting_after
        while may_be_postponed(waiting_after):
            verdict = await self._lease.turns.postpone(
                delay,
                newest=attempt.newest_known,
                usage=attempt.reply.spent,
                failed=failed,
            )
            if verdict == "postponed":
                PAUSES.log(log, **_about(attempt), reason=delay.detail)
            if verdict != "news":
                return verdict == "postponed"
            waiting_after, raw = [], await self._lease.entries_after(attempt.newest_known)
            if raw:
                attempt.newest_known = raw[-1][0].decode()
            with contextlib.suppress(NewerEntry):
                waiting_after = decode_all(raw, self._lease.session)
        return False

    async def _aside_notes(self, attempt: Attempt) -> Sequence[Mapping[str, Any]]:
        """Return the notes of asides for the agent's next prompt; the turn's end removes them."""
        notes = await Asides(self._lease).notes()
        attempt.told_beside = notes[-1] if notes else None
        decoded = [orjson.loads(note) for note in notes]
        if any("sent" in note for note in decoded):  # an agent of another session, or an operator
            await self._lease.turns.note_web()
        return decoded

    async def notice_of_loss(self, attempt: Attempt) -> str:
        """Return the notice about a lost conversation; empty if its people have read it before.

        A CLI that can't resume loses its conversation with each of its processes.
        """
        has_said = any(notice.text == CONTEXT_LOST for notice in attempt.reply.notices)
        if has_said or has_notice(await self._lease.read_record(), CONTEXT_LOST):
            return ""
        return CONTEXT_LOST

    async def _count_refusals(self) -> int:
        return count_refusals(await self._lease.read_record())

    async def _is_earlier_message(self, message_id: str) -> bool:
        return has_message(await self._lease.read_record(), message_id)

    async def history(self, seen: str | None = None) -> list[dict[str, str]]:
        """Return the digest of the conversation's record for a new agent process.

        With a turn `seen`, it is of what was said after that turn, with which the conversation of
        the agent ends; empty if no other agent has answered since.
        """
        if seen == NOTHING_SEEN:  # its first message was refused, and the notes with it
            seen = None
        if seen is not None and seen in ("", self._bridge.keeper.finished_turn):
            return []
        return digest(
            await self._lease.read_record(),
            since_ms=now_ms() - self._record.keep_ms,
            seen=seen,
            of=self._lease.session.agent,
            for_=self._lease.working_agent,
        )


def _about(attempt: Attempt) -> dict[str, str]:
    """Return the fields of an event about the attempt's turn."""
    return {"reference": attempt.turn.references, "session": attempt.turn.session.sid}


def _note_usage(attempt: Attempt, usage: AgentUsage) -> None:
    attempt.reply.show_usage(usage)
    if attempt.budgets:
        attempt.budgets.note()


def _note_tool(attempt: Attempt, call: ToolCall) -> None:
    attempt.reply.show_tool(call)
    if attempt.budgets:
        attempt.budgets.note()


async def _decide(permissions: Permissions, attempt: Attempt, event: PermissionEvent) -> Decision:
    """Ask people about a permission; the live text does not count the time as work."""
    if attempt.budgets and not await attempt.budgets.check():
        return Decision("deny", BUDGET_USED_UP)
    with (
        attempt.reply.waiting_for_people(),
        noting_wait(log, **_about(attempt), what="a person's answer"),
    ):
        return await permissions.decide(event)


def _renumbered(result: AgentDeliveryResult, index: int) -> AgentDeliveryResult:
    """Return a failure's result whose messages follow the notices that were sent after it."""
    payloads = (replace(each, index=index + n) for n, each in enumerate(result.payloads))
    return replace(result, payloads=tuple(payloads))
