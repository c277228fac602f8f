"""The command `stop`."""

from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import with_fleet
from remoteclaw.cli.output import echo
from remoteclaw.cli.sessions import session_argument

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

__all__ = ["stop"]


@click.command()
@session_argument
@with_fleet
async def stop(fleet: "Fleet", session: str) -> None:
    """Stop what a session is doing and has waiting."""
    count = await fleet.sessions.stop(await fleet.sessions.find(session))
    messages = "message" if count == 1 else "messages"
    echo(f"Stopping {count} {messages}." if count else "There was nothing to stop.")
