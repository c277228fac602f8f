"""The commands `pairing`: list, approve and revoke access by pairing codes."""

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.output import echo, format_time, json_option, print_result
from remoteclaw.host.terminal import one_line


@click.group()
def pairing() -> None:
    """Give people access to the agents from chats, or revoke it."""


@pairing.command("list")
@json_option
def list_pairings(as_json: bool) -> None:
    """List who has access by a code, and who requests access."""
    names = ("account", "state", "id", "name", "code", "by")
    print_result(
        call_method("pairings.list"),
        "pairings",
        as_json=as_json,
        headers=("ACCOUNT", "STATE", "ID", "NAME", "CODE", "APPROVED BY", "SINCE"),
        row=lambda each: (*(each[name] or "" for name in names), format_time(each["atMs"])),
        empty="Nobody has access by a code, and nobody requests access.",
    )


@pairing.command("approve")
@click.argument("code")
def approve_pairing(code: str) -> None:
    """Give access to the person or group that received CODE.

    Ask the person for the code: anybody can use any name.
    """
    person = call_method("pairings.approve", code=code)
    who = one_line(person["name"]) or "No name"
    echo(f"{who}, {one_line(person['id'])} on {person['account']}, may write from now on.")


@pairing.command("remove")
@click.argument("id_", metavar="ID")
@click.option("--channel", metavar="NAME", help="Only on this channel.")
def remove_pairing(id_: str, channel: str | None) -> None:
    """Revoke the access of a person or group by its ID on the platform."""
    for each in call_method("pairings.remove", id=id_, channel=channel)["pairings"]:
        echo(f"{one_line(each['id'])} on {each['account']} may not write any more.")
