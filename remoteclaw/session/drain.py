"""The drain: takes a session's lease, runs its waiting turns one at a time, gives it back.

The life of a message in a worker, top to bottom: `Drain.run()`, `Drain._serve()`,
`TurnRunner.run()`.
"""

import asyncio
import logging
from collections.abc import Callable

from remoteclaw.bridge import Hooks
from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import LeaseLost, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.inbound import NewerEntry
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.turn import Finished
from remoteclaw.host.process import identity
from remoteclaw.messages import Entry
from remoteclaw.session.agent import AgentKeeper
from remoteclaw.session.bridge import open_bridge
from remoteclaw.session.inbox import read_inbox
from remoteclaw.session.queue import Next, after_turn, entries_needed, typing_pause_s
from remoteclaw.session.turn import TurnRunner

__all__ = ["Drain"]

#: How often a drain that waits for the next message asks whether its worker is leaving, in seconds.
LINGER_STEP_S = 1.0
#: After so many seconds, entries that need a newer worker are offered again.
NEWER_S = 30.0
#: After so many pauses for typing, what waits is answered although the person goes on typing.
MOST_PAUSES = 10

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
        shows_live = not self._hooks.has("message_sending")
        runner = TurnRunner(lease, bridge, self._config, shows_live=shows_live)
        try:
            try:
                async with asyncio.TaskGroup() as tasks:
                    keep = tasks.create_task(lease.keep(runner.hear))
                    watch = tasks.create_task(lease.watch(runner.hear))
                    try:
                        await self._serve(lease, bridge.keeper, runner)
                    finally:
                        keep.cancel()
                        watch.cancel()
            finally:
                await bridge.aclose()
        except* (LeaseLost, RedisUnavailable) as lost:
            # The next owner of the session goes on from what is recorded.
            log.warning("session %s: given up: %s", sid[:8], _first(lost))

    async def _serve(self, lease: Lease, keeper: AgentKeeper, runner: TurnRunner) -> None:
        """Run turn after turn until nothing waits, or others are to go first."""
        count, since = 0, boottime()
        before: Finished | None = None
        while True:
            try:
                waiting = await read_inbox(lease, most=entries_needed(runner.queue))
                if not waiting:
                    await keeper.park()
                    if await lease.close():
                        return None
                    continue  # a message came meanwhile
                if before:
                    waiting = await _when_quiet(lease, runner, waiting, now_ms=before.at_ms)
                if count and self._is_stale():  # the next drain reads the configuration
                    return await _release(lease, keeper)
                before = await runner.run(waiting)
            except NewerEntry as newer:
                log.warning("session %s waits for a newer worker: %s", lease.sid[:8], newer)
                return await _release(lease, keeper, delay_s=NEWER_S)
            if before is None:
                return None  # the turn is postponed, and the lease given back
            count += 1
            is_leaving, seconds = await self._is_leaving(), boottime() - since
            match after_turn(before, turns=count, seconds=seconds, is_leaving=is_leaving):
                case Next.RELEASE:
                    return await _release(lease, keeper)
                case Next.LINGER:
                    await self._linger(lease)
                    before = None  # what comes while it lingers starts at once

    async def _linger(self, lease: Lease) -> None:
        """Wait for the next message, unless others have work or the worker is asked to end."""
        until = boottime() + self._config.fleet.linger_s
        while (left_s := until - boottime()) > 0:
            came = await lease.wait(min(left_s, LINGER_STEP_S))
            if came != "nothing" or await self._is_leaving():
                return

    async def _is_leaving(self) -> bool:
        return await self._fleet.workers.is_leaving(self._worker)


async def _release(lease: Lease, keeper: AgentKeeper, *, delay_s: float = 0.0) -> None:
    """Leave what waits to another drain."""
    await keeper.park()
    await lease.release(delay_s=delay_s)


async def _when_quiet(
    lease: Lease, runner: TurnRunner, waiting: list[Entry], *, now_ms: int
) -> list[Entry]:
    """Wait until the person has stopped typing; return what waits then."""
    queue = runner.queue
    until = boottime() + MOST_PAUSES * queue.debounce_ms / 1000
    while waiting and boottime() < until:
        pause_s = typing_pause_s(waiting, queue, now_ms=now_ms, command_of=runner.command_of)
        if not pause_s or await lease.quiet(pause_s):
            break
        waiting = await read_inbox(lease, most=entries_needed(queue))
        now_ms = 0  # the newest has just come
    return waiting


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    """Return the innermost first exception of nested groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
