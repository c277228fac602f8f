"""A fleet's cron jobs and scheduler, for tests."""

import asyncio
import functools

from remoteclaw.config.model import Config
from remoteclaw.cron.calls import CronCalls
from remoteclaw.cron.scheduler import Scheduler
from remoteclaw.cron.store import Cron
from remoteclaw.fleet import Fleet
from tests.support.failpoints import Failpoint


def cron_of(fleet: Fleet) -> Cron:
    """Return the cron jobs of a fleet."""
    return Cron(fleet.scripts)


def calls_of(fleet: Fleet) -> CronCalls:
    """Return the gateway's access to a fleet's cron jobs."""
    return CronCalls(fleet.calls, cron_of(fleet))


@functools.cache
def scheduler_of(fleet: Fleet) -> Scheduler:
    """Return a fleet's scheduler, the same one at each call, because it has state."""
    return Scheduler(fleet.scripts, fleet.waker, fleet.budgets, Config)


async def keep_scheduling(fleet: Fleet) -> None:
    """Sweep and fire due jobs until cancelled, as `remoteclaw sweep` does."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(fleet.sweeper.run())
        tasks.create_task(scheduler_of(fleet).run(fleet.sweeper.has_cron_work))


async def look_together(
    first: Fleet, second: Fleet, failpoint: Failpoint, what_happens: str
) -> None:
    """Hold a scheduler in its tick while another ticks; then kill, release or cut off the first."""
    looking = asyncio.create_task(scheduler_of(first).tick())
    await failpoint.wait()
    if what_happens == "killed":
        looking.cancel()
        failpoint.cut()
        await asyncio.wait((looking,))
        await scheduler_of(second).tick()
    else:
        await scheduler_of(second).tick()
        failpoint.release() if what_happens == "late" else failpoint.cut()
        await looking
