"""The command `sweep`."""

from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, on_fleet
from remoteclaw.cli.edge import leave_event
from remoteclaw.cli.output import echo

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

__all__ = ["sweep"]


@click.command()
def sweep() -> None:
    """Run a sweeper, which finds sessions that no worker works on. Any number may run.

    It also fires cron jobs, and clears away what killed processes have left on this host.
    """
    import asyncio

    from remoteclaw.cron.scheduler import Scheduler
    from remoteclaw.host.logs import configure_logging
    from remoteclaw.up.sweep import sweep_host

    configure_logging()
    home, _ = load()

    async def run(fleet: "Fleet") -> None:
        leave = leave_event()
        home.create()
        echo("Sweeping every second, until Ctrl-C or SIGTERM.")
        async with asyncio.TaskGroup() as tasks:
            duties = [
                tasks.create_task(fleet.sweeper.run()),
                tasks.create_task(Scheduler(fleet.scripts, fleet.waker).run()),
                tasks.create_task(sweep_host(fleet, home)),
            ]
            await leave.wait()
            for duty in duties:
                duty.cancel()

    on_fleet(run)
