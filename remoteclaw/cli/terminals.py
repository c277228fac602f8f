"""The commands `terminals`, for agents' own programs, and `audit`, for the log of their use."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.chat import url_option
from remoteclaw.cli.completion import complete_agents, complete_sessions
from remoteclaw.cli.output import (
    complain,
    echo,
    echo_json,
    echo_text,
    format_age,
    format_time,
    json_option,
    print_result,
)
from remoteclaw.errors import NotFound

HEADERS = ("TERMINAL", "AGENT", "NAME", "STATE", "ACTIVITY", "AGE", "HOST", "WRITER", "TITLE")

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
    """List the open terminals, and the ended ones of recent sessions."""
    print_result(
        call_method("terminals.list", agent=agent),
        "terminals",
        as_json=as_json,
        headers=HEADERS,
        row=_row,
        cut_column="TITLE",
        empty="No terminal is open: `remoteclaw attach` opens one.",
    )


def _row(terminal: Mapping[str, Any]) -> Sequence[object]:
    return (
        terminal["sid"][:8],
        terminal["agent"],
        terminal["name"],
        terminal["state"],
        _doing(terminal),
        format_age(terminal["sinceMs"]),
        terminal["host"],
        terminal["writer"],
        terminal["title"],
    )


def _doing(terminal: Mapping[str, Any]) -> str:
    if terminal["state"] != "live":
        return str(terminal["reason"])
    waiting_for = terminal["waitingFor"]
    return f"{terminal['activity']}: {waiting_for}" if waiting_for else str(terminal["activity"])


@terminals.command("screen")
@session_argument
@json_option
def screen_of_terminal(session: str, as_json: bool) -> None:
    """Print a terminal's current screen.

    With --json, also its colours, cursor and modes.
    """
    screen = call_method("terminals.screen", sid=session)
    if as_json:
        echo_json(screen)
    else:
        echo_text(screen["text"].rstrip("\n"))


@terminals.command("share")
@session_argument
@click.option(
    "--hours",
    type=click.FloatRange(0.1, 168),
    default=2,
    show_default=True,
    help="How long the link is valid.",
)
@click.option("--list", "is_listing", is_flag=True, help="List the valid links instead.")
@click.option(
    "--revoke",
    "revoked",
    is_flag=False,
    flag_value="all",
    metavar="[LINK]",
    help="Revoke the link with this id, or all links, instead.",
)
@json_option
def share_terminal(
    session: str, hours: float, is_listing: bool, revoked: str | None, as_json: bool
) -> None:
    """Print a link with which others watch a terminal in a browser.

    They can't type, and see no earlier rows, no chat, no files and no other session. The link ends
    after --hours, when it is revoked, and with the terminal.
    """
    if not (is_listing or revoked):
        shared = call_method("terminals.share", sid=session, minutes=round(hours * 60))
        until = format_time(shared["expiresMs"])
        if as_json:
            echo_json(shared)
            return
        echo(
            f"Who has this link can watch until {until} or until the terminal ends; "
            f"`remoteclaw terminals share {session} --revoke {shared['id']}` ends it:",
            err=True,
        )
        echo(shared["url"])
        return
    if revoked:
        links = call_method(
            "terminals.unshare", sid=session, link=None if revoked == "all" else revoked
        )
    else:
        links = call_method("terminals.links", sid=session)
    print_result(
        links,
        "links",
        as_json=as_json,
        headers=("LINK", "BY", "CREATED", "VALID UNTIL"),
        row=_link_row,
        empty="No link to this terminal is valid.",
    )


def _link_row(link: Mapping[str, Any]) -> Sequence[object]:
    return link["id"], link["by"], format_time(link["createdMs"]), format_time(link["expiresMs"])


@terminals.command("search")
@session_argument
@click.argument("text")
@json_option
def search_terminal(session: str, text: str, as_json: bool) -> None:
    """Print the rows of a terminal that have TEXT, oldest first.

    The screen and all rows above it that are kept are searched. TEXT is no pattern; upper and lower
    case are equal.
    """
    found = call_method("terminals.search", sid=session, text=text)
    if as_json:
        echo_json(found)
        return
    for row in found["rows"]:
        echo_text(row["text"])
    if not found["rows"]:
        complain("No row has this text.")
        sys.exit(1)


@terminals.command("record")
@session_argument
@click.argument("file")
@url_option
def record_terminal(session: str, file: str, url: str | None) -> None:
    """Record what a terminal shows from now on, in FILE.

    FILE is an asciicast of version 2, which `asciinema play FILE` plays. Ctrl-C ends the recording,
    and so does the end of the terminal.
    It has everything that the screen shows, so look at it before you give it to others.
    """
    import asyncio

    from remoteclaw.attach.recording import record
    from remoteclaw.cli.over_gateway import gateway_at
    from remoteclaw.config.home import Home

    address, token = gateway_at(url, Home.default(), scope="read")

    def on_begin(name: str) -> None:
        complain(f"Recording {name} in {file}: Ctrl-C ends it.")

    try:
        complain(asyncio.run(record(address, token, session, file, on_begin=on_begin)))
    except KeyboardInterrupt:
        complain(f"The recording is in {file}.")
    except FileExistsError:
        raise click.UsageError(f"{file} exists already: name a new file.") from None
    except OSError as error:
        raise NotFound(f"{file} can't be written: {error.strerror}.") from None


@terminals.command("park")
@session_argument
@click.option(
    "--force", is_flag=True, help="End it even if it is busy, or its activity is unknown."
)
def park_terminal(session: str, force: bool) -> None:
    """End an idle terminal so that it can be opened again."""
    call_method("terminals.park", sid=session, force=force)


@terminals.command("end")
@session_argument
def end_terminal(session: str) -> None:
    """End a terminal, even if it is busy."""
    call_method("terminals.end", sid=session)


@terminals.command("key")
@session_argument
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def press_keys(session: str, names: tuple[str, ...]) -> None:
    """Press keys in a terminal.

    NAME is a key's name, such as `enter`, `esc`, `up`, `shift+tab`, `ctrl+c` or `alt+x`.
    """
    call_method("terminals.type", sid=session, keys=[f"k:{name}" for name in names])


@terminals.command("input")
@session_argument
@click.argument("text")
def type_input(session: str, text: str) -> None:
    """Type TEXT into an idle terminal and submit it.

    If TEXT is -, standard input is typed. If no terminal is open, the text is sent to the session
    as a message, and the message's reference is printed.
    """
    if text == "-":
        text = sys.stdin.read()
    text = text.removesuffix("\n")
    terminal = call_method("terminals.get", sid=session)
    if terminal["state"] in ("starting", "live"):
        call_method("terminals.type", sid=terminal["sid"], keys=[f"p:{text}"], submit=True)
    else:
        key = terminal["sessionKey"]
        echo(call_method("sessions.write", sessionKey=key, message=text, toCaller=True)["runId"])


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="How many entries.",
)
@json_option
def audit(limit: int, as_json: bool) -> None:
    """List what people did with terminals, and what was refused.

    The newest entry is first. Neither input nor output of terminals is recorded.
    """
    print_result(
        call_method("audit.list", limit=limit),
        "entries",
        as_json=as_json,
        headers=("AT", "WHO", "DID", "OUTCOME", "SESSION", "FROM"),
        row=_audit_row,
        empty="Nothing was done with a terminal yet.",
    )


def _audit_row(entry: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        format_time(entry["atMs"]),
        entry["who"],
        f"{entry['did']} (forced)" if entry["isForced"] else entry["did"],
        entry["outcome"],
        entry["session"][:32],
        entry["address"],
    )
