"""Completion of names in a shell: agents and sessions."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from remoteclaw.errors import RemoteClawError

#: How many of the newest sessions are offered.
MAX_OFFERED = 50


def complete_agents(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the agents in the configuration."""
    from remoteclaw.cli.access import load

    try:
        agents = load()[1].agents
    except RemoteClawError:  # there is nowhere to say it
        return []
    return [CompletionItem(name) for name in agents if name.startswith(begun)]


def complete_sessions(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the labels of the newest sessions, else the starts of their ids with their titles.

    The gateway that runs here is asked; without one there are none.
    """
    from remoteclaw.cli.access import ask_gateway

    newest: list[dict[str, Any]] = []
    try:
        newest = ask_gateway("sessions.list", {"limit": MAX_OFFERED})["sessions"]
    except* (RemoteClawError, OSError):
        pass
    offered = [
        CompletionItem(each.get("label") or each["id"][:8], help=each.get("title") or each["key"])
        for each in newest
    ]
    return [item for item in offered if str(item.value).startswith(begun)]
