"""The drain: takes a session's lease, answers its entries turn by turn, and releases the lease.

A message passes through `Drain.run()`, `Drain._serve()` and `TurnRunner.run()`.
"""

import asyncio
import logging
from collections.abc import Callable

from remoteclaw.bridge import Hooks
from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import LeaseLost, RedisUnavailable, first_of
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.turns.inbound import NewerEntry
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Finished
from remoteclaw.host.process import identity
from remoteclaw.messages import Entry
from remoteclaw.session.agent import AgentKeeper
from remoteclaw.session.bridge import open_bridge
from remoteclaw.session.idle import IdleTime
from remoteclaw.session.queue import (
    DrainStep,
    after_turn,
    gathering_pause_s,
    settling_pause_s,
    typing_pause_s,
)
from remoteclaw.session.terminal_end import end_left_terminal
from remoteclaw.session.terminal_opening import TerminalOpening
from remoteclaw.session.turn import TurnRunner
from remoteclaw.session.waiting import read_waiting

#: The delay of the next hint for a session whose entries need a newer worker, in seconds.
NEWER_WORKER_RETRY_S = 30.0
#: The maximum wait for a person who is still typing, in multiples of `debounce_ms`.
MAX_DEBOUNCES = 10

log = logging.getLogger(__name__)


