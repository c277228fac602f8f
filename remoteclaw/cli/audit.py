"""The command `audit`: who did what with terminals."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import with_fleet
from remoteclaw.cli.output import clock, json_option, listing

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.audit import Deed


@click.command()
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many."
)
@json_option
@with_fleet
async def audit(fleet: "Fleet", limit: int, as_json: bool) -> None:
    """List who did what with terminals, and who was refused.

    The newest is first. What was typed or shown is not kept.
    """
    listing(
        await fleet.audit.newest(limit),
        as_json=as_json,
        plain=asdict,
        heads=("AT", "WHO", "DID", "OUTCOME", "SESSION", "FROM"),
        row=_row,
        empty="Nothing was done with a terminal yet.",
    )


def _row(deed: "Deed") -> tuple[object, ...]:
    did = f"{deed.did} (forced)" if deed.is_forced else deed.did
    return clock(deed.at_ms), deed.who, did, deed.outcome, deed.session[:32], deed.address
