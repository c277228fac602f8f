"""The command `up`."""

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from remoteclaw import __version__
from remoteclaw.cli.access import load
from remoteclaw.cli.chat import HINT, chat_here
from remoteclaw.cli.edge import leave_event
from remoteclaw.cli.output import echo
from remoteclaw.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from remoteclaw.chat.app import Chat
    from remoteclaw.config.home import Home
    from remoteclaw.config.model import Config

__all__ = ["up"]


@click.command()
@click.option(
    "--no-console",
    is_flag=True,
    help="Only run; the default without a terminal that can move its cursor.",
)
def up(no_console: bool) -> None:
    """Run everything on this machine, with a chat in this terminal.

    Redis, workers, a gateway and a sweeper are started, watched, and ended together.
    """
    import asyncio

    from remoteclaw.host.logs import configure_logging

    home, config = load()
    home.create()
    can_draw = os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")
    with_console = not no_console and can_draw and sys.stdin.isatty() and sys.stdout.isatty()
    configure_logging(home.logs / "up.log" if with_console else None)
    asyncio.run(_up(home, config, with_console=with_console))


async def _up(home: "Home", config: "Config", *, with_console: bool) -> None:
    from remoteclaw.up.agents import agent_problem, tools_problem
    from remoteclaw.up.doctor import hooks_problem
    from remoteclaw.up.supervisor import Supervisor

    agent, settings = config.agent(None)
    if problem := hooks_problem(config.hooks):  # else workers would end one after the other
        raise ConfigError(problem)
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
            from remoteclaw.chat.app import Target

            await _chat(chat_here(home, Target(agent=agent)), leave)
        else:
            await leave.wait()
        with contextlib.suppress(OSError):  # the terminal may have been closed
            echo("Leaving. What isn't finished goes on at the next start.")


async def _chat(chat: "Chat", leave: "asyncio.Event") -> None:
    import asyncio

    echo(HINT)
    echo("")
    chatting = asyncio.create_task(chat.run())
    leaving = asyncio.create_task(leave.wait())
    await asyncio.wait((chatting, leaving), return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    chatting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await chatting
    # The chat took it for itself.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, leave.set)


def _which_agent(settings: Any) -> str:
    from remoteclaw.runtimes import detect_runtime

    if settings.runtime:
        return f"{settings.runtime}, as configured"
    name, why = detect_runtime()
    return f"{name}: {why}"
