"""The commands `terminals` and `audit`: agents' own terminal programs, and who did what in them."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import ask_gateway, with_fleet
from remoteclaw.cli.completion import complete_agents, complete_sessions
from remoteclaw.cli.output import age, clock, echo, echo_json, echo_text, json_option, listing

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.audit import Deed

HEADS = ("TERMINAL", "AGENT", "NAME", "STATE", "ACTIVITY", "AGE", "HOST", "WRITER", "TITLE")

session_argument = click.argument("session", shell_complete=complete_sessions)


@click.group()
def terminals() -> None:
    """List, read and end agents' own terminal programs.

    SESSION is a session of any channel: its label, its key, or the start of its title or id.
    `remoteclaw attach` opens a terminal and types in it.
    """


@terminals.command("list")
@click.option(
    "--agent", metavar="NAME", shell_complete=complete_agents, help="Only terminals of this agent."
)
@json_option
def list_terminals(agent: str | None, as_json: bool) -> None:
    """List the terminals that are open, and those of the last days."""
    told = ask_gateway("terminals.list", {"agent": agent} if agent else {})
    listing(
        told["terminals"],
        as_json=as_json,
        plain=dict,
        heads=HEADS,
        row=_row,
        narrows="TITLE",
        empty="No terminal is open: `remoteclaw attach` opens one.",
    )


def _row(terminal: Mapping[str, Any]) -> Sequence[object]:
    return (
        terminal["sid"][:8],
        terminal["agent"],
        terminal["name"],
        terminal["state"],
        _doing(terminal),
        age(terminal["sinceMs"]),
        terminal["host"],
        terminal["writer"],
        terminal["title"],
    )


def _doing(terminal: Mapping[str, Any]) -> str:
    if terminal["state"] != "live":
        return str(terminal["reason"])
    waits = terminal["waitingFor"]
    return f"{terminal['activity']}: {waits}" if waits else str(terminal["activity"])


@terminals.command("screen")
@session_argument
@json_option
def screen_of_terminal(session: str, as_json: bool) -> None:
    """Print what a terminal shows now.

    As JSON, with its colours, the cursor and the modes.
    """
    told = ask_gateway("terminals.screen", {"sid": session})
    if as_json:
        echo_json(told)
    else:
        echo_text(told["text"].rstrip("\n"))


@terminals.command("park")
@session_argument
@click.option("--force", is_flag=True, help="Also when it is busy, or its activity is unknown.")
def park_terminal(session: str, force: bool) -> None:
    """End an idle terminal so that it can be opened again."""
    ask_gateway("terminals.park", {"sid": session, "force": force})


@terminals.command("end")
@session_argument
def end_terminal(session: str) -> None:
    """End a terminal, whatever it does."""
    ask_gateway("terminals.end", {"sid": session})


@terminals.command("key")
@session_argument
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def press_keys(session: str, names: tuple[str, ...]) -> None:
    """Press keys in a terminal, by name.

    Such as `enter`, `esc`, `up`, `shift+tab`, `ctrl+c` or `alt+x`.
    """
    ask_gateway("terminals.key", {"sid": session, "key": list(names)})


@terminals.command("input")
@session_argument
@click.argument("text")
def type_input(session: str, text: str) -> None:
    """Type a text into an idle terminal and submit it.

    `-` is standard input. Without an open terminal it becomes a message to the session, whose
    reference is printed.
    """
    if text == "-":
        text = sys.stdin.read()
    told = ask_gateway("terminals.input", {"sid": session, "text": text.removesuffix("\n")})
    if told.get("runId"):
        echo(str(told["runId"]))


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
        row=_row_of_deed,
        empty="Nothing was done with a terminal yet.",
    )


def _row_of_deed(deed: "Deed") -> tuple[object, ...]:
    did = f"{deed.did} (forced)" if deed.is_forced else deed.did
    return clock(deed.at_ms), deed.who, did, deed.outcome, deed.session[:32], deed.address
