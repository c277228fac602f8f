"""One session's turns: takes the lease, runs what waits, one turn at a time, and gives it back.

This is the life of a message in a worker, top to bottom:
`Drain.run()`, `_SessionDrain.run()`, `_serve()`, `_turn()`, `_attempt()`, `_ask()`.
"""

import asyncio
import logging
import os
from typing import Protocol

from remoteclaw.answer import Answer
from remoteclaw.bridge import ChannelBridge, Hooks
from remoteclaw.clock import boottime
from remoteclaw.config import Config, Home
from remoteclaw.conversation.batching import next_batch
from remoteclaw.errors import (
    ErrorCategory,
    LeaseLost,
    RedisUnavailable,
    RemoteClawError,
    sentence,
)
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.inbound import NewerEntry, decode_entry
from remoteclaw.fleet.lease import Batch, Lease
from remoteclaw.fleet.sessions import LeasedSessionMap
from remoteclaw.keeper import AgentKeeper
from remoteclaw.messages import (
    AgentDeliveryResult,
    AgentRunResult,
    ChannelMessage,
    Entry,
    McpSideEffects,
    ReplyPayload,
    SessionKey,
    Turn,
)
from remoteclaw.process import identity
from remoteclaw.protocols import BridgeCallbacks
from remoteclaw.runtimes import create_runtime, detect_runtime

__all__ = ["Drain"]

#: How often a batch is begun at most: then its sender is told instead.
MOST_ATTEMPTS = 3
#: After so many turns, or so many seconds, a session lets others go first if any wait.
MOST_TURNS, MOST_SECONDS = 8, 60.0
#: After so many seconds it is tried again whether a worker is new enough for a message.
NEWER_S = 30.0
#: Characters per message, where the channel takes more or less than the default: a terminal has no
#: limit, but memory has.
CHUNK_LIMITS = {"console": 1_000_000}
DEFAULT_CHUNK_LIMIT = 4000
#: How much of a CLI's own words an outcome keeps for operators, in characters.
DETAIL = 500

SECOND_TRY = "(I was interrupted while I worked on this. Here is my second try.)"
CONTEXT_LOST = "(I no longer have our earlier conversation, so I start without it.)"
NOTHING_SAID = "(The agent finished without saying anything.)"

log = logging.getLogger(__name__)


class Drain:
    """Runs sessions on this host; one object serves any number of them, one after another."""

    def __init__(self, fleet: Fleet, config: Config, home: Home, hooks: Hooks) -> None:
        self._fleet = fleet
        self._config = config
        self._home = home
        self._hooks = hooks

    async def run(self, sid: str) -> None:
        """Serve a session until it is idle, or until others have waited long enough.

        Without work, or while another worker has the session, it returns at once.
        """
        worker = f"{self._home.host_id} {identity()}"
        lease = await self._fleet.leases.acquire(sid, worker=worker)
        if lease is None:
            return
        try:
            bridge, keeper = _bridge(lease, self._config, self._home, self._hooks)
        except RemoteClawError as problem:
            log.error("session %s: %s", sid[:8], problem)
            bridge, keeper = _Unusable(problem), _keeper(lease, self._home, warm_s=0)
        try:
            await _SessionDrain(lease, bridge, keeper, linger_s=self._config.fleet.linger_s).run()
        except* (LeaseLost, RedisUnavailable) as lost:
            # Whoever takes the session next goes on from what is recorded.
            log.warning("session %s: given up: %s", sid[:8], _first(lost))


