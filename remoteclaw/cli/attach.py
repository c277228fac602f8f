"""The command `attach`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.chat import url_option
from remoteclaw.cli.completion import complete_agents, complete_sessions
from remoteclaw.cli.output import complain, echo, echo_text

if TYPE_CHECKING:
    from remoteclaw.attach.app import AttachEnd
    from remoteclaw.attach.remote import TerminalTarget
    from remoteclaw.client.link import Address


@click.command()
@click.argument("session", required=False, shell_complete=complete_sessions)
@click.option("--read-only", is_flag=True, help="Only watch: don't open the program, don't type.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agents,
    help="The agent. [default: the one whose workspace contains this directory, else the first]",
)
@click.option(
    "--name",
    metavar="NAME",
    default="main",
    show_default=True,
    help="The conversation with the agent; `main` is that of `remoteclaw chat`.",
)
@click.option("--prompt", metavar="TEXT", default="", help="The first message to the agent.")
@url_option
def attach(
    session: str | None, read_only: bool, agent: str | None, name: str, prompt: str, url: str | None
) -> None:
    """Show and use an agent's own program in this terminal.

    SESSION names a session of any channel instead of an agent: its label, its key, or the start of
    its title or id. The program is started unless it runs, and keeps running when you leave.

    Ctrl-] d leaves, Ctrl-] c takes the keyboard, Ctrl-] ? lists the other keys. The exit status is
    the program's own when it has ended, 0 when you have left, and 3 when the terminal was ended or
    can't be reached.
    """
    if session and agent:
        raise click.UsageError("Name a session or an agent, not both.")
    if read_only and prompt:
        raise click.UsageError("--read-only starts no program, so it can't be used with --prompt.")
    if "REMOTECLAW_HOLDER" in os.environ:
        raise click.UsageError(
            "This is a terminal of RemoteClaw already: attach from a shell of your own."
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "`attach` needs a terminal; `remoteclaw terminals screen SESSION` prints the screen."
        )
    import asyncio

    from remoteclaw.attach.remote import TerminalTarget
    from remoteclaw.cli.over_gateway import gateway_at
    from remoteclaw.config.home import Home

    target = TerminalTarget(session=session, agent=agent, name=name, prompt=prompt)
    address, token = gateway_at(url, Home.default(), scope="terminal")
    if not (session or agent or url):
        target = _with_agent_here(target)
    end = asyncio.run(_attach(address, token, target, is_reader=read_only))
    if end.screen:
        echo_text(end.screen)
    if end.message:
        (complain if end.status else echo)(end.message)
    sys.exit(end.status)


def _with_agent_here(target: "TerminalTarget") -> "TerminalTarget":
    """Return `target` with the agent whose workspace contains this directory, if there is one.

    Of several workspaces, the innermost counts.
    """
    from dataclasses import replace

    from remoteclaw.cli.access import load

    home, config = load()
    here, matches = Path.cwd(), []
    for agent, settings in config.agents.items():
        workspace = home.workspace_path(agent, settings).resolve()
        if here.is_relative_to(workspace):
            matches.append((len(workspace.parts), agent))
    if not matches:
        return target
    # `max` returns the first of equals: of two agents with one workspace, the first one configured.
    _, agent = max(matches, key=lambda each: each[0])
    return replace(target, agent=agent)


async def _attach(
    address: "Address", token: str, target: "TerminalTarget", *, is_reader: bool
) -> "AttachEnd":
    from remoteclaw.attach.app import AttachSession
    from remoteclaw.attach.paint import has_true_colour
    from remoteclaw.attach.window import Window

    window = Window(os.ttyname(sys.stdin.fileno()))
    try:
        return await AttachSession(
            address,
            token,
            target=target,
            window=window,
            is_reader=is_reader,
            has_true_colour=has_true_colour(os.environ),
        ).run()
    finally:
        window.close()
