"""The command `agents`."""

import click

from remoteclaw.cli.access import load
from remoteclaw.cli.output import complain, echo, table

__all__ = ["agents"]


@click.command()
def agents() -> None:
    """List the agent CLIs that are here and in the configuration.

    STEER: whether it takes up messages while it works. COST: whether it tells what a turn cost.
    DENIED: whether it is told why a permission was denied.
    """
    from remoteclaw.up.agents import installed_clis, rules_problem, tools_problem

    home, settings = load()
    found = installed_clis(settings)
    if not found:
        main = settings.agents.get("main")
        if main and main.runtime not in (None, "demo"):
            echo("No agent CLI is installed: see `remoteclaw doctor`.")
        else:
            echo("No agent CLI is installed, so the demo answers: install one, such as claude.")
        return
    rows = []
    for cli in found:
        can = cli.capabilities
        flags = (can.steers, can.reports_cost, can.explains_denial)
        told = ("yes" if flag else "no" for flag in flags)
        rows.append((cli.name, cli.version, *told, can.resumes, cli.program))
    table(("AGENT", "VERSION", "STEER", "COST", "DENIED", "GOES ON", "PROGRAM"), rows)
    for cli in found:
        if cli.warning:
            complain(f"{cli.name}: {cli.warning}.")
    for name, agent in settings.agents.items():
        if problem := tools_problem(home, name, agent):
            complain(f"{name} has no tools: {problem}")
        elif problem := rules_problem(agent):
            complain(f"{name}: {problem}")
