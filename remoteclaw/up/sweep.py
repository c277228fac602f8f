"""The sweep: sessions without a worker, cron jobs that are due, and what was left on this host."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.cron.scheduler import Scheduler
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.holder.runs import remove_dead_runs
from remoteclaw.host.process import end_strays, is_alive
from remoteclaw.tty.renewal import Holding, end_unheld, forget_old

#: Interval of the sweep, in seconds.
SWEEP_HOST_S = 2.0
#: From which age on the directory of a dead run is removed, in seconds.
DEAD_RUN_S = 60

log = logging.getLogger(__name__)


def sweeping(fleet: Fleet, home: Home, config: Config) -> list[Coroutine[Any, Any, None]]:
    """Return what sweeps until it is cancelled; any number may run. `config` is as at the start."""
    scheduler = Scheduler(fleet.scripts, fleet.waker)
    return [fleet.sweeper.run(), scheduler.run(), _sweep_host(fleet, home, config)]


async def _sweep_host(fleet: Fleet, home: Home, config: Config) -> None:
    """Release the sessions of dead workers, keep terminals, end what killed holders have left."""
    current = CurrentConfig(home, config)
    holding = Holding(fleet.terminals, home.host_id)
    while True:
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            await fleet.sweeper.release_dead(home.host_id, is_alive, end_left=end_strays)
            await holding.look(hold_s=current().terminals.hold_s)
            await end_unheld(fleet.terminals, home.runs)
            await forget_old(home.terminals, fleet.terminals.is_open)
        await asyncio.sleep(SWEEP_HOST_S)
        try:
            if count := await asyncio.to_thread(end_strays):
                log.warning("%d processes were ended whose holder had been killed", count)
            await asyncio.to_thread(remove_dead_runs, home.runs, older_than_s=DEAD_RUN_S)
        except OSError as error:  # a file that vanished, a full process table: the next sweep does
            log.warning("the host can't be swept now: %s", error)
