"""The parts of a fleet, one by one: `worker`, `gateway`, `sweep`, `dashboard` and `mcp`."""

import os
import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, on_fleet, require_running, with_fleet
from remoteclaw.cli.error_line import leave_event
from remoteclaw.cli.output import echo
from remoteclaw.errors import ConfigError

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from remoteclaw.fleet import Fleet


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
    check_redis()
    command = worker_command()
    echo("+ " + " ".join(["rq", *command[1:]]))
    sys.stdout.flush()
    env = {**os.environ, "REMOTECLAW_HOME": str(home.path)}
    become(command, {**env, PEOPLE_ONLY: "1"} if people_only else env)


def check_redis() -> None:
    """Find what a program that a command becomes would find, so that we say it."""

    async def look(_: "Fleet") -> None:
        pass

    on_fleet(look)


@click.command()
@click.option(
    "--socket", "descriptors", type=int, multiple=True, hidden=True, help="What it answers on."
)
@click.option("--alone", is_flag=True, hidden=True, help="They are its own, and not `up`'s.")
def gateway(descriptors: tuple[int, ...], alone: bool) -> None:
    """Run the gateway that agents and operators ask.

    Every host with workers needs one, and `up` starts it. It ends with Ctrl-C or SIGTERM.
    """
    import asyncio

    from remoteclaw.gateway.address import inherited
    from remoteclaw.gateway.server import serve
    from remoteclaw.gateway.token_file import TokenFile
    from remoteclaw.host.logs import configure_logging
    from remoteclaw.host.process import become
    from remoteclaw.up.supervisor import gateway_command

    home, config = load()
    require_running(home, config)
    configure_logging()
    home.create()

    def said(url: str) -> None:
        echo(f"The gateway is at {url}, its token in {TokenFile(home.path).path}.")

    async def run() -> "Sequence[socket.socket] | None":
        sockets = [inherited(descriptor) for descriptor in descriptors]
        return await serve(
            home, config, stop=leave_event(), sockets=sockets, is_alone=is_alone, said=said
        )

    is_alone = alone or not descriptors
    kept = asyncio.run(run())
    if kept is not None:  # it was asked to restart
        for listening in kept:
            os.set_inheritable(listening.fileno(), True)
        become([*gateway_command(kept), *(["--alone"] if is_alone else [])], os.environ)


@click.command()
@with_fleet
async def sweep(fleet: "Fleet") -> None:
    """Run a sweeper, which finds sessions that no worker works on. Any number may run.

    It also fires cron jobs, and clears away what killed processes have left on this host.
    """
    import asyncio

    from remoteclaw.host.logs import configure_logging
    from remoteclaw.up.sweep import sweeping

    configure_logging()
    home, config = load()
    leave = leave_event()
    home.create()
    echo("Sweeping every second, until Ctrl-C or SIGTERM.")
    async with asyncio.TaskGroup() as tasks:
        duties = [tasks.create_task(duty) for duty in sweeping(fleet, home, config)]
        await leave.wait()
        for duty in duties:
            duty.cancel()


@click.command()
def mcp() -> None:
    """Be an MCP server over pipes, for a CLI that starts one.

    It relays to the gateway of the state directory, with a token of the scope write. With
    $REMOTECLAW_GATEWAY_TOKEN it uses that one, and with $REMOTECLAW_GATEWAY_URL that address.
    """
    from remoteclaw.connector import connector_launch
    from remoteclaw.host.process import become

    become(connector_launch(), os.environ)


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
