"""The commands `requests`: list, show and answer the requests of agents."""

import functools
import sys
from collections.abc import Mapping
from typing import Any

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.output import (
    complain,
    echo,
    echo_json,
    echo_text,
    format_age,
    format_time,
    json_option,
    print_facts,
    print_result,
    short_id,
)
from remoteclaw.host.terminal import one_line

HEADERS = ("REQUEST", "STATE", "AGE", "UNTIL", "SESSION", "AGENT", "TOOL")
#: A list cuts the description of a request to this many characters.
MAX_LISTED_CHARS = 120


@click.group()
def requests() -> None:
    """List and answer the requests of agents.

    REQUEST is a request's id, as the chat and `requests list` show it.
    """


@requests.command("list")
@click.option(
    "--all", "is_all", is_flag=True, help="Also list requests that can't be answered any more."
)
@json_option
def list_requests(is_all: bool, as_json: bool) -> None:
    """List the requests that wait for an answer, oldest first."""
    print_result(
        call_method("requests.list", all=is_all),
        "requests",
        as_json=as_json,
        headers=(*HEADERS, "ANSWER", "WHAT") if is_all else (*HEADERS, "WHAT"),
        row=functools.partial(_row, is_all=is_all),
        cut_column="WHAT",
        empty="No agent has asked for anything." if is_all else "No request waits for an answer.",
    )


def _row(request: Mapping[str, Any], *, is_all: bool) -> tuple[object, ...]:
    answer, until_ms = request["answer"], request["untilMs"]
    answered = f"{answer['verdict']}, by {answer['by']}" if answer else ""
    return (
        request["id"],
        request["state"],
        format_age(request["askedMs"]),
        format_time(until_ms) if until_ms else "",
        short_id(request["sessionKey"]),
        request["agent"],
        request["tool"],
        *((answered,) if is_all else ()),
        one_line(request["what"], max_chars=MAX_LISTED_CHARS),
    )


@requests.command("show")
@click.argument("request")
@json_option
def show_request(request: str, as_json: bool) -> None:
    """Show a request in full, with its answer."""
    found = call_method("requests.show", id=request)
    if as_json:
        echo_json(found)
        return
    answer, until_ms = found["answer"], found["untilMs"]
    answered = answer and f"{answer['verdict']}, by {answer['by']} at "
    print_facts(
        {
            "request": found["id"],
            "session": found["sessionKey"],
            "tool": found["tool"],
            "in": found["where"],
            "for": ", ".join(found["people"]) or "nobody",
            "asked": format_time(found["askedMs"]),
            "asked in": found["chat"],
            "not shown": found["unshown"],
            "state": found["state"],
            "until": until_ms and format_time(until_ms),
            "answer": answer and f"{answered}{format_time(answer['atMs'])}",
            "because": answer and answer["words"],
        }
    )
    echo("")
    echo_text(found["what"])


@requests.command("answer")
@click.argument("request")
@click.argument("verdict", type=click.Choice(["once", "conversation", "edits", "deny", "words"]))
@click.option(
    "--reason", default="", help="The reason for a denial; claude passes it to its model."
)
@click.option(
    "--words", default="", help="The answer to a question, or the numbers of its choices."
)
def answer_request(request: str, verdict: str, reason: str, words: str) -> None:
    """Allow a request, once or for the conversation, or deny it.

    To answer a question, use `words` with --words TEXT. To approve a plan, use `once`, or `edits`,
    which also allows changes to files for the rest of the conversation; after `deny`, the agent
    continues to plan.

    For a budget, `once` allows half as much again, `conversation` lifts the limit until its period
    ends, and `deny` refuses messages until then.

    The first answer counts.
    """
    if reason and verdict != "deny":
        raise click.UsageError("--reason can be used only with the verdict `deny`.")
    if bool(words) != (verdict == "words"):
        raise click.UsageError("Use --words with the verdict `words`, and only with it.")
    given = call_method("requests.answer", id=request, verdict=verdict, reason=words or reason)
    if given["counts"]:
        echo(given["detail"])
    else:
        complain(given["detail"])
        sys.exit(1)
