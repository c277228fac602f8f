"""The command `stop`."""

from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import on_fleet
from remoteclaw.cli.output import echo

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

__all__ = ["stop"]


@click.command()
@click.argument("session")
def stop(session: str) -> None:
    """Stop what a session is doing and has waiting.

    SESSION is its key or the start of its id.
    """

    async def run(fleet: "Fleet") -> None:
        count = await fleet.sessions.stop(await fleet.sessions.find(session))
        messages = "message" if count == 1 else "messages"
        echo(f"Stopping {count} {messages}." if count else "There was nothing to stop.")

    on_fleet(run)