class _SessionDrain:
    """One session under one lease."""

    def __init__(
        self, lease: Lease, bridge: "_Handler", keeper: AgentKeeper, *, linger_s: float
    ) -> None:
        self._lease = lease
        self._bridge = bridge
        self._keeper = keeper
        self._linger_s = linger_s
        self._running: Turn | None = None
        self._abort = asyncio.Event()
        self._marks: set[asyncio.Task[None]] = set()
        self._reached_phases: set[str] = set()
        self._recorded: str | None = None
        """The agent that was recorded as asked when the turn began."""

    async def run(self) -> None:
        """Serve the session while the lease is kept."""
        try:
            async with asyncio.TaskGroup() as tasks:
                keep = tasks.create_task(self._lease.keep(self._renewed))
                watch = tasks.create_task(self._lease.watch_stop(self._stopped))
                try:
                    await self._serve()
                finally:
                    keep.cancel()
                    watch.cancel()
        finally:
            await self._keeper.abandon()

    async def _serve(self) -> None:
        turns, since = 0, boottime()
        while True:
            entries = await self._lease.entries()
            if not entries:
                await self._keeper.park()
                if await self._lease.close():
                    return
                continue  # a message came meanwhile
            try:
                decode_entry(*entries[0])
            except NewerEntry as newer:
                log.warning("session %s waits for a newer worker: %s", self._lease.sid[:8], newer)
                await self._keeper.park()
                await self._lease.release(delay_s=NEWER_S)
                return
            except ValueError:
                pass  # its turn says so
            left, waiting = await self._turn([entry_id.decode() for entry_id, _ in entries])
            turns += 1
            if left and waiting and (turns >= MOST_TURNS or boottime() > since + MOST_SECONDS):
                await self._keeper.park()
                await self._lease.release()
                return
            if left == 0 and not waiting:
                await self._lease.wait(self._linger_s)

    # -- one turn ------------------------------------------------------------------------------

    async def _turn(self, waiting: list[str]) -> tuple[int, int]:
        """Run the next batch to its outcome; return how many entries and hints are left."""
        ready = self._keeper.ready
        batch = await self._lease.begin(
            next_batch(waiting),
            phase="spawned" if ready else "accepted",
            detail=ready or "",
        )
        self._recorded = ready
        if batch is None:
            return len(waiting), 0
        entries, problem = self._decoded(batch)
        turn = Turn(
            session=self._lease.session,
            entries=entries,
            attempt=batch.attempt,
            was_interrupted=batch.before not in ("", "accepted"),
        )
        self._abort.clear()
        self._running = turn
        try:
            answer = Answer(self._lease, turn)
            if problem:
                failure = _failure(turn, ErrorCategory.UNREADABLE, problem)
                return await self._finish(answer, failure)
            return await self._attempt(batch, answer)
        finally:
            self._running = None

    def _decoded(self, batch: Batch) -> tuple[tuple[Entry, ...], str]:
        """Return the entries of a batch, and what is wrong with them if one can't be read."""
        entries, problem = [], ""
        for entry_id, fields in batch.entries:
            try:
                entries.append(decode_entry(entry_id, fields))
            except ValueError as error:
                problem = str(error)
                log.error("entry %s of %s: %s", entry_id.decode(), self._lease.sid[:8], problem)
                entries.append(_in_place_of(entry_id.decode(), self._lease.session))
        return tuple(entries), problem

    async def _attempt(self, batch: Batch, answer: Answer) -> tuple[int, int]:
        if batch.is_stopped:
            return await self._finish(answer, _failure(answer.turn, ErrorCategory.ABORTED))
        if batch.failures >= MOST_ATTEMPTS:
            return await self._finish(answer, _failure(answer.turn, ErrorCategory.INTERRUPTED))
        if answer.turn.was_interrupted:
            await answer.say(SECOND_TRY)
        if self._lease.has_forgotten:
            await answer.say(CONTEXT_LOST)
        result = await self._ask(answer)
        again = {ErrorCategory.SESSION_EXPIRED, ErrorCategory.DIED}
        while result.error_category in again and not self._reached_phases & {"output", "tool"}:
            # The process said and did nothing, so asking another one repeats nothing: it had been
            # warm and was ending already, or no longer knew the conversation.
            again.discard(result.error_category)
            if (
                result.error_category is ErrorCategory.SESSION_EXPIRED
                and self._keeper.finished_turn
            ):
                await answer.say(CONTEXT_LOST)
            result = await self._ask(answer)
        return await self._finish(answer, result)

    async def _ask(self, answer: Answer) -> AgentDeliveryResult:
        """Take the turn through the bridge, with live text beside it."""
        self._reached_phases.clear()
        callbacks = BridgeCallbacks(
            on_partial_reply=answer.publish, on_live_text=answer.show, on_phase=self._reached
        )
        async with asyncio.TaskGroup() as tasks:
            showing = tasks.create_task(answer.keep_showing())
            try:
                return await self._bridge.handle(
                    answer.turn, callbacks, self._abort, first_index=answer.next_index
                )
            finally:
                showing.cancel()

    async def _finish(self, answer: Answer, result: AgentDeliveryResult) -> tuple[int, int]:
        status, error = "done", None
        if result.error_category is not None:
            status = "stopped" if result.error_category is ErrorCategory.ABORTED else "failed"
            detail = (result.error or "")[:DETAIL]
            error = {"category": str(result.error_category), "detail": detail}
        # What is still being recorded was sent before the outcome; nobody has to wait for it.
        marks, self._marks = self._marks, set()
        nothing = (ReplyPayload(NOTHING_SAID, index=answer.next_index),)
        left = await answer.finish(
            status,
            result.payloads or nothing,
            error=error,
            agent_process=self._keeper.record(),
        )
        await asyncio.gather(*marks)
        self._keeper.finished(answer.turn.id)
        return left

    # -- phases, stops and renewals ------------------------------------------------------------

    async def _reached(self, phase: str, detail: str) -> None:
        """Record a phase: before the agent is asked, later ones beside its answer."""
        self._reached_phases.add(phase)
        if phase != "spawned":
            self._marks.add(asyncio.create_task(self._lease.mark(phase, detail)))
        elif detail != self._recorded:
            await self._lease.mark(phase, detail, agent_process=self._keeper.record())

    def _renewed(self, stop_mark: str) -> None:
        self._keeper.beat()
        if stop_mark:
            self._stopped(stop_mark)

    def _stopped(self, mark: str) -> None:
        """Stop the running turn if the mark covers it."""
        if self._running and _at_most(self._running.entries[-1].id, mark):
            self._abort.set()


