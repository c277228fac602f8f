"""Completion of names in a shell: agents and sessions."""

import click
from click.shell_completion import CompletionItem

from remoteclaw.errors import RemoteClawError

#: How many of the newest sessions are offered.
MOST_OFFERED = 50


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
    import asyncio

    from remoteclaw.cli.over_gateway import linked
    from remoteclaw.config.home import Home

    async def ask() -> list[CompletionItem]:
        opening = ("sessions.list", {"limit": MOST_OFFERED})
        async with linked(Home.default(), opening) as (_, told):
            return [
                CompletionItem(
                    each.get("label") or each["id"][:8], help=each.get("title") or each["key"]
                )
                for each in told["sessions"]
            ]

    offered: list[CompletionItem] = []
    try:
        offered = asyncio.run(ask())
    except* (RemoteClawError, OSError):
        pass
    return [item for item in offered if str(item.value).startswith(begun)]
