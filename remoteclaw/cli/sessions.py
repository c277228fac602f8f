"""The commands `sessions …`; modules `archive`, `files` and `tree` add more of them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.completion import complete_sessions
from remoteclaw.cli.output import (
    echo,
    echo_json,
    format_age,
    format_time,
    json_option,
    print_facts,
    print_result,
    short_id,
)
from remoteclaw.cli.usage import usage_line
from remoteclaw.clock import now_ms
from remoteclaw.host.terminal import one_line

#: `sessions.search` returns at most this many sessions.
MAX_LISTED = 1000
HEADERS = (
    *("SESSION", "TITLE", "AGENT", "MODEL", "STATE"),
    *("WAITING", "TOKENS", "COST", "AGE", "KEY"),
)
#: The suffix of a queue setting that the session itself overrides.
OVERRIDDEN = " (the session's own)"


session_argument = click.argument("session", shell_complete=complete_sessions)
limit_option = click.option(
    "--limit",
    type=click.IntRange(1, MAX_LISTED),
    default=50,
    show_default=True,
    metavar="NUMBER",
    help="How many, newest first.",
)


@click.group()
def sessions() -> None:
    """List, show, search, label, fork, reset and export sessions.

    SESSION is a session's label, its key, or the start of its title or id.
    """


@sessions.command("list")
@limit_option
@json_option
def list_sessions(limit: int, as_json: bool) -> None:
    """List the sessions with the newest messages.

    Sessions that wait for a person's answer are first. TITLE is the session's label, or the first
    words of its conversation. WAITING counts the messages without an outcome, those of a running
    turn included. TOKENS counts the tokens read and written, without those from a
    cache. AGE is the time since the last message.
    """
    print_result(
        call_method("sessions.search", limit=limit, usage=True),
        "sessions",
        as_json=as_json,
        headers=HEADERS,
        row=_row,
        empty="There are no sessions yet.",
        cut_column="TITLE",
        is_last_optional=True,
    )


def _row(session: Mapping[str, Any]) -> tuple[object, ...]:
    from remoteclaw.events import format_cost

    used = session["usage"] or {}
    new_tokens = ("inputTokens", "cacheWriteTokens", "outputTokens")
    return (
        session["id"][:8],
        session["label"] or session["title"] or "",
        session["agent"],
        session["model"],
        "postponed"
        if session["postponed"] and session["state"] != "terminal"
        else session["state"],
        session["waiting"],
        sum(used[name] for name in new_tokens) if used else None,
        format_cost(used.get("costUsd")),
        format_age(session["lastMessageMs"]),
        f"{session['key']}{pause_of(session)}",
    )


@sessions.command("show")
@session_argument
@json_option
def show_session(session: str, as_json: bool) -> None:
    """Show a session's state, settings and usage."""
    shown = call_method("sessions.show", sessionKey=session)
    if as_json:
        echo_json(shown)
        return
    messages = "message" if shown["waiting"] == 1 else "messages"
    turn, context = shown["turn"], shown["context"]
    print_facts(
        {
            "key": shown["key"],
            "id": shown["id"],
            "label": shown["label"],
            "title": shown["title"],
            "model": shown["model"],
            "context": context and f"{context['percent']} %",
            "answers meanwhile": _fallback_of(shown),
            "project": shown["project"],
            "started by": shown["startedBy"],
            "has started": ", ".join(
                f"{short_id(task['key'])} ({task['state']})" for task in shown["hasStarted"]
            ),
            "state": f"{shown['state']}{pause_of(shown)}",
            "waiting": f"{shown['waiting']} {messages} without an outcome",
            "last message": format_time(shown["lastMessageMs"]),
            "worker": shown["worker"],
            "host": shown["host"],
            "lane": shown["lane"],
            "queue": ", ".join(
                f"{_key_of(name)} {shown['queue'][name]}" for name in shown["queue"]["own"]
            ),
            "turn": turn and f"{turn} ({shown['phase']})",
            "usage": usage_line(shown["usage"]) if shown["usage"] else None,
            "identity": shown.get("identity"),
            "conversation": ", ".join(_conversations(shown["conversations"])),
        }
    )


def _conversations(conversations: Mapping[str, str]) -> Iterator[str]:
    """Yield a text for each conversation that an agent CLI has of a session."""

    for name, conversation in conversations.items():
        # As `parts_of_name()`, whose package would load pydantic. A directory begins with a slash.
        agent_and_runtime, _, below = name.partition("|/")
        runtime, workspace = agent_and_runtime.rpartition("|")[2], f"/{below}"
        yield f"{conversation} of {runtime} in {workspace}"


def _fallback_of(session: Mapping[str, Any]) -> str | None:
    """Return who answers in place of the agent or its model, and why; None if nobody does."""
    until_ms = session["fallbackUntilMs"]
    if not session["fallbackBy"] or (until_ms and until_ms <= now_ms()):
        return None
    until = f", until {format_time(until_ms)}" if until_ms else ""
    # As `ANOTHER_AGENT`, whose package would load pydantic.
    by = session["fallbackBy"].removeprefix("agent:")
    return f"{by} ({session['fallbackFor']}{until})"


def pause_of(session: Mapping[str, Any]) -> str:
    """Return the suffix of a session with a turn that is postponed; else an empty text."""
    until_ms = session["postponedUntilMs"]
    if until_ms is None or until_ms <= now_ms():
        return ""
    subject = "" if session["isPostponed"] else "the kept turn "
    return f", {subject}waits until {format_time(until_ms)} ({session['postponedFor']})"


