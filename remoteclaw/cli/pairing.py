"""Commands for people who were let in, or ask for it: `pairing`."""

from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import with_fleet
from remoteclaw.cli.output import clock, echo, json_option, listing
from remoteclaw.errors import NotFound
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet


@click.group()
def pairing() -> None:
    """Let people write to the agents from chats, or no more."""


@pairing.command("list")
@json_option
@with_fleet
async def list_pairings(fleet: "Fleet", as_json: bool) -> None:
    """List who was let in by a code, and who asks for it."""
    found: list[dict[str, Any]] = [
        {"code": one.code, "id": one.id, "name": one.name, "by": "", "at_ms": one.at_ms}
        | {"account": f"{one.provider}/{one.account}", "state": "asks"}
        for one in await fleet.pairings.requests()
    ]
    found += [
        {"code": "", "id": one.id, "name": one.name, "by": one.by, "at_ms": one.at_ms}
        | {"account": f"{one.provider}/{one.account}", "state": "may write"}
        for one in await fleet.pairings.list()
    ]
    names = ("account", "state", "id", "name", "code", "by")
    listing(
        found,
        as_json=as_json,
        plain=dict,
        heads=("ACCOUNT", "STATE", "ID", "NAME", "CODE", "LET IN BY", "SINCE"),
        row=lambda one: (*(str(one[name]) for name in names), clock(one["at_ms"])),
        empty="Nobody was let in by a code, and nobody asks for it.",
    )


@pairing.command("approve")
@click.argument("code")
@with_fleet
async def approve_pairing(fleet: "Fleet", code: str) -> None:
    """Let in who was told CODE. Ask them for it: a name can be anybody's."""
    from remoteclaw.commands.pair import UNKNOWN, approve

    request = await approve(fleet, code, by="the command line")
    if request is None:
        raise NotFound(UNKNOWN)
    who = one_line(request.name) or "No name"
    where = f"{request.provider}/{request.account}"
    echo(f"{who}, {one_line(request.id)} on {where}, may write from now on.")


@pairing.command("remove")
@click.argument("id_", metavar="ID")
@click.option("--channel", metavar="NAME", help="On that channel alone.")
@with_fleet
async def remove_pairing(fleet: "Fleet", id_: str, channel: str | None) -> None:
    """Let in a person or a group no more, by the platform's ID."""
    removed = await fleet.pairings.remove(id_, provider=channel)
    if not removed:
        raise NotFound(
            f"Nobody with the id {id_!r} was let in by a code; owners and `allow` are in the "
            "configuration."
        )
    for one in removed:
        echo(f"{one_line(one.id)} on {one.provider}/{one.account} may not write any more.")
