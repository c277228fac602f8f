"""The command `dashboard`."""

import os
import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, on_fleet

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

__all__ = ["dashboard"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def dashboard(arguments: tuple[str, ...]) -> None:
    """Run rq-dashboard on this fleet; ARGUMENTS are its own.

    Behind `--` also `--help`. It is installed apart, as the extra `dashboard`.
    """
    from remoteclaw.host.process import become

    async def look(_: "Fleet") -> None:
        """Find what the dashboard would find, so that we say it and not a page."""

    home, _ = load()
    on_fleet(look)
    argv = [sys.executable, "-m", "workers.dashboard", *arguments]
    become(argv, {**os.environ, "REMOTECLAW_HOME": str(home.path)})
