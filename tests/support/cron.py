"""The cron jobs of a fleet, and its one scheduler, as tests use them."""

import functools

from remoteclaw.cron.scheduler import Scheduler
from remoteclaw.cron.store import Cron, CronCalls
from remoteclaw.fleet import Fleet


def cron_of(fleet: Fleet) -> Cron:
    """Return the cron jobs of a fleet."""
    return Cron(fleet.scripts)


def calls_of(fleet: Fleet) -> CronCalls:
    """Return what calls ask for of a fleet's cron jobs."""
    return CronCalls(fleet.calls)


@functools.cache
def scheduler_of(fleet: Fleet) -> Scheduler:
    """Return a fleet's scheduler, the same at each call: it remembers what it has seen."""
    return Scheduler(fleet.scripts, fleet.waker)
