"""The commands `asks`: what agents ask people for."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import load, with_fleet
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
)
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.request import Answered, Request, Verdict

HEADS = ("REQUEST", "STATE", "AGE", "UNTIL", "SESSION", "AGENT", "TOOL")
#: How much of what would be done is in a list, in characters.
MOST_LISTED = 120


@click.group()
def asks() -> None:
    """List and answer what agents ask people for.

    A REQUEST is named by its id, as the chat and `asks list` show it.
    """


@asks.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also those that can't be answered any more.")
@json_option
@with_fleet
async def list_asks(fleet: "Fleet", is_all: bool, as_json: bool) -> None:
    """List the requests that wait for an answer, oldest first."""
    listing(
        await (fleet.asks.all() if is_all else fleet.asks.waiting()),
        as_json=as_json,
        plain=_plain,
        heads=(*HEADS, "ANSWER", "WHAT") if is_all else (*HEADS, "WHAT"),
        row=lambda request: _row(request, is_all=is_all),
        narrows="WHAT",
        empty="No agent has asked for anything." if is_all else "No request waits for an answer.",
    )


def _plain(request: "Request") -> dict[str, Any]:
    answer = request.answer
    return {
        "id": request.id,
        "session": str(request.session),
        "agent": request.session.agent,
        "tool": request.tool,
        "what": request.what,
        "is_question": request.is_question,
        "choices": list(request.choices),
        "is_multiple": request.is_multiple,
        "where": request.where,
        "chat": str(request.chat) if request.chat else None,
        "unshown": request.unshown or None,
        "people": list(request.people),
        "state": request.state,
        "asked_ms": request.asked_ms,
        "until_ms": request.until_ms if request.can_pass else None,
        "answer": {**asdict(answer), "words": _words(answer)} if answer else None,
    }


def _words(answer: "Answered") -> str:
    """Return what somebody has answered: it may be a key that an agent has asked for."""
    from remoteclaw.bridge.scrubber import Scrubber

    return Scrubber().text(answer.words, len(answer.words))


def _row(request: "Request", *, is_all: bool) -> tuple[object, ...]:
    answer = request.answer
    answered = f"{answer.verdict}, by {answer.by}" if answer else ""
    return (
        request.id,
        request.state,
        age(request.asked_ms),
        clock(request.until_ms) if request.can_pass else "",
        request.session.sid[:8],
        request.session.agent,
        request.tool,
        *((answered,) if is_all else ()),
        one_line(request.what, most=MOST_LISTED),
    )


@asks.command("show")
@click.argument("request")
@json_option
@with_fleet
async def show_ask(fleet: "Fleet", request: str, as_json: bool) -> None:
    """Show all of what is asked for, and what came of it."""
    found = await fleet.asks.named(request)
    found = replace(found, what=await fleet.asks.whole(found))
    if as_json:
        echo_json(_plain(found))
        return
    answer = found.answer
    facts(
        {
            "request": found.id,
            "session": found.session,
            "tool": found.tool,
            "in": found.where,
            "for": ", ".join(found.people) or "nobody",
            "asked": clock(found.asked_ms),
            "asked in": found.chat,
            "not shown": found.unshown,
            "state": found.state,
            "until": clock(found.until_ms) if found.can_pass else "",
            "answer": answer and f"{answer.verdict}, by {answer.by} at {clock(answer.at_ms)}",
            "because": answer and _words(answer),
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
@with_fleet
async def answer_ask(
    fleet: "Fleet", request: str, verdict: "Verdict", reason: str, words: str
) -> int:
    """Allow what is asked for, once or for the conversation, or deny it.

    A question is answered with `words` and --words TEXT. A plan is approved with `once`, or with
    `edits`, which also allows changes of files for the conversation; `deny` has the agent plan on.

    The first answer counts.
    """
    from remoteclaw.commands.answers import answer_as_operator

    if reason and verdict != "deny":
        raise click.UsageError("--reason is for deny.")
    if bool(words) != (verdict == "words"):
        raise click.UsageError("--words is for `words`, which needs it.")
    told = await answer_as_operator(fleet, *load(), request, verdict, words or reason)
    if told.counts:
        echo(told.text)
        return 0
    complain(told.text)
    return 1
