"""Commands that run a process: `up`, `worker`, `sweep`, `mcp`."""

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from remoteclaw import __version__
from remoteclaw.cli.access import load, on_fleet
from remoteclaw.cli.edge import echo
from remoteclaw.errors import ConfigError, RemoteClawError

if TYPE_CHECKING:
    from remoteclaw.channels.console.adapter import Console
    from remoteclaw.config.home import Home
    from remoteclaw.config.model import Config
    from remoteclaw.fleet import Fleet

__all__ = ["dashboard", "leave_event", "mcp", "sweep", "up", "worker"]

#: How long a leaving `up` looks whether something is unfinished, in seconds.
LOOK_S = 1.0


@click.command()
@click.option(
    "--no-console", is_flag=True, help="Only run; without a terminal that is the default."
)
def up(no_console: bool) -> None:
    """Run everything on this machine, with a chat in this terminal.

    Redis, workers, a gateway and a sweeper are started, watched, and ended together.
    """
    from remoteclaw.host.logs import configure_logging

    home, config = load()
    home.create()
    with_console = not no_console and sys.stdin.isatty() and sys.stdout.isatty()
    configure_logging(home.logs / "up.log" if with_console else None)
    asyncio.run(_up(home, config, with_console=with_console))


async def _up(home: "Home", config: "Config", *, with_console: bool) -> None:
    from remoteclaw.bridge.hooks import Hooks
    from remoteclaw.up.doctor import agent_problem, hooks_problem, tools_problem
    from remoteclaw.up.supervisor import Supervisor

    agent, settings = config.agent(None)
    if problem := hooks_problem(config.hooks):
        raise ConfigError(problem)
    hooks = Hooks.load(config.hooks)  # workers do so as well, and would end one after the other
    supervisor = Supervisor(home, config)
    leave = leave_event()
    async with supervisor.running() as ready:
        echo(f"RemoteClaw {__version__}, state in {home.path}")
        echo(f"  redis    {ready.redis}")
        echo(f"  workers  {ready.workers} × rq worker")
        echo(f"  gateway  {ready.gateway}")
        echo(f"  agent    {agent} is {_which_agent(settings)}")
        for name, each in config.agents.items():
            if problem := agent_problem(home, name, each):
                echo(f"  problem  {name} can't work: {problem}")
            elif problem := tools_problem(home, name, each):
                echo(f"  problem  {name} has no tools: {problem}")
        if ready.repaired:
            echo(f"  problem  {ready.repaired}")
        if problem := (await supervisor.fleet.scripts.memory()).problem:
            echo(f"  problem  {problem}")
        echo(f"Ready in {ready.seconds:.1f} s.")
        if with_console:
            from remoteclaw.channels.console.adapter import Console

            console = Console(
                supervisor.fleet,
                agent=agent,
                account=home.host_id,
                hooks=hooks,
                downloads=home.downloads,
            )
            await _chat(console, leave)
        else:
            await leave.wait()
        with contextlib.suppress(OSError):  # the terminal may have been closed
            echo(await _farewell(supervisor.fleet))


async def _chat(console: "Console", leave: asyncio.Event) -> None:
    echo("Type a message. Ctrl-C stops the answer, twice leaves.")
    echo("")
    chatting = asyncio.create_task(console.run())
    leaving = asyncio.create_task(leave.wait())
    await asyncio.wait((chatting, leaving), return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    chatting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await chatting
    # The console took it for itself.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, leave.set)


async def _farewell(fleet: "Fleet") -> str:
    try:
        async with asyncio.timeout(LOOK_S):
            _, busy = await fleet.sessions.busy(limit=1000)
            is_unfinished = any(view.waiting for view in busy)
    except (RemoteClawError, TimeoutError):
        is_unfinished = True  # for all we know
    goes_on = "; what isn't finished goes on at the next start" if is_unfinished else ""
    return f"Leaving{goes_on}."


def leave_event() -> asyncio.Event:
    """Return an event that a signal to end sets."""
    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave.set)
    return leave


def _which_agent(settings: Any) -> str:
    from remoteclaw.runtimes import detect_runtime

    if settings.runtime:
        return f"{settings.runtime}, as configured"
    name, why = detect_runtime()
    return f"{name}: {why}"


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

    async def look(_: "Fleet") -> None:
        """Find what the worker would find, so that we say it and not RQ."""

    home, config = load()
    if problem := hooks_problem(config.hooks):
        raise ConfigError(problem)
    on_fleet(look)
    command = worker_command()
    echo("+ " + " ".join(["rq", *command[1:]]))
    sys.stdout.flush()
    env = {**os.environ, "REMOTECLAW_HOME": str(home.path)}
    become(command, {**env, PEOPLE_ONLY: "1"} if people_only else env)


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


@click.command()
def mcp() -> None:
    """Be an MCP server over pipes, for a CLI that starts one.

    It relays to the gateway of the state directory, with a token of the scope write. With
    $REMOTECLAW_GATEWAY_TOKEN it uses that one, and with $REMOTECLAW_GATEWAY_URL that address.
    """
    from remoteclaw.connector import connector_launch
    from remoteclaw.host.process import become

    become(connector_launch(), os.environ)


@click.command()
def sweep() -> None:
    """Run a sweeper, which finds sessions that no worker works on. Any number may run.

    It also fires cron jobs, and clears away what killed processes have left on this host.
    """
    from remoteclaw.cron.scheduler import Scheduler
    from remoteclaw.host.logs import configure_logging
    from remoteclaw.up.supervisor import sweep_host

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
