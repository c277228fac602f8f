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
from remoteclaw.cli.chat import HINT, chat_with, run_until_signal
from remoteclaw.cli.config import change_file
from remoteclaw.cli.open import page_link
from remoteclaw.cli.output import echo, echo_wrapped
from remoteclaw.clock import format_duration
from remoteclaw.errors import ConfigError, StateDirectoryError
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    import asyncio

    from remoteclaw.chat.app import Chat
    from remoteclaw.config.home import Home
    from remoteclaw.config.model import Config
    from remoteclaw.up.supervisor import Supervisor


_DIRECTORY = click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)


@click.command()
@click.argument("directory", metavar="[DIR]", required=False, type=_DIRECTORY)
@click.option("--workspace", metavar="DIR", type=_DIRECTORY, help="Another way to give DIR.")
@click.option("--agent", metavar="NAME", help="The agent to talk to. [default: the first one]")
@click.option("--runtime", metavar="NAME", help="The CLI that runs the agent; it is saved.")
@click.option("--yes", is_flag=True, help="Let the agent work in this directory, without asking.")
@click.option(
    "--no-chat",
    is_flag=True,
    help="Run without a chat; the default if this is no terminal that can move its cursor.",
)
def up(
    directory: Path | None,
    workspace: Path | None,
    agent: str | None,
    runtime: str | None,
    yes: bool,
    no_chat: bool,
) -> None:
    """Run everything on this machine, with a chat in this terminal.

    Starts Redis, workers, a gateway and a sweeper, restarts any that end, and ends them together.

    The agent works in DIR. Without it, the first start in a project asks whether the agent should
    work there. The answer, DIR and --runtime are saved in the configuration file.
    """
    import asyncio

    from remoteclaw.host.logs import configure_logging
    from remoteclaw.up.lock import running_pid

    if directory and workspace:
        raise click.UsageError("DIR and --workspace are the same: give one of them.")
    workspace = directory or workspace
    home, config = load()
    home.create()
    can_draw = os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")
    with_chat = not no_chat and can_draw and sys.stdin.isatty() and sys.stdout.isatty()
    name, settings = config.agent(agent)
    project = None if workspace or settings.workspace else _project(home)
    if project and (yes or with_chat):
        is_accepted = yes or _confirm_project(name, project)
        workspace = project if is_accepted else home.workspace(name, settings)
        project = None
    if workspace or runtime:
        config = _save_choices(name, workspace, runtime)
    log = home.logs / "up.log" if with_chat else None
    if with_chat and (pid := running_pid(home)) is not None:
        configure_logging(log, log_format=config.fleet.log_format)
        echo_wrapped(
            f"RemoteClaw already runs in {home.path} (process {pid}): this is the chat with it."
        )
        asyncio.run(_join(home, name))
    else:
        from remoteclaw.up.supervisor import Supervisor

        supervisor = Supervisor(home, config)
        if running_pid(home) is None:  # else `running()` refuses the start
            if problem := home.room_problem():
                raise StateDirectoryError(problem)
            supervisor.begin()
        configure_logging(log, log_format=config.fleet.log_format)
        asyncio.run(_up(supervisor, home, config, name, project=project, with_chat=with_chat))


def _project(home: "Home") -> Path | None:
    """Return the current directory if it can be an agent's workspace; None if not.

    It can't be a directory that contains the user's home or the state directory, or that lies in
    the state directory or in RemoteClaw's own checkout.
    """
    try:
        here = Path.cwd()
        state, own = home.path.resolve(), Path(__file__).resolve().parents[2]
        others = (Path.home().resolve(), state)
    except (OSError, RuntimeError):
        return None  # the directory was removed, or the user has no home
    is_other = any(other.is_relative_to(here) for other in others)
    return None if is_other or any(map(here.is_relative_to, (state, own))) else here


def _confirm_project(agent: str, project: Path) -> bool:
    echo_wrapped(f"{agent} has no directory to work in yet.")
    return click.confirm(f"Should it work here, in {one_line(str(project))}?", default=True)


def _save_choices(agent: str, workspace: Path | None, runtime: str | None) -> "Config":
    """Write the user's choices to the configuration file, and return the new configuration."""
    choices = {"workspace": workspace and str(workspace), "runtime": runtime}
    settings = {name: value for name, value in choices.items() if value is not None}
    plan = change_file(lambda file: file.plan_patch(file.read(), {"agents": {agent: settings}}))
    home, config = load()
    if plan.paths:
        names = ", ".join(f"agents.{agent}.{name}" for name in settings)
        echo_wrapped(f"Saved in {home.config_file}: {names}.")
    return config


async def _join(home: "Home", agent: str) -> None:
    from remoteclaw.chat.app import ChatTarget

    echo_wrapped(HINT)
    echo("")
    await run_until_signal(chat_with(home, ChatTarget(agent=agent)))


