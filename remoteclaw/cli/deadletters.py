"""The commands `deadletters` and `replies`: dead letters, and replies not delivered yet."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import on_fleet, with_fleet
from remoteclaw.cli.output import (
    echo,
    echo_json,
    echo_text,
    format_time,
    json_option,
    print_facts,
    print_list,
)

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.replies.deadletters import DeadLetter
    from remoteclaw.fleet.replies.replies import UndeliveredReply


@click.group()
def deadletters() -> None:
    """List, retry and drop messages and replies that were given up.

    LETTER is the id of one of them, as `deadletters list` shows it.
    """


@deadletters.command("list")
@json_option
@with_fleet
async def list_letters(fleet: "Fleet", as_json: bool) -> None:
    """List the messages and replies that were given up, oldest first."""
    print_list(
        await fleet.dead_letters.list(),
        as_json=as_json,
        to_json=_to_json,
        headers=("LETTER", "GIVEN UP", "TRIES", "WHY", "SESSION"),
        row=_row,
        empty="No message was given up.",
    )


def _to_json(letter: "DeadLetter") -> dict[str, Any]:
    return {
        "id": letter.id,
        "session": str(letter.session) if letter.session else None,
        "account": letter.account or None,
        "reference": _reference(letter),
        "category": letter.category,
        "detail": letter.detail,
        "attempts": letter.attempts,
        "given_up_ms": letter.given_up_ms,
    }


def _row(letter: "DeadLetter") -> tuple[object, ...]:
    given_up = format_time(letter.given_up_ms)
    return letter.id, given_up, letter.attempts, letter.category, letter.session or letter.account


def _reference(letter: "DeadLetter") -> str:
    """Return the reference of the message that `letter` holds, or that its reply answers."""
    if letter.reply:
        return f"{letter.reply.sid[:8]}-{letter.reply.turn}"
    return f"{letter.session.sid[:8]}-{letter.entry_id}" if letter.session else ""


@deadletters.command("show")
@click.argument("letter")
@json_option
@with_fleet
async def show_letter(fleet: "Fleet", letter: str, as_json: bool) -> None:
    """Show a message or reply that was given up, with its text."""
    found = await fleet.dead_letters.read(letter)
    if as_json:
        names = ("name", "mime_type", "size")
        data = {
            **_to_json(found),
            "text": found.text,
            "files": [{name: getattr(file, name) for name in names} for file in found.attachments],
        }
        echo_json(data)
        return
    files = (f"{file.name} ({file.mime_type}, {file.size} bytes)" for file in found.attachments)
    print_facts(
        {
            "session": found.session or "",
            "message": _reference(found),
            "for": found.account,
            "why": f"{found.category} {found.detail}",
            "tried": f"{found.attempts} times",
            "files": ", ".join(files),
        }
    )
    echo("")
    echo_text("(It can't be read.)" if found.text is None else found.text)


@deadletters.command("retry")
@click.argument("letter")
@with_fleet
async def retry_letter(fleet: "Fleet", letter: str) -> None:
    """Retry a message in its session, or a reply in its chat.

    The reply to a message goes to its chat. If the message came from `send`, which no longer waits
    for it, `sessions export` prints the reply.
    """
    found, accepted = await fleet.dead_letters.try_again(letter)
    if accepted is None:
        echo(f"It is sent again by {found.account}.")
    else:
        echo(f"It is tried again as {accepted.session.sid[:8]}-{accepted.entry_id}.")


@deadletters.command("drop")
@click.argument("letter")
@with_fleet
async def drop_letter(fleet: "Fleet", letter: str) -> None:
    """Delete a message or reply that was given up."""
    await fleet.dead_letters.drop(letter)
    echo("It is gone.")


@click.group()
def replies() -> None:
    """List or drop undelivered replies."""


@replies.command("list")
@json_option
@with_fleet
async def list_replies(fleet: "Fleet", as_json: bool) -> None:
    """List undelivered replies, one row per session, largest first.

    SIZE includes files. READ is whether an adapter reads the replies now.
    """
    from remoteclaw.host.files import format_size

    readers = await fleet.replies.readers()
    by_session: dict[tuple[str, str, str], list[UndeliveredReply]] = defaultdict(list)
    async for reply in fleet.replies.undelivered():
        by_session[reply.provider, reply.account, reply.sid].append(reply)
    sums: list[dict[str, Any]] = []
    for (provider, account, sid), undelivered in by_session.items():
        view = await fleet.sessions.view(sid)
        sums.append(
            {
                "account": f"{provider}/{account}",
                "is_read": readers.is_read(provider, account),
                "replies": len(undelivered),
                "bytes": sum(reply.size for reply in undelivered),
                "oldest_ms": min(reply.at_ms for reply in undelivered),
                "id": sid,
                "session": str(view.key) if view else sid or "unknown",
            }
        )
    sums.sort(key=lambda each: each["bytes"], reverse=True)
    print_list(
        sums,
        as_json=as_json,
        to_json=dict,
        headers=("ACCOUNT", "REPLIES", "SIZE", "OLDEST", "READ", "SESSION"),
        row=lambda each: (
            each["account"],
            each["replies"],
            format_size(each["bytes"]),
            format_time(each["oldest_ms"]),
            "yes" if each["is_read"] else "by no adapter",
            each["session"],
        ),
        empty="No reply waits to be delivered.",
    )


@replies.command("drop")
@click.argument("account", required=False)
@click.option("--session", metavar="SESSION", help="Only the replies of this session.")
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
def drop_replies(account: str | None, session: str | None, yes: bool) -> None:
    """Delete undelivered replies, with their files.

    ACCOUNT is as `replies list` shows it, such as telegram/default. The messages are not answered
    again; `sessions trace` shows that their replies were dropped.
    """
    from remoteclaw.host.files import format_size

    if account is None and session is None:
        raise click.UsageError("Say which replies: those of an ACCOUNT, or of --session SESSION.")

    async def run(fleet: "Fleet") -> None:
        found = [
            reply
            async for reply in fleet.replies.undelivered()
            if account in (None, f"{reply.provider}/{reply.account}")
        ]
        if session is not None:
            # A session without a record can't be looked up; its sid is on its replies.
            is_sid = any(reply.sid == session for reply in found)
            sid = session if is_sid else await fleet.sessions.find(session)
            found = [reply for reply in found if reply.sid == sid]
        if not found:
            echo("There is no such reply.")
            return
        size = format_size(sum(reply.size for reply in found))
        if not yes:
            click.confirm(f"Drop {len(found)} of the replies, {size}?", abort=True)
        echo(f"{await fleet.replies.drop(found)} dropped, {size}.")

    on_fleet(run)
