"""The command `dashboard`."""

import os
import sys

import click

from remoteclaw.cli.access import load
from remoteclaw.cli.parts import check_redis


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def dashboard(arguments: tuple[str, ...]) -> None:
    """Run rq-dashboard on this fleet; ARGUMENTS are its own.

    Behind `--` also `--help`. It is installed apart, as the extra `dashboard`.
    """
    from remoteclaw.host.process import become

    home, _ = load()
    check_redis()
    argv = [sys.executable, "-m", "workers.dashboard", *arguments]
    become(argv, {**os.environ, "REMOTECLAW_HOME": str(home.path)})
