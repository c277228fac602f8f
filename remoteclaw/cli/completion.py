"""Completes the names of agents and sessions in a shell."""

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
    import asyncio

    from remoteclaw.client.own import call_own_gateway
    from remoteclaw.config.home import Home

    limit = {"limit": MAX_OFFERED}
    try:
        found = asyncio.run(call_own_gateway(Home.default(), "sessions.search", limit))
    except (RemoteClawError, OSError):
        return []
    offered = [
        CompletionItem(each.get("label") or each["id"][:8], help=each.get("title") or each["key"])
        for each in found["sessions"]
    ]
    return [item for item in offered if str(item.value).startswith(incomplete)]
