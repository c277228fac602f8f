"""Conversations: their end (`stop`, `sessions reset`), archive, export and search."""

import sys
import uuid
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import ask, with_fleet
from remoteclaw.cli.outcome import EXIT_ERROR, EXIT_NO_OUTCOME, EXIT_REPLY, complain_of_no_workers
from remoteclaw.cli.output import age, clock, complain, echo, echo_text, json_option, listing, plain
from remoteclaw.cli.sessions import limit_option, session_argument, sessions
from remoteclaw.errors import NotFound

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet


#: The most sessions that a search finds.
MAX_FOUND = 1000


@sessions.command("reset")
@session_argument
@with_fleet
async def reset_session(fleet: "Fleet", session: str) -> int:
    """End a session's conversation: the next message begins a new one.

    What the session is doing and has waiting is stopped, and what was said is put away: `sessions
    archive` lists it. Settings of the session stay. Waits for up to 15 seconds.
    Exit status: 0 it has ended, 1 it can't, 3 not yet.
    """
    from remoteclaw.fleet.inbound import RESET_S

    key = await fleet.sessions.key_of(session)
    entry_id = await fleet.inbound.end_conversation(key, "reset", call=uuid.uuid4().hex)
    if not any(view.is_ours for view in await fleet.workers.list()):
        complain_of_no_workers("so the conversation ends later", "")
    outcome = await fleet.outcomes.wait(key.sid, entry_id, timeout_s=RESET_S)
    if outcome is None:
        complain(
            f"The conversation has not ended within {RESET_S:g} s; "
            "it will, before anything else is answered."
        )
        return EXIT_NO_OUTCOME
    if outcome.status != "done":
        complain("The conversation goes on: its workers died each time; look at their logs.")
        return EXIT_ERROR
    echo("The conversation has ended.")
    return EXIT_REPLY


@sessions.command("archive")
@session_argument
@json_option
@with_fleet
async def list_ended(fleet: "Fleet", session: str, as_json: bool) -> None:
    """List a session's ended conversations, newest first.

    WHY is the word with which a person began a new one, or another reason. `sessions export
    SESSION --archived NUMBER` prints one.
    """
    from remoteclaw.session.record import count_messages

    ended = await fleet.records.ended(await fleet.sessions.find(session))
    told: list[dict[str, Any]] = [
        {
            "number": number,
            "ended_ms": one.at_ms,
            "messages": count_messages(one.record),
            "why": one.why,
        }
        for number, one in enumerate(ended, start=1)
    ]
    listing(
        told,
        as_json=as_json,
        plain=dict,
        heads=("NUMBER", "ENDED", "MESSAGES", "WHY"),
        row=lambda one: (one["number"], clock(one["ended_ms"]), one["messages"], one["why"]),
        empty="No ended conversation is kept of this session.",
    )


@sessions.command("export")
@session_argument
@click.option(
    "--archived",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="An ended conversation in place of the current one, as `sessions archive` numbers them.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("json", "markdown")),
    default="json",
    show_default=True,
    help="Lines for programs, or a text for people.",
)
@with_fleet
async def export_session(fleet: "Fleet", session: str, archived: int | None, form: str) -> None:
    """Print what was said in a session.

    As JSON that is one object a line, oldest first: `at` in milliseconds since 1970, `role`, and
    what it said.
    """
    from remoteclaw.session.record import as_markdown

    sid = await fleet.sessions.find(session)
    if archived is None:
        recorded = await fleet.records.of(sid)
    else:
        ended = await fleet.records.ended(sid)
        if archived > len(ended):
            raise NotFound(
                f"There is no ended conversation {archived} of {session!r}: "
                f"`remoteclaw sessions archive` lists {len(ended)}."
            )
        recorded = ended[archived - 1].record
    if not recorded:
        complain("Nothing is recorded of this conversation.")
    if form == "markdown":
        recorded = as_markdown(recorded).encode()
    if sys.stdout.isatty():  # what people wrote must not speak to the terminal
        echo_text(recorded.decode("utf-8", "replace").removesuffix("\n"))
    else:
        sys.stdout.buffer.write(recorded)


def _check_words(_context: click.Context, _parameter: click.Parameter, words: str) -> str:
    """Return the words of a search: without any, each session would be found."""
    if not words.strip():
        raise click.BadParameter("say what to look for.")
    return words


@sessions.command("search")
@click.argument("words", callback=_check_words)
@limit_option
@json_option
def search_sessions(words: str, limit: int, as_json: bool) -> None:
    """List the sessions in which something was said.

    TEXT is the newest place with these WORDS, in any case. Ended conversations are not searched.
    """
    found = ask("sessions.search", query=words, inWords=True, limit=min(limit, MAX_FOUND))
    listing(
        found.sessions,
        as_json=as_json,
        plain=lambda one: {"id": one.id, "key": one.key, **plain(one.excerpt)},
        heads=("SESSION", "TITLE", "WHO", "AGE", "TEXT"),
        row=lambda one: (
            one.id[:8],
            one.label or one.title or "",
            one.excerpt.who,
            age(one.excerpt.at),
            one.excerpt.text,
        ),
        narrows="TEXT",
        empty="Nobody has said that.",
    )
    if found.searched:
        complain(f"Only the newest {found.searched:,} sessions were searched.")


@sessions.command("forget")
@session_argument
@with_fleet
async def forget_session(fleet: "Fleet", session: str) -> None:
    """Remove the record of a session, with its archive and its chat.

    The agent's own CLI remembers what it remembers.
    """
    was_there = await fleet.records.forget(await fleet.sessions.find(session))
    echo("It is gone." if was_there else "Nothing was recorded of this conversation.")


@click.command()
@session_argument
@with_fleet
async def stop(fleet: "Fleet", session: str) -> None:
    """Stop what a session is doing and has waiting."""
    count = await fleet.sessions.stop(await fleet.sessions.find(session))
    messages = "message" if count == 1 else "messages"
    echo(f"Stopping {count} {messages}." if count else "There was nothing to stop.")
