"""The sweep: wakes sessions without a worker, fires due cron jobs, and cleans up this host."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from remoteclaw.config.home import Home
from remoteclaw.config.model import Budget, Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.cron.scheduler import Scheduler
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.pools import labels_of
from remoteclaw.holder.runs import end_warm_agents, has_terminals, has_warm_agents, remove_dead_runs
from remoteclaw.host.process import end_strays, is_alive, is_running
from remoteclaw.tty.renewal import LeaseRenewer, end_unknown_terminals, remove_old_files

#: The interval of the host's sweep, in seconds.
SWEEP_HOST_S = 2.0
#: How often these sweeps look whether the host is drained.
DRAINED_EVERY = 5
#: The directory of a dead run is removed after this time, in seconds.
DEAD_RUN_S = 60

log = logging.getLogger(__name__)


def sweeping(fleet: Fleet, home: Home, config: Config) -> list[Coroutine[Any, Any, None]]:
    """Return the coroutines that sweep until they are cancelled.

    Any number of processes may run them. `config` is the configuration at the start.
    """
    scheduler = Scheduler(fleet.scripts, fleet.waker, fleet.budgets, CurrentConfig(home, config))
    duties = (
        fleet.sweeper.run,
        partial(scheduler.run, fleet.sweeper.has_cron_work),
        partial(_sweep_host, fleet, home, config),
    )
    return [_unless_paused(fleet, duty) for duty in duties]


async def _unless_paused(fleet: Fleet, duty: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await fleet.restores.wait_while_paused("the sweeper")
    await duty()


async def _sweep_host(fleet: Fleet, home: Home, config: Config) -> None:
    """Release sessions of dead workers, renew terminals, and end processes of killed holders."""
    current = CurrentConfig(home, config)
    renewer = LeaseRenewer(fleet.terminals, home.host_id)
    budgets: Sequence[Budget] | None = None
    labels: Mapping[str, str] | None = None
    for sweep in itertools.count():
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            await fleet.sweeper.release_dead(home.host_id, is_alive, end_left=end_strays)
            if await asyncio.to_thread(has_terminals, home.runs):
                await renewer.renew_all(hold_s=current().terminals.hold_s)
            await end_unknown_terminals(fleet.terminals, home.runs)
            await remove_old_files(home.terminals, fleet.terminals.is_open)
            if await fleet.workers.clear_dead(is_alive):
                await fleet.processes.forget_dead(home.host_id, is_running)
            if sweep % DRAINED_EVERY == 0:
                await _end_agents_of_drained(fleet, home)
            if budgets != (now := current().budgets):
                await fleet.budgets.wake_all()
                budgets = now
            if labels != (now_labels := labels_of(current())):
                await fleet.pools.announce(current())
                labels = now_labels
        await asyncio.sleep(SWEEP_HOST_S)
        try:
            if count := await asyncio.to_thread(end_strays):
                log.warning("%d processes were ended whose holder had been killed", count)
            await asyncio.to_thread(remove_dead_runs, home.runs, older_than_s=DEAD_RUN_S)
        except OSError as error:  # a vanished file or a full process table: the next sweep retries
            log.warning("the host can't be swept for now: %s", error)


async def _end_agents_of_drained(fleet: Fleet, home: Home) -> None:
    """End the warm agents of this host if it is drained: other hosts serve their sessions now."""
    has_warm = await asyncio.to_thread(has_warm_agents, home.runs)
    if has_warm and home.host_id in await fleet.drains.hosts():
        await asyncio.to_thread(end_warm_agents, home.runs)
