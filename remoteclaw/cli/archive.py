"""Commands that end, archive, export, search and delete conversations, and the command `stop`."""

import itertools
import sys
from collections.abc import Mapping
from typing import Any

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.outcome import EXIT_NO_OUTCOME
from remoteclaw.cli.output import (
    complain,
    echo,
    echo_text,
    format_age,
    format_time,
    json_option,
    print_result,
)
from remoteclaw.cli.sessions import limit_option, session_argument, sessions
from remoteclaw.errors import RemoteClawError


@sessions.command("reset")
@session_argument
def reset_session(session: str) -> None:
    """End a session's conversation: the next message begins a new one.

    The running turn and the waiting messages are stopped. The conversation is archived: `sessions
    archive` lists it. The session keeps its settings. Waits up to 15 seconds.
    Exit status: 0 it has ended, 1 it can't be ended, 3 it has not ended yet.
    """
    try:
        call_method("sessions.reset", sessionKey=session)
    except RemoteClawError as error:
        if getattr(error, "code", None) != "TIMEOUT":
            raise
        complain(str(error))
        sys.exit(EXIT_NO_OUTCOME)
    echo("The conversation has ended.")


@sessions.command("archive")
@session_argument
@json_option
def list_archived(session: str, as_json: bool) -> None:
    """List a session's ended conversations, newest first.

    WHY is the command that ended it, such as /new, or another reason. `sessions export SESSION
    --archived NUMBER` prints one of them.
    """
    result = call_method("sessions.archive", sessionKey=session)
    numbers = itertools.count(1)
    print_result(
        result,
        "ended",
        as_json=as_json,
        headers=("NUMBER", "ENDED", "MESSAGES", "WHY"),
        row=lambda each: (
            next(numbers),
            format_time(each["endedMs"]),
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
def export_session(session: str, archived: int | None, output_format: str) -> None:
    """Print the record of a session's conversation.

    JSON has one object per line, oldest first, each with `at`, in milliseconds since 1970, `role`,
    and the content.
    """
    text = call_method(
        "sessions.export", sessionKey=session, archived=archived, format=output_format
    )["text"]
    if not text:
        complain("Nothing is recorded of this conversation.")
    if sys.stdout.isatty():  # a message may contain control sequences
        echo_text(text.removesuffix("\n"))
    else:
        sys.stdout.buffer.write(text.encode())


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
    result = call_method("sessions.search", filter=words, limit=limit)
    print_result(
        result,
        "sessions",
        as_json=as_json,
        headers=("SESSION", "TITLE", "WHO", "AGE", "TEXT"),
        row=_found_row,
        cut_column="TEXT",
        empty="No session contains these words.",
    )
    if result["searched"]:
        complain(f"Only the newest {result['searched']:,} sessions were searched.")


def _found_row(session: Mapping[str, Any]) -> tuple[object, ...]:
    excerpt = session["excerpt"] or {}
    return (
        session["id"][:8],
        session["label"] or session["title"] or "",
        excerpt.get("who"),
        format_age(excerpt.get("at", session["lastMessageMs"])),
        excerpt.get("text"),
    )


@sessions.command("forget")
@session_argument
def forget_session(session: str) -> None:
    """Delete a session's record, with its archive and chat history.

    The agent CLI's own transcript is not deleted.
    """
    was_recorded = call_method("sessions.forget", sessionKey=session)["wasRecorded"]
    echo("It is gone." if was_recorded else "Nothing was recorded of this conversation.")


@click.command()
@session_argument
def stop(session: str) -> None:
    """Stop a session's turn; drop what waits and what is not sent."""
    stopped = call_method("sessions.stop", sessionKey=session)
    count, unsent = stopped["stopped"], stopped["unsent"]
    messages = "message" if count == 1 else "messages"
    if count or not unsent:
        echo(f"Stopping {count} {messages}." if count else "There was nothing to stop.")
    if unsent:
        messages = "message" if unsent == 1 else "messages"
        echo(f"Dropping {unsent} {messages} of the answer, not sent yet.")
