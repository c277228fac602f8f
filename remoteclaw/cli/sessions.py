"""The commands `sessions …`, apart from those about ended conversations and files."""

from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import ask, load, with_fleet
from remoteclaw.cli.completion import complete_sessions
from remoteclaw.cli.output import age, clock, echo, echo_json, facts, json_option, listing, plain
from remoteclaw.cli.usage import cost_of, in_words
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remoteclaw.config.model import Config, QueueOverride
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.sessions import SessionView


HEADS = (
    *("SESSION", "TITLE", "AGENT", "MODEL", "STATE"),
    *("WAITING", "TOKENS", "COST", "AGE", "KEY"),
)
#: What stands behind a queue setting that is the session's own.
OWN = " (the session's own)"


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
    """Look at conversations.

    A SESSION is named by its label, its key, or the start of its title or id.
    """


@sessions.command("list")
@limit_option
@json_option
@with_fleet
async def list_sessions(fleet: "Fleet", limit: int, as_json: bool) -> None:
    """List the sessions with the newest messages.

    TITLE is the session's label, or the first words of its conversation. TOKENS is what was read
    and written, without what came from a cache. AGE is that of the last message.
    """
    _, config = load()
    views = await fleet.sessions.list(limit=limit)
    used = await fleet.usage.by_session()

    def plain(view: "SessionView") -> dict[str, Any]:
        spent = used.get(view.sid)
        return {**plain_session(view, config), "usage": spent.plain() if spent else None}

    def row(view: "SessionView") -> tuple[object, ...]:
        spent = used.get(view.sid)
        return (
            view.sid[:8],
            view.name,
            view.key.agent,
            view.model_in(config),
            "postponed" if view.postponed_until_ms else view.shown_status,
            view.waiting,
            spent.new_tokens if spent else None,
            cost_of(spent) if spent else None,
            age(view.last_message_ms),
            f"{view.key}{pause_of(view)}",
        )

    listing(
        views,
        as_json=as_json,
        plain=plain,
        heads=HEADS,
        row=row,
        empty="There are no sessions yet.",
        narrows="TITLE",
        is_last_spare=True,
    )


def plain_session(view: "SessionView", config: "Config") -> dict[str, Any]:
    """Return a session as programs read it."""
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
    """Show one session."""
    _, config = load()
    view = await fleet.sessions.named(session)
    messages = "message" if view.waiting == 1 else "messages"
    started = await fleet.sessions.children(view.sid)
    used = await fleet.usage.session(view.key.agent, view.sid)
    if as_json:
        told = {
            **plain_session(view, config),
            "project": view.project,
            "started_by": str(view.parent) if view.parent else None,
            "has_started": [str(child.key) for child in started],
            "worker": _worker(view.worker),
            "host": view.host,
            "lane": view.lane,
            "turn": view.turn,
            "phase": view.phase if view.turn else None,
            "usage": used.plain() if used.turns else None,
            "conversations": dict(view.session_ids),
        }
        echo_json(told)
        return
    about = {
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
        "last message": clock(view.last_message_ms),
        "worker": _worker(view.worker),
        "host": view.host,
        "lane": view.lane,
        "queue": _own(view.queue),
        "turn": f"{view.sid[:8]}-{view.turn} ({view.phase})" if view.turn else None,
        "usage": in_words(used) if used.turns else None,
        "conversation": ", ".join(_conversations(view)),
    }
    facts(about)


def _conversations(view: "SessionView") -> "Iterator[str]":
    """Yield the conversations that the agent CLIs have of a session."""
    for name, conversation in view.session_ids.items():
        runtime, _, workspace = name.partition("|")
        yield f"{conversation} of {runtime} in {workspace}"


def pause_of(view: "SessionView") -> str:
    """Return why a session waits although there is work, and until when."""
    if view.postponed_until_ms is None:
        return ""
    return f", waits until {clock(view.postponed_until_ms)} ({view.postponed})"


def _worker(label: str | None) -> str | None:
    """Return whose a lease is, without what only tells processes apart."""
    if label is None:
        return None
    host, _, rest = label.partition(" pid ")
    return f"process {rest.split()[0]} on {host}" if rest else label


def _own(queue: "QueueOverride | None") -> str | None:
    """Return a session's own queue settings."""
    settings = queue.model_dump(exclude_none=True) if queue else {}
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or None


