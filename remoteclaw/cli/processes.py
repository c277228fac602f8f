"""Commands that run one process of a fleet: `worker`, `gateway`, `sweep`, `dashboard`, `mcp`."""

import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, on_fleet, require_running, with_fleet
from remoteclaw.cli.output import echo
from remoteclaw.errors import ConfigError

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Sequence

    from remoteclaw.fleet import Fleet


def shutdown_event() -> "asyncio.Event":
    """Return an event that is set when SIGTERM, SIGHUP or SIGINT arrives."""
    import asyncio

    shutdown = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, shutdown.set)
    return shutdown


@click.command()
@click.option("--people-only", is_flag=True, help="Run only what people send, no background work.")
@click.option(
    "--restart",
    is_flag=True,
    help="Start it again whenever it ends, and let its turn finish also if this process is killed.",
)
@click.option("--label", metavar="NAME", help="Run only agents with `runs_on` = NAME, such as gpu.")
def worker(people_only: bool, restart: bool, label: str | None) -> None:
    """Run one worker.

    Prints an `rq worker` command and runs it in place of this process, or, with --restart, in a
    session of its own.
    """
    from remoteclaw.fleet.pools import LABEL, label_problem
    from remoteclaw.fleet.workers import PEOPLE_ONLY
    from remoteclaw.host.process import exec_program
    from remoteclaw.host.restarting import run_again_and_again
    from remoteclaw.up.doctor import hooks_problem
    from remoteclaw.up.supervisor import worker_command

    if label and (problem := label_problem(label)):
        raise click.BadParameter(problem, param_hint="--label")
    home, config = load()
    if problem := hooks_problem(config.hooks):
        raise ConfigError(problem)
    check_redis()
    command = worker_command()
    echo("+ " + " ".join(["rq", *command[1:]]))
    sys.stdout.flush()
    env = {**os.environ, "REMOTECLAW_HOME": str(home.path)}
    env |= {PEOPLE_ONLY: "1"} if people_only else {}
    env |= {LABEL: label} if label else {}
    if restart:
        run_again_and_again(command, env)
    exec_program(command, env)


def check_redis() -> None:
    """Raise the error that a program would meet on our Redis, before it replaces this process."""

    async def do_nothing(_: "Fleet") -> None:
        pass

    on_fleet(do_nothing)


@click.command()
@click.option(
    "--socket", "descriptors", type=int, multiple=True, hidden=True, help="A listening socket."
)
@click.option("--alone", is_flag=True, hidden=True, help="The sockets are not from `up`.")
def gateway(descriptors: tuple[int, ...], alone: bool) -> None:
    """Run the gateway that agents and operators use.

    Every host with workers needs one; `up` starts it. Ctrl-C or SIGTERM ends it.
    """
    import asyncio

    from remoteclaw.gateway.address import inherited
    from remoteclaw.gateway.auth.token_file import TokenFile
    from remoteclaw.gateway.server import serve
    from remoteclaw.host.logs import configure_logging
    from remoteclaw.host.process import exec_program
    from remoteclaw.up.supervisor import gateway_command

    home, config = load()
    require_running(home, config)
    configure_logging(log_format=config.fleet.log_format)
    home.create()

    def announce(url: str) -> None:
        echo(f"The gateway is at {url}, its token in {TokenFile(home.path).path}.")

    async def run() -> "Sequence[socket.socket] | None":
        sockets = [inherited(descriptor) for descriptor in descriptors]
        return await serve(
            home,
            config,
            stop=shutdown_event(),
            sockets=sockets,
            is_alone=is_alone,
            on_listening=announce,
        )

    is_alone = alone or not descriptors
    open_sockets = asyncio.run(run())
    if open_sockets is not None:  # a restart was requested
        for each in open_sockets:
            os.set_inheritable(each.fileno(), True)
        argv = [*gateway_command(open_sockets), *(["--alone"] if is_alone else [])]
        exec_program(argv, os.environ)


@click.command()
@with_fleet
async def sweep(fleet: "Fleet") -> None:
    """Run a sweeper, which finds sessions that no worker works on.

    It also starts due cron jobs, and removes what killed processes have left on this host. Any
    number of sweepers may run.
    """
    import asyncio

    from remoteclaw.host.logs import configure_logging
    from remoteclaw.up.sweep import sweeping

    home, config = load()
    configure_logging(log_format=config.fleet.log_format)
    shutdown = shutdown_event()
    home.create()
    echo("Sweeping every second, until Ctrl-C or SIGTERM.")
    listed = fleet.processes.announced("sweeper", home.host_id, config.fleet.name_of_host)
    async with listed, asyncio.TaskGroup() as tasks:
        duties = [tasks.create_task(duty) for duty in sweeping(fleet, home, config)]
        await shutdown.wait()
        for duty in duties:
            duty.cancel()


@click.command()
def mcp() -> None:
    """Run an MCP server over pipes, for an agent CLI.

    It relays calls to this state directory's gateway, with a token of the scope `write`.
    $REMOTECLAW_GATEWAY_TOKEN and $REMOTECLAW_GATEWAY_URL name another token and another address.
    """
    from remoteclaw.connector import connector_launch
    from remoteclaw.host.process import exec_program

    exec_program(connector_launch(), os.environ)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def dashboard(arguments: tuple[str, ...]) -> None:
    """Run rq-dashboard on this fleet, with its own ARGUMENTS.

    After `--`, --help is one of them, too. The extra `dashboard` installs rq-dashboard.
    """
    from remoteclaw.host.process import exec_program

    home, _ = load()
    check_redis()
    argv = [sys.executable, "-m", "workers.dashboard", *arguments]
    exec_program(argv, {**os.environ, "REMOTECLAW_HOME": str(home.path)})