async def _up(
    supervisor: "Supervisor",
    home: "Home",
    config: "Config",
    agent: str,
    *,
    project: Path | None,
    with_chat: bool,
) -> None:
    import asyncio

    from remoteclaw.channels.web.settings import own_name
    from remoteclaw.config.identity import check_identities
    from remoteclaw.fleet.restores import paused_problem
    from remoteclaw.holder.runs import terminal_runs
    from remoteclaw.up.agents import (
        agent_problem,
        fallbacks_problem,
        introduction,
        not_passed,
        openings_of,
        passing_problem,
        rules_problem,
        tools_problem,
    )
    from remoteclaw.up.doctor import hooks_problem

    if problem := hooks_problem(config.hooks):  # else each worker would end at its start
        raise ConfigError(problem)
    check_identities(home, config.agents)
    shutdown, ends_at_once = asyncio.Event(), asyncio.Event()
    _set_on_signals(shutdown, ends_at_once)
    echo_wrapped(f"RemoteClaw {__version__}, state in {home.path}")
    for label, text in introduction(home, agent, config.agents[agent]):
        _print_row(label, text)
    if project:
        here = shlex.quote(str(project))
        _print_row("hint", f"`remoteclaw up {here}`, or --yes, makes it work here")
    async with supervisor.running() as ready:
        _print_row("redis", ready.redis)
        _print_row("workers", f"{ready.workers} × rq worker")
        _print_row("gateway", ready.gateway)
        if sys.stdout.isatty():
            _print_row("page", await page_link(supervisor.fleet, ready.gateway, own_name(config)))
        else:  # the output may go to a log, and a code in it would log in any reader
            _print_row("page", "`remoteclaw open` prints a link to it that logs you in")
        for name, each in config.agents.items():
            if problem := agent_problem(home, name, each):
                _print_row("problem", f"{name} can't work: {problem}")
            elif problem := tools_problem(home, name, each):
                _print_row("problem", f"{name} has no tools: {problem}")
            elif problem := rules_problem(each) or passing_problem(each):
                _print_row("problem", f"{name}: {problem}")
            if problem := fallbacks_problem(home, config, name):
                _print_row("problem", f"{name}: {problem}")
            if openings := openings_of(home, name, each):
                _print_row("careful", f"{name}: {openings}")
        if hint := not_passed(config):
            _print_row("hint", hint)
        if ready.was_drained:
            _print_row("drained", "this host was drained; with this start, it takes work again")
        if ready.repaired:
            _print_row("problem", ready.repaired)
        if problem := paused_problem(await supervisor.fleet.restores.paused_from()):
            _print_row("paused", problem)
        if problem := (await supervisor.fleet.scripts.memory()).problem:
            _print_row("problem", problem)
        echo(f"Ready in {ready.seconds:.1f} s.")
        if with_chat:
            from remoteclaw.chat.app import ChatTarget

            await _chat(chat_with(home, ChatTarget(agent=agent)), shutdown)
            _set_on_signals(shutdown, ends_at_once)  # the chat has replaced a handler by its own
        else:
            echo("There is no chat here: use the page, or `remoteclaw chat` in a terminal.")
            await shutdown.wait()
        if shutdown.is_set() and not ends_at_once.is_set():
            await _finish_turns(supervisor, config, ends_at_once)
        parked = ""
        if count := len(terminal_runs(home.runs)):
            parked = f"{count} open terminal{'s' * (count > 1)} can be opened again. "
        with contextlib.suppress(OSError):  # the terminal may have been closed
            echo_wrapped(f"Leaving. {parked}Unfinished work continues at the next start.")


def _set_on_signals(shutdown: "asyncio.Event", ends_at_once: "asyncio.Event") -> None:
    """Have signals set `shutdown`, and also `ends_at_once` for an end without the running turns.

    SIGTERM, from a supervisor, lets them finish; Ctrl-C, a closed terminal and a second SIGTERM
    don't.
    """
    import asyncio

    def end(number: signal.Signals) -> None:
        if number is not signal.SIGTERM or shutdown.is_set():
            ends_at_once.set()
        shutdown.set()

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end, number)


async def _finish_turns(
    supervisor: "Supervisor", config: "Config", ends_at_once: "asyncio.Event"
) -> None:
    """Wait for the running turns after SIGTERM, at most `[fleet] stop_s`."""
    import asyncio

    if not config.fleet.stop_s:
        return
    if count := await supervisor.busy():
        turns = "1 turn runs" if count == 1 else f"{count} turns run"
        limit = format_duration(int(config.fleet.stop_s * 1000))
        with contextlib.suppress(OSError):
            echo_wrapped(
                f"{turns}: `up` ends after that, in {limit} at most, or at once with Ctrl-C or a "
                "second SIGTERM."
            )
            sys.stdout.flush()
    # Also without a busy worker: one of them may be about to begin a turn.
    finishing = asyncio.create_task(supervisor.finish_turns())
    leaving = asyncio.create_task(ends_at_once.wait())
    await asyncio.wait((finishing, leaving), return_when=asyncio.FIRST_COMPLETED)
    for task in (finishing, leaving):
        task.cancel()


def _print_row(label: str, text: str) -> None:
    echo_wrapped(text, lead=f"  {label:<8} ")


async def _chat(chat: "Chat", shutdown: "asyncio.Event") -> None:
    """Run the chat until the user leaves it or `shutdown` is set."""
    import asyncio

    echo_wrapped(HINT)
    echo("")
    chatting = asyncio.create_task(chat.run())
    leaving = asyncio.create_task(shutdown.wait())
    await asyncio.wait((chatting, leaving), return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    chatting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await chatting
