"""The commands `sessions …`; modules `archive`, `files` and `tree` add more of them."""

from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import call_method, load, with_fleet
from remoteclaw.cli.completion import complete_sessions
from remoteclaw.cli.output import (
    echo,
    echo_json,
    format_age,
    format_time,
    json_option,
    print_facts,
    print_list,
    result_json,
)
from remoteclaw.cli.usage import usage_line
from remoteclaw.clock import now_ms
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remoteclaw.config.model import Config, QueueOverride
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.sessions.sessions import SessionView


HEADERS = (
    *("SESSION", "TITLE", "AGENT", "MODEL", "STATE"),
    *("WAITING", "TOKENS", "COST", "AGE", "KEY"),
)
#: The suffix of a queue setting that the session itself overrides.
OVERRIDDEN = " (the session's own)"


session_argument = click.argument("session", shell_complete=complete_sessions)
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
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
@with_fleet
async def list_sessions(fleet: "Fleet", limit: int, as_json: bool) -> None:
    """List the sessions with the newest messages.

    TITLE is the session's label, or the first words of its conversation. TOKENS counts the tokens
    read and written, without those from a cache. AGE is the time since the last message.
    """
    _, config = load()
    views = await fleet.sessions.list(limit=limit)
    used = await fleet.usage.by_session()

    def to_json(view: "SessionView") -> dict[str, Any]:
        spent = used.get(view.sid)
        return {**session_json(view, config), "usage": spent.plain() if spent else None}

    def row(view: "SessionView") -> tuple[object, ...]:
        spent = used.get(view.sid)
        return (
            view.sid[:8],
            view.name,
            view.key.agent,
            view.model_in(config),
            "postponed" if view.is_postponed else view.shown_status,
            view.waiting,
            spent.new_tokens if spent else None,
            spent.cost_text if spent else None,
            format_age(view.last_message_ms),
            f"{view.key}{pause_of(view)}",
        )

    print_list(
        views,
        as_json=as_json,
        to_json=to_json,
        headers=HEADERS,
        row=row,
        empty="There are no sessions yet.",
        cut_column="TITLE",
        is_last_optional=True,
    )


def session_json(view: "SessionView", config: "Config") -> dict[str, Any]:
    """Return the fields of a session for JSON output."""
    return {
        "id": view.sid,
        "key": str(view.key),
        "agent": view.key.agent,
        "model": view.model_in(config),
        "label": view.label,
        "title": view.title,
        "state": view.shown_status,
        "waiting": view.waiting,
        "last_message_ms": view.last_message_ms,
        "postponed_until_ms": view.postponed_until_ms,
        "postponed": view.postponed,
    }


@sessions.command("show")
@session_argument
@json_option
@with_fleet
async def show_session(fleet: "Fleet", session: str, as_json: bool) -> None:
    """Show a session's state, settings and usage."""
    _, config = load()
    view = await fleet.sessions.named(session)
    messages = "message" if view.waiting == 1 else "messages"
    started = await fleet.sessions.children(view.sid)
    used = await fleet.usage.session(view.key.agent, view.sid)
    if as_json:
        data = {
            **session_json(view, config),
            "project": view.project,
            "started_by": str(view.parent) if view.parent else None,
            "has_started": [str(child.key) for child in started],
            "worker": _worker(view.worker),
            "host": view.host,
            "lane": view.lane,
            "turn": view.turn,
            "phase": view.phase if view.turn else None,
            "usage": used.plain() if used else None,
            "conversations": dict(view.session_ids),
        }
        echo_json(data)
        return
    facts = {
        "key": view.key,
        "id": view.sid,
        "label": view.label,
        "title": view.title,
        "model": view.model_in(config),
        "project": view.project,
        "started by": view.parent,
        "has started": ", ".join(f"{child.sid[:8]} ({child.status})" for child in started),
        "state": f"{view.shown_status}{pause_of(view)}",
        "waiting": f"{view.waiting} {messages} without an outcome",
        "last message": format_time(view.last_message_ms),
        "worker": _worker(view.worker),
        "host": view.host,
        "lane": view.lane,
        "queue": _queue_overrides(view.queue),
        "turn": f"{view.sid[:8]}-{view.turn} ({view.phase})" if view.turn else None,
        "usage": usage_line(used) if used else None,
        "conversation": ", ".join(_conversations(view)),
    }
    print_facts(facts)


