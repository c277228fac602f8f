"""The command `up`."""

import contextlib
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remoteclaw import __version__
from remoteclaw.cli.access import load
from remoteclaw.cli.chat import HINT, chat_with, until_told
from remoteclaw.cli.config import change_file
from remoteclaw.cli.error_line import leave_event
from remoteclaw.cli.open import page_link
from remoteclaw.cli.output import echo, echo_words
from remoteclaw.errors import ConfigError
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    import asyncio

    from remoteclaw.chat.app import Chat
    from remoteclaw.config.home import Home
    from remoteclaw.config.model import Config
    from remoteclaw.up.supervisor import Supervisor


@click.command()
@click.option(
    "--workspace",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="The directory in which the agent works, from now on.",
)
@click.option("--agent", metavar="NAME", help="The agent to talk to. [default: the first one]")
@click.option("--runtime", metavar="NAME", help="The CLI that runs the agent, from now on.")
@click.option("--yes", is_flag=True, help="The agent works in this directory, without a question.")
@click.option(
    "--no-console",
    is_flag=True,
    help="Only run; the default without a terminal that can move its cursor.",
)
def up(
    workspace: Path | None, agent: str | None, runtime: str | None, yes: bool, no_console: bool
) -> None:
    """Run everything on this machine, with a chat in this terminal.

    Redis, workers, a gateway and a sweeper are started, watched, and ended together.
    At its first start in a project, it asks whether the agent works there. That, --workspace and
    --runtime are kept in the configuration file.
    """
    import asyncio

    from remoteclaw.host.logs import configure_logging
    from remoteclaw.up.lock import running_pid

    home, config = load()
    home.create()
    can_draw = os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")
    with_console = not no_console and can_draw and sys.stdin.isatty() and sys.stdout.isatty()
    name, settings = config.agent(agent)
    found = None if workspace or settings.workspace else _project(home)
    if found and (yes or with_console):
        workspace = found if yes or _asked(name, found) else home.workspace(name, settings)
        found = None
    if workspace or runtime:
        config = _remembered(name, workspace, runtime)
    log = home.logs / "up.log" if with_console else None
    if with_console and (pid := running_pid(home)) is not None:
        configure_logging(log)
        echo_words(
            f"RemoteClaw already runs in {home.path} (process {pid}): this is the chat with it."
        )
        asyncio.run(_join(home, name))
    else:
        from remoteclaw.up.supervisor import Supervisor

        supervisor = Supervisor(home, config)
        if running_pid(home) is None:  # else it is refused, before anything is started
            supervisor.begin()
        configure_logging(log)
        asyncio.run(_up(supervisor, home, config, name, project=found, with_console=with_console))


def _project(home: "Home") -> Path | None:
    """Return the directory in which this was started, if an agent could work there.

    Neither the person's home, nor what has the state directory in it, nor the checkout that this
    program may have been started in.
    """
    try:
        here = Path.cwd()
        state, own = home.path.resolve(), Path(__file__).resolve().parents[2]
        others = (Path.home().resolve(), state)
    except (OSError, RuntimeError):
        return None  # it was removed, or there is no home
    is_other = any(other.is_relative_to(here) for other in others)
    return None if is_other or any(map(here.is_relative_to, (state, own))) else here


def _asked(agent: str, found: Path) -> bool:
    echo_words(f"{agent} has no directory to work in yet.")
    return click.confirm(f"Does it work here, in {one_line(str(found))}?", default=True)


def _remembered(agent: str, workspace: Path | None, runtime: str | None) -> "Config":
    """Write what the person has chosen to the configuration file; return what holds then."""
    chosen = {"workspace": workspace and str(workspace), "runtime": runtime}
    settings = {name: value for name, value in chosen.items() if value is not None}
    plan = change_file(lambda file: file.patched(file.read(), {"agents": {agent: settings}}))
    home, config = load()
    if plan.paths:
        kept = ", ".join(f"agents.{agent}.{name}" for name in settings)
        echo_words(f"Kept in {home.config_file}: {kept}.")
    return config


async def _join(home: "Home", agent: str) -> None:
    from remoteclaw.chat.app import Target

    echo_words(HINT)
    echo("")
    await until_told(chat_with(home, Target(agent=agent)))


async def _up(
    supervisor: "Supervisor",
    home: "Home",
    config: "Config",
    agent: str,
    *,
    project: Path | None,
    with_console: bool,
) -> None:
    from remoteclaw.holder.runs import terminals
    from remoteclaw.up.agents import agent_problem, introduction, rules_problem, tools_problem
    from remoteclaw.up.doctor import hooks_problem

    if problem := hooks_problem(config.hooks):  # else workers would end one after the other
        raise ConfigError(problem)
    leave = leave_event()
    echo_words(f"RemoteClaw {__version__}, state in {home.path}")
    for what, words in introduction(home, agent, config.agents[agent]):
        _row(what, words)
    if project:
        here = shlex.quote(str(project))
        _row("hint", f"`remoteclaw up --workspace {here}` has it work here, or --yes")
    async with supervisor.running() as ready:
        _row("redis", ready.redis)
        _row("workers", f"{ready.workers} × rq worker")
        _row("gateway", ready.gateway)
        if sys.stdout.isatty():
            _row("page", await page_link(supervisor.fleet, ready.gateway))
        else:  # what is printed is kept in some log, and a code is for one person
            _row("page", "`remoteclaw open` prints a link to it that logs you in")
        for name, each in config.agents.items():
            if problem := agent_problem(home, name, each):
                _row("problem", f"{name} can't work: {problem}")
            elif problem := tools_problem(home, name, each):
                _row("problem", f"{name} has no tools: {problem}")
            elif problem := rules_problem(each):
                _row("problem", f"{name}: {problem}")
        if ready.repaired:
            _row("problem", ready.repaired)
        if problem := (await supervisor.fleet.scripts.memory()).problem:
            _row("problem", problem)
        echo(f"Ready in {ready.seconds:.1f} s.")
        if with_console:
            from remoteclaw.chat.app import Target

            await _chat(chat_with(home, Target(agent=agent)), leave)
        else:
            echo("There is no chat here: use the page, or `remoteclaw chat` in a terminal.")
            await leave.wait()
        parked = ""
        if count := len(terminals(home.runs)):
            parked = f"{count} open terminal{'s' * (count > 1)} can be opened again. "
        with contextlib.suppress(OSError):  # the terminal may have been closed
            echo_words(f"Leaving. {parked}What isn't finished goes on at the next start.")


def _row(what: str, words: str) -> None:
    echo_words(words, lead=f"  {what:<8} ")


async def _chat(chat: "Chat", leave: "asyncio.Event") -> None:
    import asyncio

    echo_words(HINT)
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