class Drain:
    """Serves one session at a time on this host."""

    def __init__(
        self,
        fleet: Fleet,
        config: Config,
        home: Home,
        hooks: Hooks,
        *,
        worker: str = "",
        label: str = "",
        config_has_changed: Callable[[], bool] = lambda: False,
    ) -> None:
        """`worker` is RQ's name of this work-horse's worker; empty in any other process. `label` is
        that of the worker.

        Once `config_has_changed()` returns True, the next turn is left to another drain.
        """
        self._fleet = fleet
        self._config = config
        self._home = home
        self._hooks = hooks
        self._worker = worker
        self._label = label
        self._config_has_changed = config_has_changed

    async def run(self, sid: str) -> None:
        """Serve a session until it is idle, or until its share is used and other sessions wait.

        Returns at once if the session has no work or another worker holds its lease.
        """
        host = self._home.host_id
        worker = f"{host} {identity()}"
        lease = await self._fleet.leases.acquire(sid, worker=worker, host=host, label=self._label)
        if lease is None or await self._leave_to_pool(lease):
            return
        lease.is_leaving = self._is_leaving
        try:
            config = await self._fleet.chats.config_of(self._config, lease.session)
            bridge = open_bridge(self._fleet.blobs, lease, config, self._home, self._hooks)
            try:
                left_terminal = await end_left_terminal(lease)
                terminals = self._fleet.terminals
                opening = TerminalOpening(terminals, lease, bridge, config, self._home)
                runner = TurnRunner(lease, bridge, config, terminals, opening, left_terminal)
                idle = IdleTime(
                    self._fleet.requests,
                    config,
                    lease,
                    bridge,
                    runner.agent_caller,
                    runner.budgets,
                    is_leaving=self._is_leaving,
                )
                async with asyncio.TaskGroup() as tasks:
                    listening = tasks.create_task(lease.listen(runner.on_lease_renewed))
                    try:
                        await self._serve(lease, bridge.keeper, runner, idle)
                    finally:
                        listening.cancel()
            finally:
                await bridge.aclose()
        except* (LeaseLost, RedisUnavailable) as lost:
            # The session's next owner continues from the state in Redis.
            log.warning("session %s: left to its next owner: %s", sid[:8], first_of(lost))

    async def _leave_to_pool(self, lease: Lease) -> bool:
        """Release a session whose agent runs on workers with another label; return whether it is.

        Its hint was sent before the label was set, or from a host that does not know it.
        """
        agent = self._config.agents.get(lease.session.agent)
        if agent is None or agent.runs_on in (None, self._label):
            return False
        await self._fleet.pools.put(lease.session.agent, agent.runs_on)
        await lease.release()
        return True

    async def _serve(
        self, lease: Lease, keeper: AgentKeeper, runner: TurnRunner, idle: IdleTime
    ) -> None:
        """Run turn after turn until no entry waits, or until the session yields to others."""
        turns, began_at = 0, boottime()
        last: Finished | None = None
        while True:
            try:
                waiting = await read_waiting(lease)
                if not waiting:
                    await keeper.park()
                    if await lease.close():
                        return None
                    continue  # a message arrived before the lease was closed
                if last:
                    waiting = await _wait_while_typing(lease, runner, waiting, now_ms=last.at_ms)
                elif turns or not (lease.state.turn or lease.state.kept_size):
                    # An unfinished turn is begun again at once.
                    waiting = await self._gather(lease, runner, waiting)
                waiting = await self._wait_for_results(lease, waiting)
                if not waiting:
                    continue  # their senders have withdrawn them
                if turns and self._config_has_changed():  # the next drain reads the new one
                    return await _release(lease, keeper)
                last = await runner.run(waiting)
            except NewerEntry as newer:
                log.warning("session %s waits for a newer worker: %s", lease.sid[:8], newer)
                return await _release(lease, keeper, delay_s=NEWER_WORKER_RETRY_S)
            if last is None:
                return None  # the turn is postponed, or open in a terminal
            turns += 1
            if runner.last_turn and not last.left:
                await idle.measure()
            is_leaving, seconds = await self._is_leaving(), boottime() - began_at
            match after_turn(last, turns=turns, seconds=seconds, is_leaving=is_leaving):
                case DrainStep.RELEASE:
                    return await _release(lease, keeper)
                case DrainStep.LINGER:
                    if await self._linger(lease) and runner.last_turn:
                        await idle.compact(runner.last_turn)
                    last = None  # the next message is answered at once

    async def _gather(self, lease: Lease, runner: TurnRunner, waiting: list[Entry]) -> list[Entry]:
        """Wait for the end of a burst of messages, while the agent starts.

        Return the entries that wait after that. The batch is not recorded yet, so a crash here
        loses nothing.
        """
        if not lease.session.is_shared:
            return waiting
        until = boottime() + runner.queue.gather_most_ms / 1000
        pause_s = await self._gathering_pause_s(runner, waiting)
        if pause_s:
            await runner.warm_up(waiting)
        while pause_s and boottime() < until and not await lease.stays_quiet(pause_s):
            waiting = await read_waiting(lease)
            pause_s = await self._gathering_pause_s(runner, waiting)
        return waiting

    async def _gathering_pause_s(self, runner: TurnRunner, waiting: list[Entry]) -> float:
        now_ms = await self._fleet.scripts.now_ms()
        return gathering_pause_s(waiting, runner.queue, now_ms=now_ms) if waiting else 0.0

    async def _wait_for_results(self, lease: Lease, waiting: list[Entry]) -> list[Entry]:
        """Wait for results of tasks that end at about the same time; return the waiting entries."""
        while waiting and waiting[0].origin == "result":
            pause_s = settling_pause_s(waiting, now_ms=await self._fleet.scripts.now_ms())
            if not pause_s or await lease.stays_quiet(pause_s):
                break
            waiting = await read_waiting(lease)
        return waiting

    async def _linger(self, lease: Lease) -> bool:
        """Wait for the next message, unless other sessions wait or the worker is asked to end.

        Return whether nothing has happened.
        """
        seconds = self._config.fleet.linger_s
        return not seconds or await lease.wait(seconds) == "nothing"

    async def _is_leaving(self) -> bool:
        return await self._fleet.workers.is_leaving(self._worker)


async def _release(lease: Lease, keeper: AgentKeeper, *, delay_s: float = 0.0) -> None:
    await keeper.park()
    await lease.release(delay_s=delay_s)


async def _wait_while_typing(
    lease: Lease, runner: TurnRunner, waiting: list[Entry], *, now_ms: int
) -> list[Entry]:
    """Wait until the person has stopped typing; return the entries that wait after that."""
    queue = runner.queue
    until = boottime() + MAX_DEBOUNCES * queue.debounce_ms / 1000
    while waiting and boottime() < until:
        pause_s = typing_pause_s(waiting, queue, now_ms=now_ms)
        if not pause_s or await lease.stays_quiet(pause_s):
            break
        waiting = await read_waiting(lease)
        now_ms = waiting[-1].at_ms if waiting else now_ms  # the newest entry has just arrived
    return waiting
