"""The command `stop`."""

from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import on_fleet
from remoteclaw.cli.output import echo
from remoteclaw.cli.sessions import session_argument

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

__all__ = ["stop"]


@click.command()
@session_argument
def stop(session: str) -> None:
    """Stop what a session is doing and has waiting."""

    async def run(fleet: "Fleet") -> None:
        count = await fleet.sessions.stop(await fleet.sessions.find(session))
        messages = "message" if count == 1 else "messages"
        echo(f"Stopping {count} {messages}." if count else "There was nothing to stop.")

    on_fleet(run)
