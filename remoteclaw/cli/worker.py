"""The command `worker`."""

import os
import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, on_fleet
from remoteclaw.cli.output import echo
from remoteclaw.errors import ConfigError

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

__all__ = ["worker"]


@click.command()
@click.option("--people-only", is_flag=True, help="Serve what people send, not the background.")
def worker(people_only: bool) -> None:
    """Run one worker.

    It prints the `rq worker` command and becomes it.
    """
    from remoteclaw.fleet.workers import PEOPLE_ONLY
    from remoteclaw.host.process import become
    from remoteclaw.up.doctor import hooks_problem
    from remoteclaw.up.supervisor import worker_command

    home, config = load()
    if problem := hooks_problem(config.hooks):
        raise ConfigError(problem)
    on_fleet(_look)  # what the worker would find, so that we say it
    command = worker_command()
    echo("+ " + " ".join(["rq", *command[1:]]))
    sys.stdout.flush()
    env = {**os.environ, "REMOTECLAW_HOME": str(home.path)}
    become(command, {**env, PEOPLE_ONLY: "1"} if people_only else env)


async def _look(_: "Fleet") -> None:
    """Do nothing: the fleet is there and fit."""