@sessions.command("fork")
@session_argument
@click.option("--thread", metavar="NAME", help="The new session's thread. [default: the same]")
@click.option("--from", "user", metavar="USER", help="The new session's user. [default: the same]")
def fork_session(session: str, thread: str | None, user: str | None) -> None:
    """Begin a session with a copy of another session's conversation.

    The agent CLI makes the copy at the new session's first turn, if it can; if not, the new session
    begins with RemoteClaw's record of the conversation. A running turn is not copied. Prints the
    new session's key.
    """
    forked = call_method("sessions.fork", sessionKey=session, threadId=thread, user=user)
    echo(forked["sessionKey"])


@sessions.command("label")
@session_argument
@click.argument("name", required=False)
@click.option("--remove", is_flag=True, help="Remove the label.")
def label_session(session: str, name: str | None, remove: bool) -> None:
    """Give a session a label, by which agents can write to it.

    A label is unique among the sessions of an agent.
    """
    if (name is None) != remove:
        raise click.UsageError("Say either the label's NAME or --remove.")
    call_method("sessions.label", sessionKey=session, label=name)


@sessions.command("retry")
@session_argument
def retry_session(session: str) -> None:
    """Ask the agent of a postponed session again now."""
    retried = call_method("sessions.retry", sessionKey=session)["retried"]
    echo("The agent is asked again." if retried else "The session is not postponed.")


@sessions.command("queue")
@session_argument
@click.option(
    "--mode",
    type=click.Choice(["aside", "collect", "followup", "steer", "interrupt"]),
    help="Answer a message during the running turn (aside), with all others in the next turn "
    "(collect), in its own turn (followup), in the running turn (steer), or in a turn in its place "
    "(interrupt).",
)
@click.option(
    "--debounce-ms",
    "debounceMs",
    type=click.IntRange(0, 60_000),
    metavar="NUMBER",
    help="Milliseconds without a new message before the next turn begins.",
)
@click.option(
    "--cap",
    type=click.IntRange(0, 1_000_000_000),
    metavar="NUMBER",
    help="How many messages may wait; 0 for no limit.",
)
@click.option(
    "--drop",
    type=click.Choice(["old", "new", "summarize"]),
    help="What to drop beyond --cap: the oldest messages (old), the same but with their beginnings "
    "shown to the agent (summarize), or new ones (new).",
)
@click.option(
    "--gather-ms",
    "gatherMs",
    type=click.IntRange(0, 60_000),
    metavar="NUMBER",
    help="Milliseconds without a new message before an idle session answers people who write to "
    "each other in a group.",
)
@click.option(
    "--gather-most-ms",
    "gatherMostMs",
    type=click.IntRange(0, 60_000),
    metavar="NUMBER",
    help="The maximum wait of the first of these messages, in milliseconds.",
)
@click.option("--reset", is_flag=True, help="Remove the session's own settings.")
@json_option
def queue_of_session(session: str, reset: bool, as_json: bool, **settings: Any) -> None:
    """Set how a session handles messages during a turn, or in a burst.

    Without options, only shows the settings. They apply from the session's next turn on.
    """
    queue = call_method("sessions.queue", sessionKey=session, reset=reset, **settings)
    if as_json:
        echo_json(queue)
        return
    own = queue.pop("own")
    for name, value in queue.items():
        echo(f"{_key_of(name):<14} {value}{OVERRIDDEN if name in own else ''}")


def _key_of(name: str) -> str:
    """Return the key of the configuration for a field of JSON: `debounce_ms` for `debounceMs`."""
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


@sessions.command("trace")
@click.argument("message", shell_complete=complete_sessions)
@json_option
def trace_message(message: str, as_json: bool) -> None:
    """Show every state that a message passed through, with times.

    It also shows the requests to people during the turn.

    MESSAGE is a message's reference, as errors name it; a session, for its newest message; or one
    of RemoteClaw's own messages in a chat, such as telegram/default/CHAT/MESSAGE, for the message
    that it answers.
    """
    result = call_method("sessions.trace", what=message)
    if as_json:
        echo_json(result)
        return
    (trace,) = result["messages"]
    echo(f"{trace['reference']}  {trace['status']}  {result['sessionKey'] or ''}")
    first_ms = trace["steps"][0]["atMs"]
    for step in trace["steps"]:
        attempt = f"attempt {step['attempt']}" if step["attempt"] else ""
        at_ms = step["atMs"]
        times = f"{format_time(at_ms, milliseconds=True)}  {at_ms - first_ms:>8} ms"
        line = f"  {times}  {step['name']:<10} {attempt:<10} {one_line(step['detail'])}"
        echo(line.rstrip())
    if trace["usage"]:
        echo(f"  {usage_line(trace['usage'])}")
    if trace["asideUsage"] and trace["asideUsage"] != trace["usage"]:
        echo(f"  {usage_line(trace['asideUsage'])}")
    if error := trace["error"]:
        parts = (error.get("category"), error.get("detail"))
        echo(f"  {one_line(': '.join(str(part) for part in parts if part))}")
    if trace["status"] == "dead":
        echo("  It is kept as a dead letter: see `remoteclaw deadletters list`.")