class _Handler(Protocol):
    """What a drain needs of a bridge."""

    async def handle(
        self,
        message: Turn,
        callbacks: BridgeCallbacks,
        abort: asyncio.Event,
        *,
        first_index: int,
    ) -> AgentDeliveryResult:
        """Run one turn to its end."""


class _Unusable:
    """In place of a bridge, for a session whose agent is not, or wrongly, configured."""

    def __init__(self, problem: RemoteClawError) -> None:
        self._problem = problem

    async def handle(
        self,
        message: Turn,
        callbacks: BridgeCallbacks,
        abort: asyncio.Event,
        *,
        first_index: int,
    ) -> AgentDeliveryResult:
        """Tell the person that this agent can't be started."""
        return _failure(message, ErrorCategory.NOT_INSTALLED, str(self._problem), first_index)


def _bridge(lease: Lease, config: Config, home: Home, hooks: Hooks) -> tuple[_Handler, AgentKeeper]:
    """Return the bridge to a session's agent; raises RemoteClawError if it can't be had."""
    agent, settings = config.agent(lease.session.agent)
    runtime = create_runtime(settings.runtime or detect_runtime()[0])
    keeper = _keeper(lease, home, warm_s=settings.warm_s)
    bridge = ChannelBridge(
        runtime=runtime,
        agents=keeper,
        session_map=LeasedSessionMap(lease),
        command=settings.command or runtime.command,
        workspace_dir=str(home.workspace(agent, settings)),
        env={**runtime.environment(os.environ), **settings.env},
        model=settings.model,
        permissions=settings.permissions,
        inherit_mcp=settings.inherit_mcp,
        mcp_servers=settings.mcp_servers,
        chunk_limit=CHUNK_LIMITS.get(lease.session.provider, DEFAULT_CHUNK_LIMIT),
        hooks=hooks,
    )
    return bridge, keeper


def _keeper(lease: Lease, home: Home, *, warm_s: float) -> AgentKeeper:
    return AgentKeeper(
        home,
        epoch=int(lease.epoch),
        kill_at=lambda: lease.kill,
        warm_s=warm_s,
        parked=lease.parked_agent,
        finished_turn=lease.state.get("finished"),
    )


def _failure(
    turn: Turn, category: ErrorCategory, detail: str = "", index: int = 0
) -> AgentDeliveryResult:
    """Return the result of a turn that was not given to an agent."""
    words = sentence(category, agent=turn.session.agent, reference=turn.reference)
    is_error = category is not ErrorCategory.ABORTED
    return AgentDeliveryResult(
        payloads=(ReplyPayload(words, index=index, is_error=is_error),),
        run=AgentRunResult(error_subtype=str(category)),
        mcp=McpSideEffects(),
        error=detail,
        error_category=category,
    )


def _in_place_of(entry_id: str, session: SessionKey) -> Entry:
    """Return an entry that says where a message that can't be read has to be answered."""
    message = ChannelMessage(
        id=entry_id,
        text="(unreadable)",
        from_=session.user,
        channel_id=session.channel_id,
        provider=session.provider,
        account=session.account,
        thread_id=session.thread,
        timestamp=int(entry_id.partition("-")[0]),
    )
    return Entry(id=entry_id, message=message)


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    """Return the innermost first exception of nested groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _at_most(entry_id: str, mark: str) -> bool:
    """Whether a stream id is not after another."""
    first, second = entry_id.split("-"), mark.split("-")
    return (int(first[0]), int(first[1])) <= (int(second[0]), int(second[1]))
