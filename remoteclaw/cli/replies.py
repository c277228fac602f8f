"""Commands for replies that are not delivered yet: `replies`."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import on_fleet, with_fleet
from remoteclaw.cli.output import clock, echo, json_option, listing

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.replies import Undelivered

__all__ = ["replies"]


@click.group()
def replies() -> None:
    """List or drop undelivered replies."""


@replies.command("list")
@json_option
@with_fleet
async def list_replies(fleet: "Fleet", as_json: bool) -> None:
    """List undelivered replies by their sessions, the largest first.

    SIZE includes files. READ tells whether an adapter reads them now.
    """
    from remoteclaw.host.files import size_in_words

    readers = await fleet.replies.readers()
    by_session: dict[tuple[str, str, str], list[Undelivered]] = defaultdict(list)
    async for reply in fleet.replies.undelivered():
        by_session[reply.provider, reply.account, reply.sid].append(reply)
    found: list[dict[str, Any]] = []
    for (provider, account, sid), made in by_session.items():
        view = await fleet.sessions.view(sid)
        about = {
            "account": f"{provider}/{account}",
            "is_read": readers.is_there(provider, account),
            "replies": len(made),
            "bytes": sum(reply.size for reply in made),
            "oldest_ms": min(reply.at_ms for reply in made),
            "id": sid,
            "session": str(view.key) if view else sid or "unknown",
        }
        found.append(about)
    found.sort(key=lambda each: each["bytes"], reverse=True)
    listing(
        found,
        as_json=as_json,
        plain=dict,
        heads=("ACCOUNT", "REPLIES", "SIZE", "OLDEST", "READ", "SESSION"),
        row=lambda each: (
            each["account"],
            each["replies"],
            size_in_words(each["bytes"]),
            clock(each["oldest_ms"]),
            "yes" if each["is_read"] else "by no adapter",
            each["session"],
        ),
        empty="No reply waits to be delivered.",
    )


@replies.command("drop")
@click.argument("account", required=False)
@click.option("--session", metavar="SESSION", help="Those of one session, by its name.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def drop_replies(account: str | None, session: str | None, yes: bool) -> None:
    """Throw replies away that were not delivered, with their files.

    ACCOUNT is as `replies list` shows it, such as telegram/default. What the replies answer is
    not answered again; `sessions trace` says that they were dropped.
    """
    from remoteclaw.host.files import size_in_words

    if account is None and session is None:
        raise click.UsageError("Say whose: an ACCOUNT, or --session SESSION.")

    async def run(fleet: "Fleet") -> None:
        found = [
            reply
            async for reply in fleet.replies.undelivered()
            if account in (None, f"{reply.provider}/{reply.account}")
        ]
        if session is not None:
            # One that is in none of them is named as everywhere, or is a mistake.
            is_sid = any(reply.sid == session for reply in found)
            sid = session if is_sid else await fleet.sessions.find(session)
            found = [reply for reply in found if reply.sid == sid]
        if not found:
            echo("There is no such reply.")
            return
        size = size_in_words(sum(reply.size for reply in found))
        if not yes:
            click.confirm(f"Drop {len(found)} of the replies, {size}?", abort=True)
        echo(f"{await fleet.replies.drop(found)} dropped, {size}.")

    on_fleet(run)
