"""Commands for dead letters: `deadletters`."""

import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import clock, on_fleet
from remoteclaw.cli.edge import echo, echo_text
from remoteclaw.cli.outcome import print_reply, reference_of, wait_option
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

__all__ = ["deadletters"]


@click.group()
def deadletters() -> None:
    """List, retry and drop messages that were given up."""


@deadletters.command("list")
def list_letters() -> None:
    """List them, oldest first."""

    async def run(fleet: "Fleet") -> None:
        echo(f"{'LETTER':<18}  {'GIVEN UP':<19}  TRIES  {'WHY':<12}  SESSION")
        for letter in await fleet.dead_letters.list():
            given_up = clock(int(letter.id.partition("-")[0]))
            why = one_line(letter.category, most=12)
            echo(f"{letter.id:<18}  {given_up}  {letter.attempts:>5}  {why:<12}  {letter.session}")

    on_fleet(run)


@deadletters.command("show")
@click.argument("letter")
def show_letter(letter: str) -> None:
    """Show one, with what the person wrote."""

    async def run(fleet: "Fleet") -> None:
        found = await fleet.dead_letters.read(letter)
        reference = f"{found.session.sid[:8]}-{found.entry_id}"
        echo(f"session   {found.session}")
        echo(f"message   {reference}")
        echo(f"why       {one_line(f'{found.category} {found.detail}')}")
        echo(f"tried     {found.attempts} times")
        for file in found.attachments:
            echo(f"file      {file.name} ({file.mime_type}, {file.size} bytes)")
        echo("")
        echo_text("(It can't be read.)" if found.text is None else found.text)

    on_fleet(run)


@deadletters.command("retry")
@click.argument("letter")
@wait_option
def retry_letter(letter: str, wait_s: float) -> None:
    """Retry one in its session, behind the messages that wait there.

    The reply goes to its chat. The reply to a `send`, which no longer waits for it, is printed
    here, with the same exit status.
    """

    async def run(fleet: "Fleet") -> int:
        found = await fleet.dead_letters.read(letter)
        accepted = await fleet.dead_letters.retry(letter)
        is_ours = found.deliver == "caller" and wait_s > 0
        echo(f"It is tried again as {reference_of(accepted)}.", err=is_ours)
        return await print_reply(fleet, accepted, wait_s) if is_ours else 0

    sys.exit(on_fleet(run))


@deadletters.command("drop")
@click.argument("letter")
def drop_letter(letter: str) -> None:
    """Throw it away."""

    async def run(fleet: "Fleet") -> None:
        await fleet.dead_letters.drop(letter)
        echo("It is gone.")

    on_fleet(run)
