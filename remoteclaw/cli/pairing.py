"""The commands `pairing`: list, approve and revoke access by pairing codes."""

from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import with_fleet
from remoteclaw.cli.output import echo, format_time, json_option, print_list
from remoteclaw.errors import NotFound
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet


@click.group()
def pairing() -> None:
    """Give people access to the agents from chats, or revoke it."""


@pairing.command("list")
@json_option
@with_fleet
async def list_pairings(fleet: "Fleet", as_json: bool) -> None:
    """List who has access by a code, and who requests access."""
    pairings: list[dict[str, Any]] = [
        {"code": each.code, "id": each.id, "name": each.name, "by": "", "at_ms": each.at_ms}
        | {"account": f"{each.provider}/{each.account}", "state": "asks"}
        for each in await fleet.pairings.requests()
    ]
    pairings += [
        {"code": "", "id": each.id, "name": each.name, "by": each.by, "at_ms": each.at_ms}
        | {"account": f"{each.provider}/{each.account}", "state": "may write"}
        for each in await fleet.pairings.list()
    ]
    names = ("account", "state", "id", "name", "code", "by")
    print_list(
        pairings,
        as_json=as_json,
        to_json=dict,
        headers=("ACCOUNT", "STATE", "ID", "NAME", "CODE", "APPROVED BY", "SINCE"),
        row=lambda each: (*(str(each[name]) for name in names), format_time(each["at_ms"])),
        empty="Nobody has access by a code, and nobody requests access.",
    )


@pairing.command("approve")
@click.argument("code")
@with_fleet
async def approve_pairing(fleet: "Fleet", code: str) -> None:
    """Give access to the person or group that received CODE.

    Ask the person for the code: anybody can use any name.
    """
    from remoteclaw.commands.pair import UNKNOWN, approve

    request = await approve(fleet, code, by="the command line")
    if request is None:
        raise NotFound(UNKNOWN)
    who = one_line(request.name) or "No name"
    where = f"{request.provider}/{request.account}"
    echo(f"{who}, {one_line(request.id)} on {where}, may write from now on.")


@pairing.command("remove")
@click.argument("id_", metavar="ID")
@click.option("--channel", metavar="NAME", help="Only on this channel.")
@with_fleet
async def remove_pairing(fleet: "Fleet", id_: str, channel: str | None) -> None:
    """Revoke the access of a person or group by its ID on the platform."""
    removed = await fleet.pairings.remove(id_, provider=channel)
    if not removed:
        raise NotFound(
            f"Nobody with the id {id_!r} has access by a code; owners and `allow` are in the "
            "configuration."
        )
    for each in removed:
        echo(f"{one_line(each.id)} on {each.provider}/{each.account} may not write any more.")
