"""Commands for dead letters: `deadletters`."""

import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import on_fleet
from remoteclaw.cli.outcome import print_reply, reference_of, wait_option
from remoteclaw.cli.output import clock, echo, echo_text, facts, table

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
        rows = []
        for each in await fleet.dead_letters.list():
            given_up = clock(int(each.id.partition("-")[0]))
            rows.append((each.id, given_up, each.attempts, each.category, each.session))
        table(("LETTER", "GIVEN UP", "TRIES", "WHY", "SESSION"), rows)

    on_fleet(run)


@deadletters.command("show")
@click.argument("letter")
def show_letter(letter: str) -> None:
    """Show one, with what the person wrote."""

    async def run(fleet: "Fleet") -> None:
        found = await fleet.dead_letters.read(letter)
        reference = f"{found.session.sid[:8]}-{found.entry_id}"
        files = (f"{file.name} ({file.mime_type}, {file.size} bytes)" for file in found.attachments)
        facts(
            {
                "session": found.session,
                "message": reference,
                "why": f"{found.category} {found.detail}",
                "tried": f"{found.attempts} times",
                "files": ", ".join(files),
            }
        )
        echo("")
        echo_text(found.entry.message.text if found.entry else "(It can't be read.)")

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
        is_ours = found.entry is not None and found.entry.deliver == "caller" and wait_s > 0
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
