"""What happens between two turns: the conversation is measured, and summarized if it is long.

A summary takes a minute or two. Made while the session is idle, nobody waits for it: whatever
arrives interrupts it, and then the conversation is as before
(docs/decisions/0079-compaction-while-idle.md).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from remoteclaw.clock import now_ms
from remoteclaw.config.model import Config
from remoteclaw.errors import ConfigError
from remoteclaw.fleet.requests.requests import Requests
from remoteclaw.fleet.sessions.state import ConversationSize
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import Turn
from remoteclaw.session.asking import AgentCaller
from remoteclaw.session.bridge import SessionBridge
from remoteclaw.session.budgets import SessionBudgets
from remoteclaw.session.record import added, lines_of_compaction

#: A conversation with a smaller limit is left to its CLI, in tokens: its summary is as quick as an
#: answer.
MIN_LIMIT = 100_000
#: After this many compactions that did not succeed, the next one follows once the conversation has
#: grown by a tenth, so that a busy chat doesn't pay for one after each message.
MAX_ATTEMPTS, GROWTH = 2, 1.1
#: The longest wait for the size of a conversation, in seconds.
MEASURE_S = 2.0
#: How often a compaction checks whether its worker is asked to end, in seconds.
CHECK_S = 1.0

log = logging.getLogger(__name__)


def is_due(context: ConversationSize | None, compact_at: float) -> bool:
    """Return whether an idle conversation is to be summarized.

    `compact_at` is the used part of the limit from which on it is; 0 for never.
    """
    if context is None or not compact_at or context.size.limit < MIN_LIMIT:
        return False
    used, limit = context.size.used, context.size.limit
    is_put_off = context.attempts >= MAX_ATTEMPTS and used < GROWTH * context.attempted_at
    return used >= compact_at * limit and not is_put_off


def after_attempt(context: ConversationSize) -> ConversationSize:
    """Return the size after a compaction that did not succeed."""
    used, at = context.size.used, context.attempted_at
    is_same = at and at <= used < GROWTH * at
    return replace(
        context,
        attempts=context.attempts + 1 if is_same else 1,
        attempted_at=at if is_same else used,
    )


class IdleTime:
    """The time between two turns of a session under one lease."""

    def __init__(
        self,
        requests: Requests,
        config: Config,
        lease: Lease,
        bridge: SessionBridge,
        caller: AgentCaller,
        budgets: SessionBudgets,
        *,
        is_leaving: Callable[[], Awaitable[bool]],
    ) -> None:
        """`is_leaving` tells whether the worker is asked to end."""
        self._requests = requests
        self._config = config
        self._lease = lease
        self._bridge = bridge
        self._caller = caller
        self._budgets = budgets
        self._is_leaving = is_leaving

    async def measure(self) -> None:
        """Store the size of the conversation, unless a message arrives before it is known."""
        measuring = asyncio.create_task(self._measure())
        quiet: asyncio.Task[bool] | None = None
        try:
            done, _ = await asyncio.wait((measuring,), timeout=0.005)  # most agents know it
            if not done:
                quiet = asyncio.create_task(self._lease.stays_quiet(MEASURE_S))
                await asyncio.wait((measuring, quiet), return_when=asyncio.FIRST_COMPLETED)
            if measuring.done():
                context = measuring.result()
                if context != self._lease.state.context:
                    await self._lease.note_context(context)
        finally:
            await _cancel(measuring, quiet)

    async def _measure(self) -> ConversationSize | None:
        measured = await self._bridge.channel.context_size() if self._bridge.channel else None
        if measured is None:
            return None
        conversation, size = measured
        before = self._lease.state.context
        if before and before.conversation == conversation and size.used >= before.attempted_at:
            return replace(before, size=size)
        return ConversationSize(size, conversation)

    async def compact(self, turn: Turn) -> None:
        """Summarize the conversation after `turn` if it is long and nothing is open.

        Ends as soon as anything needs the session, or its worker.
        """
        context = self._lease.state.context
        if context is None or not is_due(context, self._compact_at):
            return
        if await self._has_work() or await self._budgets.reached(
            await self._budgets.of(turn.entries)
        ):
            return
        abort = asyncio.Event()
        compacting = asyncio.create_task(self._caller.compact(turn, abort))
        wanted = asyncio.create_task(self._until_wanted())
        try:
            await asyncio.wait((compacting, wanted), return_when=asyncio.FIRST_COMPLETED)
            abort.set()
            made = await compacting
        except ConfigError:
            return  # the project is no longer configured, which the next turn reports
        finally:
            await _cancel(compacting, wanted)
        usage = replace(self._caller.usage_of(made), duration_ms=0) or None
        if made.done is None:
            log.info("session %s: no summary while idle", self._lease.sid[:8])
            await self._lease.note_context(after_attempt(context), usage=usage)
            return
        log.info("session %s: summarized while idle", self._lease.sid[:8])
        record = self._config.record
        lines = partial(lines_of_compaction, made.done, turn=turn.id, at_ms=now_ms())
        await self._lease.note_context(
            None,
            has_summary=True,
            usage=usage,
            record=added(record, lines) if record.keep_days else None,
        )
        await self.measure()
        after = self._lease.state.context
        if after and is_due(after, self._compact_at):  # its summary alone is too long
            at = after.size.used
            after = replace(after, attempts=MAX_ATTEMPTS, attempted_at=at)
            await self._lease.note_context(after)

    @property
    def _compact_at(self) -> float:
        if self._bridge.channel is None or self._lease.session.task:
            return 0.0  # a task is rarely continued
        chosen = self._config.agent(self._lease.session.agent)[1].compact_at
        default = self._bridge.channel.compact_at
        return chosen if chosen is not None and default else default

    async def _has_work(self) -> bool:
        """Whether anything is open: a request, or a task; or the agent has ended."""
        return bool(
            self._bridge.keeper.ready is None
            or await self._requests.of_session(self._lease.sid)
            or await self._lease.progress.unfinished_tasks()
        )

    async def _until_wanted(self) -> None:
        """Wait for an entry of the session, any other session's hint, or the worker's end."""
        while await self._lease.wait(CHECK_S, lane="background") == "nothing":
            if await self._is_leaving():
                return


async def _cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks, and wait for their end."""
    running = [task for task in tasks if task]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
