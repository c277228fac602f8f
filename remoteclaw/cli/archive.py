"""Commands that end, archive, export, search and delete conversations, and the command `stop`."""

import sys
import uuid
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import call_method, with_fleet
from remoteclaw.cli.outcome import EXIT_ERROR, EXIT_NO_OUTCOME, EXIT_REPLY, complain_of_no_workers
from remoteclaw.cli.output import (
    complain,
    echo,
    echo_text,
    format_age,
    format_time,
    json_option,
    print_list,
    result_json,
)
from remoteclaw.cli.sessions import limit_option, session_argument, sessions
from remoteclaw.errors import NotFound

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet


#: A search lists at most this many sessions.
MAX_FOUND = 1000


@sessions.command("reset")
@session_argument
@with_fleet
async def reset_session(fleet: "Fleet", session: str) -> int:
    """End a session's conversation: the next message begins a new one.

    The running turn and the waiting messages are stopped. The conversation is archived: `sessions
    archive` lists it. The session keeps its settings. Waits up to 15 seconds.
    Exit status: 0 it has ended, 1 it can't be ended, 3 it has not ended yet.
    """
    from remoteclaw.fleet.turns.inbound import RESET_S

    key = await fleet.sessions.key_of(session)
    entry_id = await fleet.inbound.end_conversation(key, "reset", call=uuid.uuid4().hex)
    if not any(view.is_ours for view in await fleet.workers.list()):
        complain_of_no_workers("so the conversation ends later", "")
    outcome = await fleet.outcomes.wait(key.sid, entry_id, timeout_s=RESET_S)
    if outcome is None:
        complain(
            f"The conversation has not ended within {RESET_S:g} s; "
            "it will end before any other message is answered."
        )
        return EXIT_NO_OUTCOME
    if outcome.status != "done":
        complain("The conversation goes on: its workers died each time. Look at their logs.")
        return EXIT_ERROR
    echo("The conversation has ended.")
    return EXIT_REPLY


@sessions.command("archive")
@session_argument
@json_option
@with_fleet
async def list_archived(fleet: "Fleet", session: str, as_json: bool) -> None:
    """List a session's ended conversations, newest first.

    WHY is the command that ended it, such as /new, or another reason. `sessions export SESSION
    --archived NUMBER` prints one of them.
    """
    from remoteclaw.session.record import count_messages

    archived = await fleet.records.ended(await fleet.sessions.find(session))
    conversations: list[dict[str, Any]] = [
        {
            "number": number,
            "ended_ms": each.at_ms,
            "messages": count_messages(each.record),
            "why": each.why,
        }
        for number, each in enumerate(archived, start=1)
    ]
    print_list(
        conversations,
        as_json=as_json,
        to_json=dict,
        headers=("NUMBER", "ENDED", "MESSAGES", "WHY"),
        row=lambda each: (
            each["number"],
            format_time(each["ended_ms"]),
            each["messages"],
            each["why"],
        ),
        empty="No ended conversation of this session is kept.",
    )


@sessions.command("export")
@session_argument
@click.option(
    "--archived",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Print an ended conversation, by its number in `sessions archive`.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("json", "markdown")),
    default="json",
    show_default=True,
    help="JSON lines for programs, or Markdown for people.",
)
@with_fleet
async def export_session(
    fleet: "Fleet", session: str, archived: int | None, output_format: str
) -> None:
    """Print the record of a session's conversation.

    JSON has one object per line, oldest first, each with `at`, in milliseconds since 1970, `role`,
    and the content.
    """
    from remoteclaw.session.record import as_markdown, current_record

    sid = await fleet.sessions.find(session)
    if archived is None:
        record = await current_record(fleet, sid)
    else:
        ended = await fleet.records.ended(sid)
        if archived > len(ended):
            raise NotFound(
                f"There is no ended conversation {archived} of {session!r}: "
                f"`remoteclaw sessions archive` lists {len(ended)}."
            )
        record = ended[archived - 1].record
    if not record:
        complain("Nothing is recorded of this conversation.")
    if output_format == "markdown":
        record = as_markdown(record).encode()
    if sys.stdout.isatty():  # a message may contain control sequences
        echo_text(record.decode("utf-8", "replace").removesuffix("\n"))
    else:
        sys.stdout.buffer.write(record)


def _check_words(_context: click.Context, _parameter: click.Parameter, words: str) -> str:
    """Return `words`. Raises `BadParameter` if they are blank: every session would match."""
    if not words.strip():
        raise click.BadParameter("say what to look for.")
    return words


@sessions.command("search")
@click.argument("words", callback=_check_words)
@limit_option
@json_option
def search_sessions(words: str, limit: int, as_json: bool) -> None:
    """List the sessions whose messages or names contain WORDS.

    Upper and lower case are the same. TEXT is the newest match in a message. Ended conversations
    are not searched.
    """
    result = call_method("sessions.search", query=words, limit=min(limit, MAX_FOUND))
    print_list(
        result.sessions,
        as_json=as_json,
        to_json=lambda each: {
            "id": each.id,
            "key": each.key,
            **(result_json(each.excerpt) if each.excerpt else dict.fromkeys(("at", "who", "text"))),
        },
        headers=("SESSION", "TITLE", "WHO", "AGE", "TEXT"),
        row=lambda each: (
            each.id[:8],
            each.label or each.title or "",
            each.excerpt.who if each.excerpt else None,
            format_age(each.excerpt.at if each.excerpt else each.last_message_ms),
            each.excerpt.text if each.excerpt else None,
        ),
        cut_column="TEXT",
        empty="No session contains these words.",
    )
    if result.searched:
        complain(f"Only the newest {result.searched:,} sessions were searched.")


@sessions.command("forget")
@session_argument
@with_fleet
async def forget_session(fleet: "Fleet", session: str) -> None:
    """Delete a session's record, with its archive and chat history.

    The agent CLI's own transcript is not deleted.
    """
    was_recorded = await fleet.records.forget(await fleet.sessions.find(session))
    echo("It is gone." if was_recorded else "Nothing was recorded of this conversation.")


@click.command()
@session_argument
@with_fleet
async def stop(fleet: "Fleet", session: str) -> None:
    """Stop a session's turn; drop what waits and what is not sent."""
    sid = await fleet.sessions.find(session)
    view = await fleet.sessions.view(sid)
    unsent = await fleet.replies.unsent(view.key) if view else 0
    count = await fleet.sessions.stop(sid)
    messages = "message" if count == 1 else "messages"
    if count or not unsent:
        echo(f"Stopping {count} {messages}." if count else "There was nothing to stop.")
    if unsent:
        messages = "message" if unsent == 1 else "messages"
        echo(f"Dropping {unsent} {messages} of the answer, not sent yet.")
