"""Completes the names of agents and sessions in a shell."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from remoteclaw.errors import RemoteClawError

#: At most this many sessions are offered, the newest ones.
MAX_OFFERED = 50


def complete_agents(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the configured agents whose names begin with `incomplete`."""
    from remoteclaw.cli.access import load

    try:
        agents = load()[1].agents
    except RemoteClawError:  # completion can't show errors
        return []
    return [CompletionItem(name) for name in agents if name.startswith(incomplete)]


def complete_sessions(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the newest sessions whose labels, or else the starts of their ids, match.

    The sessions come from this state directory's gateway; without one, return none.
    """
    from remoteclaw.cli.access import call_gateway

    newest: list[dict[str, Any]] = []
    try:
        newest = call_gateway("sessions.list", {"limit": MAX_OFFERED})["sessions"]
    except* (RemoteClawError, OSError):
        pass
    offered = [
        CompletionItem(each.get("label") or each["id"][:8], help=each.get("title") or each["key"])
        for each in newest
    ]
    return [item for item in offered if str(item.value).startswith(incomplete)]
