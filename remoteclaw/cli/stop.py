"""The command `stop`."""

from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import addressed, on_fleet, session_key
from remoteclaw.cli.edge import echo

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

__all__ = ["stop"]


@click.command()
@click.argument("session", required=False)
@addressed
def stop(session: str | None, **address: Any) -> None:
    """Stop what a session is doing and has waiting.

    SESSION is its key or the start of its id; without it, the options say which one.
    """

    async def run(fleet: "Fleet") -> None:
        wanted = session if session is not None else str(session_key(address))
        count = await fleet.sessions.stop(await fleet.sessions.find(wanted))
        messages = "message" if count == 1 else "messages"
        echo(f"Stopping {count} {messages}." if count else "There was nothing to stop.")

    on_fleet(run)
