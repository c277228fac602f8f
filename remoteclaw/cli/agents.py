"""The command `agents`."""

from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import load
from remoteclaw.cli.output import complain, echo, json_option, print_list

if TYPE_CHECKING:
    from remoteclaw.up.agents import InstalledCli


@click.command()
@json_option
def agents(as_json: bool) -> None:
    """List the agent CLIs that are installed here or configured.

    STEER is whether messages can join a running turn. ASIDE is how other messages are answered
    during a turn: on a copy of the conversation, or in a new one with notes of it; if "no", they
    wait. COST is whether the CLI reports the cost of a turn. DENIED is whether it learns why a
    permission was denied. RESUMES is how a new process continues a conversation.
    """
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
