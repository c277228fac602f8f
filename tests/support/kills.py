"""Kills workers during their work."""

import os
import signal

from remoteclaw.host.process import is_alive
from tests.support.processes import children
from tests.support.stack import Stack
from tests.support.waiting import eventually


async def kill_all(stack: Stack) -> None:
    """Kill every work-horse, and end their leases, so that other workers take over at once."""
    horses = [horse for worker in stack.workers for horse in children(worker.pid)]
    for horse in horses:
        os.kill(horse, signal.SIGKILL)
    released = 0

    async def are_all_released() -> bool:
        nonlocal released
        released += await stack.fleet.sweeper.release_dead(stack.home.host_id, is_alive)
        return released >= len(horses)

    await eventually(are_all_released)
    await stack.fleet.sweeper.sweep()
