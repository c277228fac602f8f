"""The commands `deadletters` and `replies`: dead letters, and replies not delivered yet."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import call_method, on_fleet, with_fleet
from remoteclaw.cli.output import (
    complain,
    echo,
    echo_json,
    echo_text,
    format_time,
    interruptible,
    json_option,
    print_facts,
    print_list,
    print_result,
)

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.replies.replies import UndeliveredReply

#: `deadletters.list` returns at most this many.
MAX_LETTERS = 1000


@click.group()
def deadletters() -> None:
    """List, retry and drop messages and replies that were given up.

    LETTER is the id of one of them, as `deadletters list` shows it.
    """


@deadletters.command("list")
@json_option
def list_letters(as_json: bool) -> None:
    """List the messages and replies that were given up, oldest first."""
    result = call_method("deadletters.list", limit=MAX_LETTERS)
    print_result(
        result,
        "letters",
        as_json=as_json,
        headers=("LETTER", "GIVEN UP", "TRIES", "WHY", "SESSION"),
        row=lambda letter: (
            letter["id"],
            format_time(letter["givenUpMs"]),
            letter["attempts"],
            letter["category"],
            letter["sessionKey"] or letter["account"],
        ),
        empty="No message was given up.",
    )
    if more := result["count"] - len(result["letters"]):
        complain(f"{more:,} newer ones are not listed.")


@deadletters.command("show")
@click.argument("letter")
@json_option
def show_letter(letter: str, as_json: bool) -> None:
    """Show a message or reply that was given up, with its text."""
    found = call_method("deadletters.show", id=letter)
    if as_json:
        echo_json(found)
        return
    files = (
        f"{file['name']} ({file['mimeType']}, {file['size']} bytes)"
        for file in found["attachments"]
    )
    print_facts(
        {
            "session": found["sessionKey"],
            "message": found["reference"],
            "for": found["account"],
            "why": f"{found['category']} {found['detail']}",
            "tried": f"{found['attempts']} times",
            "files": ", ".join(files),
        }
    )
    echo("")
    echo_text("(It can't be read.)" if found["text"] is None else found["text"])


@deadletters.command("retry")
@click.argument("letter")
def retry_letter(letter: str) -> None:
    """Retry a message in its session, or a reply in its chat.

    The reply to a message goes to its chat. If the message came from `send`, which no longer waits
    for it, `sessions export` prints the reply.
    """
    retried = call_method("deadletters.retry", id=letter)
    if retried["runId"] is None:
        echo(f"It is sent again by {retried['account']}.")
    else:
        sid, _, entry = retried["runId"].partition("-")
        echo(f"It is tried again as {sid[:8]}-{entry}.")


@deadletters.command("drop")
@click.argument("letter")
def drop_letter(letter: str) -> None:
    """Delete a message or reply that was given up."""
    call_method("deadletters.drop", id=letter)
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
                "isRead": readers.is_read(provider, account),
                "replies": len(undelivered),
                "bytes": sum(reply.size for reply in undelivered),
                "oldestMs": min(reply.at_ms for reply in undelivered),
                "id": sid,
                "sessionKey": str(view.key) if view else sid or "unknown",
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
            format_time(each["oldestMs"]),
            "yes" if each["isRead"] else "by no adapter",
            each["sessionKey"],
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
            with interruptible():
                click.confirm(f"Drop {len(found)} of the replies, {size}?", abort=True)
        echo(f"{await fleet.replies.drop(found)} dropped, {size}.")

    on_fleet(run)
