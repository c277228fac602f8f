"""Asking: a turn's question to the agent, repeated where the agent could not work."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from remoteclaw.clock import now_ms
from remoteclaw.config.model import RecordConfig
from remoteclaw.errors import ConfigError, ErrorCategory
from remoteclaw.fleet.asides import Asides
from remoteclaw.fleet.inbound import NewerEntry
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.turn import Postponement
from remoteclaw.fleet.turn_asks import TurnAsks
from remoteclaw.messages import AgentDeliveryResult, Turn
from remoteclaw.protocols import BridgeCallbacks, TurnSources
from remoteclaw.session.attempt import Attempt
from remoteclaw.session.bridge import SessionBridge
from remoteclaw.session.inbox import decode_all
from remoteclaw.session.notices import CONTEXT_LOST, SECOND_TRY, failed_result, with_notice
from remoteclaw.session.queue import may_be_postponed
from remoteclaw.session.record import digest
from remoteclaw.session.retry import REPEATED, SHORT_MS, again_at_ms, postponement
from remoteclaw.session.task_notes import keep_noting


class Asking:
    """Asks the agent of one session under one lease."""

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
        """Begin to start the agent of a turn; what is wrong with it, the turn itself tells."""
        bridge, state = self._bridge, self._lease.state
        if bridge.channel and bridge.workspace:
            with contextlib.suppress(ConfigError):
                workspace = bridge.workspace(state.project)
                await bridge.channel.warm_up(turn, model=state.model, workspace=workspace)

    async def ask(self, attempt: Attempt) -> AgentDeliveryResult | None:
        """Ask until there is an answer, or a failure to tell; None if the turn is postponed.

        It is asked again later only if the agent could neither say nor do anything.
        """
        tries = attempt.batch.tries
        while True:
            result, now = await self._ask_once(attempt), now_ms()
            category = result.error_category
            tries += category is not ErrorCategory.USAGE_LIMIT  # that one lasts as long as it lasts
            at_ms = again_at_ms(category, tries=tries, retry_at_ms=result.retry_at_ms, now_ms=now)
            if at_ms is None or not attempt.progress.is_silent:
                return result
            if at_ms - now <= SHORT_MS:
                is_stopped = await self._pause(attempt, at_ms - now, result)
            else:
                zone = attempt.turn.entries[-1].message.timezone or self._bridge.zone
                told = attempt.batch.told
                what = postponement(
                    result, attempt.reply, tries=tries, told=told, at_ms=at_ms, zone=zone
                )
                if await self._postpone(attempt, what):
                    return None
                is_stopped = True
            if is_stopped:
                index = attempt.reply.next_index
                return failed_result(attempt.turn, ErrorCategory.ABORTED, index=index)

    async def _ask_once(self, attempt: Attempt) -> AgentDeliveryResult:
        """Ask; where the failure was the agent process' own, ask another one at once."""
        repeated: set[ErrorCategory | None] = set()
        while True:
            conversations = set(self._lease.session_map)
            result = await self._handle(attempt)
            has_lost = bool(conversations - set(self._lease.session_map))
            category, progress = result.error_category, attempt.progress
            may_repeat = category in REPEATED and category not in repeated
            is_repeated = may_repeat and progress.is_silent
            if not is_repeated and has_lost:
                return with_notice(result, CONTEXT_LOST, index=attempt.reply.next_index)
            if not is_repeated:
                return result
            repeated.add(category)
            if category is ErrorCategory.DIED and progress.was_asked:
                await attempt.reply.say(SECOND_TRY)  # what it did unseen is done a second time
            if has_lost:
                await attempt.reply.say(CONTEXT_LOST)

    async def _handle(self, attempt: Attempt) -> AgentDeliveryResult:
        """Take the turn through the bridge once, with live text beside it."""
        reply, bridge = attempt.reply, self._bridge.channel
        attempt.progress.restart()
        why, workspace = self._bridge.problem, None
        try:
            if self._bridge.workspace:
                workspace = self._bridge.workspace(self._lease.state.turn_project)
        except ConfigError as problem:
            why = str(problem)
        if bridge is None or workspace is None:
            category = ErrorCategory.NOT_INSTALLED
            return failed_result(attempt.turn, category, why, reply.next_index)
        callbacks = BridgeCallbacks(
            on_partial_reply=reply.publish,
            on_live_text=reply.show,
            on_activity=reply.show_activity,
            on_tool=reply.show_tool,
            on_plan=reply.show_plan,
            on_usage=reply.show_usage,
            on_phase=attempt.progress.reached,
            on_permission=attempt.permissions.decide if attempt.permissions else None,
            on_withdrawn=attempt.permissions.retract if attempt.permissions else None,
        )
        sources = TurnSources(
            newcomers=attempt.steering.entries if attempt.steering else None,
            history=self.history,
            effects=self._lease.turns.side_effects,
            denials=TurnAsks(self._lease, attempt.batch.turn).unheard,
            working=self._lease.work.below if attempt.batch.has_below else None,
            beside=partial(self._beside, attempt) if attempt.batch.has_beside else None,
        )
        async with asyncio.TaskGroup() as tasks:
            showing = tasks.create_task(reply.keep_showing())
            noting = tasks.create_task(
                keep_noting(self._lease, attempt.batch.turn, reply, self._bridge.scrubber)
            )
            try:
                return await bridge.handle(
                    attempt.turn,
                    callbacks,
                    attempt.abort,
                    first_index=reply.next_index,
                    sources=sources,
                    used_s=time.monotonic() - attempt.began,
                    model=self._lease.state.model,
                    workspace=workspace,
                )
            finally:
                showing.cancel()
                noting.cancel()
                reply.show_activity(())

    async def _pause(self, attempt: Attempt, pause_ms: int, result: AgentDeliveryResult) -> bool:
        """Wait a moment with the agent at hand; return whether the turn is stopped meanwhile."""
        detail = f"for {pause_ms / 1000:.1f} s: {result.error_category}"
        await attempt.progress.postponed(detail)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                await attempt.abort.wait()
        return attempt.abort.is_set()

    async def _postpone(self, attempt: Attempt, what: Postponement) -> bool:
        """Give the session back until a time; False if the turn is to be stopped instead."""
        await attempt.progress.settle()
        if attempt.beside:
            attempt.beside.abandon()
        await self._bridge.keeper.park()
        behind = attempt.behind
        while may_be_postponed(behind):
            verdict = await self._lease.turns.postpone(what, newest=attempt.known)
            if verdict != "news":
                return verdict == "postponed"
            behind, raw = [], await self._lease.entries_after(attempt.known)
            if raw:
                attempt.known = raw[-1][0].decode()
            with contextlib.suppress(NewerEntry):
                behind = decode_all(raw, self._lease.session)
        return False

    async def _beside(self, attempt: Attempt) -> Sequence[Mapping[str, Any]]:
        """Return what was said beside the turns before: once its turn ends, it has been told."""
        told = await Asides(self._lease).beside()
        attempt.told_beside = told[-1] if told else None
        return [orjson.loads(line) for line in told]

    async def history(self) -> list[dict[str, str]]:
        """Return what a new agent process has to know of the conversation."""
        since_ms = now_ms() - self._record.keep_ms
        return digest(await self._lease.recorded(), since_ms=since_ms)
