"""The command `agents`."""

from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import load
from remoteclaw.cli.output import complain, echo, json_option, listing

if TYPE_CHECKING:
    from remoteclaw.up.agents import InstalledCli


@click.command()
@json_option
def agents(as_json: bool) -> None:
    """List the agent CLIs that are here and in the configuration.

    STEER: whether it takes up messages while it works. BESIDE: how it answers others meanwhile, on
    a copy of the conversation or in another one with notes; else messages during a turn wait.
    COST: whether it tells what a turn cost. DENIED: whether it is told why a permission was denied.
    """
    from remoteclaw.up.agents import installed_clis, rules_problem, tools_problem

    home, settings = load()
    found = installed_clis(settings)
    if not found and not as_json:
        main = settings.agents.get("main")
        if main and main.runtime not in (None, "demo"):
            echo("No agent CLI is installed: see `remoteclaw doctor`.")
        else:
            echo("No agent CLI is installed, so the demo answers: install one, such as claude.")
        return
    heads = ("AGENT", "VERSION", "STEER", "BESIDE", "COST", "DENIED", "GOES ON", "PROGRAM")
    listing(found, as_json=as_json, plain=_plain, heads=heads, row=_row)
    for cli in found:
        if cli.warning:
            complain(f"{cli.name}: {cli.warning}.")
    for name, agent in settings.agents.items():
        if problem := tools_problem(home, name, agent):
            complain(f"{name} has no tools: {problem}")
        elif problem := rules_problem(agent):
            complain(f"{name}: {problem}")


def _plain(cli: "InstalledCli") -> dict[str, Any]:
    can = cli.capabilities
    return {
        "name": cli.name,
        "version": cli.version,
        "program": cli.program,
        "steers": can.steers,
        "asides": can.asides or None,
        "reports_cost": can.reports_cost,
        "explains_denial": can.explains_denial,
        "resumes": can.resumes,
        "warning": cli.warning or None,
    }


def _row(cli: "InstalledCli") -> tuple[object, ...]:
    can = cli.capabilities
    beside = {"copy": "on a copy", "notes": "with notes", "": "no"}[can.asides]
    steer, cost, denied = (
        "yes" if flag else "no" for flag in (can.steers, can.reports_cost, can.explains_denial)
    )
    return cli.name, cli.version, steer, beside, cost, denied, can.resumes, cli.program