def _conversations(view: "SessionView") -> "Iterator[str]":
    """Yield a text for each conversation that an agent CLI has of a session."""
    for name, conversation in view.session_ids.items():
        runtime, _, workspace = name.partition("|")
        yield f"{conversation} of {runtime} in {workspace}"


def pause_of(view: "SessionView") -> str:
    """Return the suffix of a session with a turn that is postponed; else an empty text."""
    if view.postponed_until_ms is None or view.postponed_until_ms <= now_ms():
        return ""
    subject = "" if view.is_postponed else "the kept turn "
    return f", {subject}waits until {format_time(view.postponed_until_ms)} ({view.postponed_for})"


def _worker(label: str | None) -> str | None:
    """Return the process and host of a lease's owner; `label` has more to identify the process."""
    if label is None:
        return None
    host, _, rest = label.partition(" pid ")
    return f"process {rest.split()[0]} on {host}" if rest else label


def _queue_overrides(queue: "QueueOverride | None") -> str | None:
    """Return a session's own queue settings as text; None if it has none."""
    settings = queue.model_dump(exclude_none=True) if queue else {}
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or None


@sessions.command("fork")
@session_argument
@click.option("--thread", metavar="NAME", help="The new session's thread. [default: the same]")
@click.option("--from", "user", metavar="USER", help="The new session's user. [default: the same]")
@with_fleet
async def fork_session(fleet: "Fleet", session: str, thread: str | None, user: str | None) -> None:
    """Begin a session with a copy of another session's conversation.

    The agent CLI makes the copy at the new session's first turn, if it can; if not, the new session
    begins with RemoteClaw's record of the conversation. A running turn is not copied. Prints the
    new session's key.
    """
    from dataclasses import replace

    from remoteclaw.tasks.branches import copyable

    view = await fleet.sessions.named(session)
    target = replace(  # an ordinary session, even if the other one is a task
        view.key, user=user or view.key.user, thread=thread or view.key.thread, task=None
    )
    if target == view.key:
        raise click.UsageError(
            "Give another --thread or another --from: the new session needs its own key."
        )
    names = copyable(view.session_ids, is_busy=view.status != "idle")
    await fleet.sessions.fork(view, target, names)
    echo(str(target))


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
    retried = call_method("sessions.retry", sessionKey=session).retried
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
    queue = result_json(call_method("sessions.queue", sessionKey=session, reset=reset, **settings))
    if as_json:
        echo_json(queue)
        return
    own = queue.pop("own")
    for name, value in queue.items():
        echo(f"{name:<14} {value}{OVERRIDDEN if name in own else ''}")


@sessions.command("trace")
@click.argument("message", shell_complete=complete_sessions)
@json_option
@with_fleet
async def trace_message(fleet: "Fleet", message: str, as_json: bool) -> None:
    """Show every state that a message passed through, with times.

    It also shows the requests to people during the turn.

    MESSAGE is a message's reference, as errors name it; a session, for its newest message; or one
    of RemoteClaw's own messages in a chat, such as telegram/default/CHAT/MESSAGE, for the message
    that it answers.
    """
    from remoteclaw.gateway.traces import find_message, message_trace, read_trace

    sid, entry_id = await find_message(fleet, message)
    (outcome,) = await read_trace(fleet, sid, entry_id)
    view = await fleet.sessions.view(sid)
    session = str(view.key) if view else None
    if as_json:
        echo_json({"session": session, **result_json(message_trace(sid, outcome))})
        return
    echo(f"{sid[:8]}-{entry_id}  {outcome.status}  {session or ''}")
    first = outcome.steps[0].at_ms
    for step in outcome.steps:
        attempt = f"attempt {step.attempt}" if step.attempt else ""
        times = f"{format_time(step.at_ms, milliseconds=True)}  {step.at_ms - first:>8} ms"
        line = f"  {times}  {step.name:<10} {attempt:<10} {one_line(step.detail)}"
        echo(line.rstrip())
    if outcome.usage:
        echo(f"  {usage_line(outcome.usage)}")
    if outcome.aside_usage and outcome.aside_usage != outcome.usage:
        echo(f"  {usage_line(outcome.aside_usage)}")
    if outcome.error:
        error = (outcome.error.get("category"), outcome.error.get("detail"))
        echo(f"  {one_line(': '.join(str(part) for part in error if part))}")
    if outcome.status == "dead":
        echo("  It is kept as a dead letter: see `remoteclaw deadletters list`.")
