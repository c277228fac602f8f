"""The commands `agents` and `agents end`."""

from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import load, on_fleet
from remoteclaw.cli.output import complain, echo, json_option, print_list
from remoteclaw.errors import RemoteClawError

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.up.agents import InstalledCli


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def agents(context: click.Context, as_json: bool) -> None:
    """List the agent CLIs that are installed here or configured.

    STEER is whether messages can join a running turn. ASIDE is how other messages are answered
    during a turn: on a copy of the conversation, or in a new one with notes of it; if "no", they
    wait. COST is whether the CLI reports the cost of a turn. DENIED is whether it learns why a
    permission was denied. RESUMES is how a new process continues a conversation.
    """
    if context.invoked_subcommand:
        return
    from remoteclaw.up.agents import (
        fallbacks_problem,
        installed_clis,
        openings_of,
        rules_problem,
        tools_problem,
    )

    home, settings = load()
    clis = installed_clis(settings)
    if not clis and not as_json:
        main = settings.agents.get("main")
        if main and main.runtime not in (None, "demo"):
            echo("No agent CLI is installed: see `remoteclaw doctor`.")
        else:
            echo("No agent CLI is installed, so the demo answers: install one, such as claude.")
        return
    headers = ("AGENT", "VERSION", "STEER", "ASIDE", "COST", "DENIED", "RESUMES", "PROGRAM")
    print_list(clis, as_json=as_json, to_json=_to_json, headers=headers, row=_row)
    for cli in clis:
        if cli.warning:
            complain(f"{cli.name}: {cli.warning}.")
    for name, agent in settings.agents.items():
        if problem := tools_problem(home, name, agent):
            complain(f"{name} has no tools: {problem}")
        elif problem := rules_problem(agent):
            complain(f"{name}: {problem}")
        if problem := fallbacks_problem(home, settings, name):
            complain(f"{name}: {problem}.")
        if openings := openings_of(home, name, agent):
            complain(f"{name}: {openings}.")


@agents.command("end")
@click.argument("session", required=False)
@click.option("--all", "ends_all", is_flag=True, help="All warm agents of this host.")
def end(session: str | None, ends_all: bool) -> None:
    """End the warm agent of SESSION on this host, which frees its memory.

    The next message starts it again, with its conversation. An agent that works is not ended.
    """
    if bool(session) == ends_all:
        raise click.UsageError("Name a session, or give --all.")
    from remoteclaw.holder.runs import end_warm_agents

    home, _ = load()
    path = None
    if session:

        async def find(fleet: "Fleet") -> str | None:
            return (await fleet.sessions.named(session)).agent_path

        path = on_fleet(find)
        if path is None:
            raise RemoteClawError(f"No agent of {session} runs.")
    count = end_warm_agents(home.runs, path)
    if session and not count:
        raise RemoteClawError(
            f"The agent of {session} is not warm on this host: it works or is gone."
        )
    echo(f"{count} warm {'agent' if count == 1 else 'agents'} ended.")


def _to_json(cli: "InstalledCli") -> dict[str, Any]:
    can = cli.capabilities
    return {
        "name": cli.name,
        "version": cli.version,
        "program": cli.program,
        "steers": can.steers,
        "asides": can.asides or None,
        "reportsCost": can.reports_cost,
        "explainsDenial": can.explains_denial,
        "resumes": can.resumes,
        "warning": cli.warning or None,
    }


def _row(cli: "InstalledCli") -> tuple[object, ...]:
    can = cli.capabilities
    aside = {"copy": "on a copy", "notes": "with notes", "": "no"}[can.asides]
    steer, cost, denied = (
        "yes" if flag else "no" for flag in (can.steers, can.reports_cost, can.explains_denial)
    )
    return cli.name, cli.version, steer, aside, cost, denied, can.resumes, cli.program
