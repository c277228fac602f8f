"""The commands `asks`: what agents ask people for."""

import functools
import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import ask
from remoteclaw.cli.output import (
    age,
    clock,
    complain,
    echo,
    echo_json,
    echo_text,
    facts,
    json_option,
    listing,
    plain,
    short_id,
)
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.tools.asks import Ask

HEADS = ("REQUEST", "STATE", "AGE", "UNTIL", "SESSION", "AGENT", "TOOL")
#: How much of what would be done is in a list, in characters.
MAX_LISTED = 120
_plain = functools.partial(plain, session_key="session")


@click.group()
def asks() -> None:
    """List and answer what agents ask people for.

    A REQUEST is named by its id, as the chat and `asks list` show it.
    """


@asks.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also those that can't be answered any more.")
@json_option
def list_asks(is_all: bool, as_json: bool) -> None:
    """List the requests that wait for an answer, oldest first."""
    listing(
        ask("asks.list", all=is_all).asks,
        as_json=as_json,
        plain=_plain,
        heads=(*HEADS, "ANSWER", "WHAT") if is_all else (*HEADS, "WHAT"),
        row=functools.partial(_row, is_all=is_all),
        narrows="WHAT",
        empty="No agent has asked for anything." if is_all else "No request waits for an answer.",
    )


def _row(request: "Ask", *, is_all: bool) -> tuple[object, ...]:
    answer = request.answer
    answered = f"{answer.verdict}, by {answer.by}" if answer else ""
    return (
        request.id,
        request.state,
        age(request.asked_ms),
        clock(request.until_ms) if request.until_ms else "",
        short_id(request.session_key),
        request.agent,
        request.tool,
        *((answered,) if is_all else ()),
        one_line(request.what, most=MAX_LISTED),
    )


@asks.command("show")
@click.argument("request")
@json_option
def show_ask(request: str, as_json: bool) -> None:
    """Show all of what is asked for, and what came of it."""
    found: Ask = ask("asks.show", id=request)
    if as_json:
        echo_json(_plain(found))
        return
    answer = found.answer
    facts(
        {
            "request": found.id,
            "session": found.session_key,
            "tool": found.tool,
            "in": found.where,
            "for": ", ".join(found.people) or "nobody",
            "asked": clock(found.asked_ms),
            "asked in": found.chat,
            "not shown": found.unshown,
            "state": found.state,
            "until": found.until_ms and clock(found.until_ms),
            "answer": answer and f"{answer.verdict}, by {answer.by} at {clock(answer.at_ms)}",
            "because": answer and answer.words,
        }
    )
    echo("")
    echo_text(found.what)


@asks.command("answer")
@click.argument("request")
@click.argument("verdict", type=click.Choice(["once", "conversation", "edits", "deny", "words"]))
@click.option("--reason", default="", help="Why it is denied; claude tells its model.")
@click.option(
    "--words", default="", help="The answer to a question, or the numbers of its choices."
)
def answer_ask(request: str, verdict: str, reason: str, words: str) -> None:
    """Allow what is asked for, once or for the conversation, or deny it.

    A question is answered with `words` and --words TEXT. A plan is approved with `once`, or with
    `edits`, which also allows changes of files for the conversation; `deny` has the agent plan on.

    The first answer counts.
    """
    if reason and verdict != "deny":
        raise click.UsageError("--reason is for deny.")
    if bool(words) != (verdict == "words"):
        raise click.UsageError("--words is for `words`, which needs it.")
    told = ask("asks.answer", id=request, verdict=verdict, reason=words or reason)
    if told.counts:
        echo(told.detail)
    else:
        complain(told.detail)
        sys.exit(1)
