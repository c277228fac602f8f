"""The command `attach`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.chat import url_option
from remoteclaw.cli.completion import complete_agents, complete_sessions
from remoteclaw.cli.output import complain, echo

if TYPE_CHECKING:
    from remoteclaw.attach.app import End
    from remoteclaw.attach.remote import Target
    from remoteclaw.client.link import Address


@click.command()
@click.argument("session", required=False, shell_complete=complete_sessions)
@click.option("--read-only", is_flag=True, help="Only watch: open nothing, type nothing.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agents,
    help="The agent. [default: the one whose workspace this directory is in, else the first]",
)
@click.option(
    "--name",
    metavar="NAME",
    default="main",
    show_default=True,
    help="Which conversation with the agent; `main` is the one of `remoteclaw chat`.",
)
@click.option("--prompt", metavar="TEXT", default="", help="The first message to the agent.")
@url_option
def attach(
    session: str | None, read_only: bool, agent: str | None, name: str, prompt: str, url: str | None
) -> None:
    """Show and use an agent's own program in this terminal.

    SESSION is a session of any channel, instead of an agent: its label, its key, or the start of
    its title or id. The program is opened unless it is open, and works on when this ends.

    Ctrl-] d leaves, Ctrl-] c takes the keyboard, Ctrl-] ? shows the rest. The
    exit status is the program's own when it has ended, 0 when you have left, and 3 when the
    terminal is gone.
    """
    if session and agent:
        raise click.UsageError("Name a session or an agent, not both.")
    if read_only and prompt:
        raise click.UsageError("--read-only opens nothing, so there is no --prompt for it.")
    if "REMOTECLAW_HOLDER" in os.environ:
        raise click.UsageError(
            "This is a terminal of RemoteClaw already: attach from a shell of your own."
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "`attach` needs a terminal; `remoteclaw terminals screen SESSION` prints the screen."
        )
    import asyncio

    from remoteclaw.attach.remote import Target
    from remoteclaw.cli.over_gateway import gateway_at
    from remoteclaw.config.home import Home

    target = Target(session=session, agent=agent, name=name, prompt=prompt)
    address, token = gateway_at(url, Home.default(), scope="terminal")
    if not (session or agent or url):
        target = _here(target)
    end = asyncio.run(_attach(address, token, target, is_reader=read_only))
    if end.words:
        (complain if end.status else echo)(end.words)
    sys.exit(end.status)


def _here(target: "Target") -> "Target":
    """Return the agent in whose workspace we are; of several, the innermost."""
    from dataclasses import replace

    from remoteclaw.cli.access import load

    home, config = load()
    here, found = Path.cwd(), []
    for agent, about in config.agents.items():
        workspace = home.workspace_path(agent, about).resolve()
        if here.is_relative_to(workspace):
            found.append((len(workspace.parts), agent))
    if not found:
        return target
    # Of two agents with one workspace, the first in the configuration.
    _, agent = max(found, key=lambda each: each[0])
    return replace(target, agent=agent)


async def _attach(address: "Address", token: str, target: "Target", *, is_reader: bool) -> "End":
    from remoteclaw.attach.app import Attachment
    from remoteclaw.attach.paint import colours_of
    from remoteclaw.attach.window import Window

    window = Window(os.ttyname(sys.stdin.fileno()))
    try:
        return await Attachment(
            address,
            token,
            target=target,
            window=window,
            is_reader=is_reader,
            has_all_colours=colours_of(os.environ),
        ).run()
    finally:
        window.close()
