"""The commands `memory`: show, edit or undo what an agent remembers."""

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.completion import complete_agents
from remoteclaw.cli.output import complain, echo, echo_json, echo_text, json_option
from remoteclaw.errors import RemoteClawError
from remoteclaw.host.terminal import one_line

_agent = click.argument("agent", shell_complete=complete_agents)


@click.group()
def memory() -> None:
    """Show or change what an agent remembers across conversations."""


@memory.command("show")
@_agent
@json_option
def show_memory(agent: str, as_json: bool) -> None:
    """Print the memory of AGENT."""
    shown = call_method("memory.show", agent=agent)
    if as_json:
        echo_json(shown)
    elif shown["text"]:
        echo_text(shown["text"])
    else:
        echo(f"The memory of {agent} is empty.")
    if not as_json and not shown["isUsed"]:
        complain(f"{agent} doesn't read it: set [agents.{agent}] memory = true.")


@memory.command("edit")
@_agent
def edit_memory(agent: str) -> None:
    """Change the memory of AGENT in your editor ($VISUAL or $EDITOR).

    What the agent adds meanwhile is kept.
    """
    before = call_method("memory.show", agent=agent)["text"]
    edited = click.edit(f"{before}\n" if before else "", extension=".md")
    if edited is None or edited.strip() == before:
        echo("Nothing was changed.")
        return
    try:
        shown = call_method("memory.replace", agent=agent, text=edited.strip(), base=before)
    except RemoteClawError:
        echo_text(edited)  # else the work would be lost
        raise
    echo(f"The memory of {agent} has {shown['bytes']:,} of {shown['maxBytes']:,} bytes.")


@memory.command("undo")
@_agent
def undo_memory(agent: str) -> None:
    """Undo the last change of the memory of AGENT."""
    undone = call_method("memory.undo", agent=agent)
    if not undone.get("undone"):
        echo("There is no change to undo.")
        return
    echo(f"Undone: {one_line(undone['undone'])}.")