@sessions.command("fork")
@session_argument
@click.option("--thread", metavar="NAME", help="Thread of the new session. [default: the same]")
@click.option(
    "--from", "user", metavar="USER", help="Who writes in the new session. [default: the same user]"
)
@with_fleet
async def fork_session(fleet: "Fleet", session: str, thread: str | None, user: str | None) -> None:
    """Begin a session with a copy of what another one remembers.

    The agent's CLI makes the copy with the new session's first turn, where it can; else the new
    session begins with the record of what was said. A turn that runs is no part of the copy.
    Prints the new session's key.
    """
    from dataclasses import replace

    from remoteclaw.tasks.branches import copyable

    view = await fleet.sessions.named(session)
    target = replace(  # one that people talk with, whatever the other one is
        view.key, user=user or view.key.user, thread=thread or view.key.thread, task=None
    )
    if target == view.key:
        raise click.UsageError("Say what is new: another --thread, or another --from.")
    names = copyable(view.session_ids, is_busy=view.status != "idle")
    await fleet.sessions.fork(view, target, names)
    echo(str(target))


@sessions.command("label")
@session_argument
@click.argument("name", required=False)
@click.option("--remove", is_flag=True, help="Take its label away.")
def label_session(session: str, name: str | None, remove: bool) -> None:
    """Give a session a label, under which agents can write to it.

    No two sessions of an agent have the same.
    """
    if (name is None) != remove:
        raise click.UsageError("Say either the label's NAME or --remove.")
    ask("sessions.label", sessionKey=session, label=name)


@sessions.command("queue")
@session_argument
@click.option(
    "--mode",
    type=click.Choice(["aside", "collect", "followup", "steer", "interrupt"]),
    help="Beside the running turn, one turn for all of them, a turn for each, to the agent at "
    "work, or in its place.",
)
@click.option(
    "--debounce-ms",
    "debounceMs",
    type=click.IntRange(0, 60_000),
    metavar="NUMBER",
    help="Milliseconds of quiet before they are collected.",
)
@click.option(
    "--cap",
    type=click.IntRange(0, 1_000_000_000),
    metavar="NUMBER",
    help="How many may wait; 0 for any number.",
)
@click.option(
    "--drop",
    type=click.Choice(["old", "new", "summarize"]),
    help="Which are left out beyond that: the oldest, unseen or with their beginnings, or the new.",
)
@click.option(
    "--gather-ms",
    "gatherMs",
    type=click.IntRange(0, 60_000),
    metavar="NUMBER",
    help="Milliseconds of quiet in a group that talks, before an idle session answers.",
)
@click.option(
    "--gather-most-ms",
    "gatherMostMs",
    type=click.IntRange(0, 60_000),
    metavar="NUMBER",
    help="How long the first message of such a burst waits at most.",
)
@click.option("--reset", is_flag=True, help="Take the session's own settings away.")
@json_option
def queue_of_session(session: str, reset: bool, as_json: bool, **settings: Any) -> None:
    """Say what becomes of messages to one busy session, or of a burst.

    Without options it shows that. It holds from the session's next turn on.
    """
    holds = plain(ask("sessions.queue", sessionKey=session, reset=reset, **settings))
    if as_json:
        echo_json(holds)
        return
    own = holds.pop("own")
    for name, value in holds.items():
        echo(f"{name:<14} {value}{OWN if name in own else ''}")


@sessions.command("trace")
@click.argument("what", shell_complete=complete_sessions)
@json_option
@with_fleet
async def trace_message(fleet: "Fleet", what: str, as_json: bool) -> None:
    """Show every state that a message passed through, with times.

    It also shows what people were asked for meanwhile.
    WHAT is a message's reference, as errors name it, or a session: then its newest message. Or it
    is a message of RemoteClaw's own in a chat, as telegram/default/CHAT/MESSAGE: then what that
    answers.
    """
    from remoteclaw.gateway.traces import find_message, told, traced

    sid, entry_id = await find_message(fleet, what)
    (outcome,) = await traced(fleet, sid, entry_id)
    view = await fleet.sessions.view(sid)
    session = str(view.key) if view else None
    if as_json:
        echo_json({"session": session, **plain(told(sid, outcome))})
        return
    echo(f"{sid[:8]}-{entry_id}  {outcome.status}  {session or ''}")
    first = outcome.steps[0].at_ms
    for step in outcome.steps:
        attempt = f"attempt {step.attempt}" if step.attempt else ""
        words = f"{clock(step.at_ms, milliseconds=True)}  {step.at_ms - first:>8} ms"
        line = f"  {words}  {step.name:<10} {attempt:<10} {one_line(step.detail)}"
        echo(line.rstrip())
    if outcome.usage:
        echo(f"  {in_words(outcome.usage)}")
    if outcome.error:
        why = (outcome.error.get("category"), outcome.error.get("detail"))
        echo(f"  {one_line(': '.join(str(part) for part in why if part))}")
    if outcome.status == "dead":
        echo("  It is kept as a dead letter: see `remoteclaw deadletters list`.")
