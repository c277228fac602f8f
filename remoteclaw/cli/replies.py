"""The commands about replies that are not delivered yet: `replies`."""

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import clock, on_fleet
from remoteclaw.cli.edge import echo, echo_text
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from datetime import datetime

    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.replies import Undelivered

__all__ = ["replies"]

#: How many sessions are shown of each account, those with most first; `--json` has all.
MOST_SHOWN = 5


@click.group(invoke_without_command=True)
@click.pass_context
def replies(ctx: click.Context) -> None:
    """List or drop undelivered replies."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_replies)


@replies.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a list of objects.")
def list_replies(as_json: bool = False) -> None:
    """List them by account, with the sessions that have made them.

    SIZE includes files. READ tells whether an adapter reads them now.
    """

    async def run(fleet: "Fleet") -> None:
        readers = await fleet.replies.readers()
        by_account: dict[tuple[str, str], list[Undelivered]] = defaultdict(list)
        async for reply in fleet.replies.undelivered():
            by_account[reply.provider, reply.account].append(reply)
        rows = []
        for (provider, account), found in by_account.items():
            by_session: dict[str, list[Undelivered]] = defaultdict(list)
            for reply in found:
                by_session[reply.sid].append(reply)
            made = [
                {"session": await _name(fleet, sid), "id": sid, **_sums(part)}
                for sid, part in by_session.items()
            ]
            row = {"account": f"{provider}/{account}", **_sums(found)}
            row["is_read"] = readers.is_there(provider, account)
            row["sessions"] = sorted(made, key=lambda each: each["bytes"], reverse=True)
            rows.append(row)
        if as_json:
            echo_text(json.dumps(rows, indent=2))
        elif rows:
            _print(rows)
        else:
            echo("No reply waits to be delivered.")

    on_fleet(run)


@replies.command("drop")
@click.argument("account", required=False)
@click.option("--session", metavar="SESSION", help="Those of a session: its key, or its id.")
@click.option(
    "--before",
    type=click.DateTime(("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")),
    metavar="TIME",
    help="Those that are older: 2026-01-31, or '2026-01-31 12:00:00'.",
)
@click.option("--yes", is_flag=True, help="Don't ask.")
def drop_replies(
    account: str | None, session: str | None, before: "datetime | None", yes: bool
) -> None:
    """Throw replies away that were not delivered, with their files.

    ACCOUNT is as `replies list` shows it, such as telegram/default. What the replies answer is
    not answered again; `sessions trace` says that they were dropped.
    """
    if account is None and session is None:
        raise click.UsageError("Say whose: an ACCOUNT, or --session SESSION.")

    async def run(fleet: "Fleet") -> None:
        sid = await _sid(fleet, session) if session is not None else None
        found = [
            reply
            async for reply in fleet.replies.undelivered()
            if account in (None, f"{reply.provider}/{reply.account}")
            and sid in (None, reply.sid)
            and (before is None or reply.at_ms < before.timestamp() * 1000)
        ]
        if not found:
            echo("There is no such reply.")
            return
        from remoteclaw.host.files import size_in_words

        size = size_in_words(sum(reply.size for reply in found))
        if not yes:
            click.confirm(f"Drop {len(found)} of the replies, {size}?", abort=True)
        echo(f"{await fleet.replies.drop(found)} dropped, {size}.")

    on_fleet(run)


def _sums(found: "list[Undelivered]") -> dict[str, Any]:
    return {
        "replies": len(found),
        "bytes": sum(reply.size for reply in found),
        "oldest_ms": min(reply.at_ms for reply in found),
    }


async def _sid(fleet: "Fleet", session: str) -> str:
    """Return the id of the session that is meant, also of one that nothing is known of."""
    from remoteclaw.errors import UnknownSession

    try:
        return await fleet.sessions.find(session)
    except UnknownSession:
        made = {reply.sid async for reply in fleet.replies.undelivered()}
        if session in made:
            return session
        raise


async def _name(fleet: "Fleet", sid: str) -> str:
    """Return a session's key, else what there is."""
    view = await fleet.sessions.view(sid)
    return str(view.key) if view else sid or "unknown"


def _print(rows: list[dict[str, Any]]) -> None:
    from remoteclaw.host.files import size_in_words

    width = max(8, *(len(row["account"]) for row in rows))
    echo(f"{'ACCOUNT':<{width}}  REPLIES  {'SIZE':>8}  {'OLDEST':<19}  READ")
    for row in rows:
        size, oldest = size_in_words(row["bytes"]), clock(row["oldest_ms"])
        read = "yes" if row["is_read"] else "by no adapter"
        account = one_line(row["account"])
        echo(f"{account:<{width}}  {row['replies']:>7}  {size:>8}  {oldest}  {read}")
        for made in row["sessions"][:MOST_SHOWN]:
            size, oldest = size_in_words(made["bytes"]), clock(made["oldest_ms"])
            name = one_line(f"{made['id'][:8]}  {made['session']}")
            echo(f"{'':<{width}}  {made['replies']:>7}  {size:>8}  {oldest}  {name}")
        if (more := len(row["sessions"]) - MOST_SHOWN) > 0:
            echo(f"{'':<{width}}  and those of {more} more sessions")
