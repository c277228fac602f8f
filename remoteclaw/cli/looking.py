"""Read-only commands: `status`, `sessions`, `agents`, `doctor`."""

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import clock, load, on_fleet
from remoteclaw.cli.edge import complain, echo, echo_text
from remoteclaw.cli.usage import in_words
from remoteclaw.errors import ConfigError, RemoteClawError, UnknownSession
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.config.model import QueueOverride
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.sessions import SessionView

__all__ = ["agents", "doctor", "find_message", "sessions", "status"]


#: How many busy sessions `status` shows.
MOST_SHOWN = 50
#: The longest label, in characters.
MOST_LABEL = 64


@click.command()
def status() -> None:
    """Say what runs. Exit status 0 if messages are answered."""

    async def run(fleet: "Fleet") -> int:
        workers = await fleet.workers.list()
        letters = await fleet.dead_letters.count()
        memory = await fleet.scripts.memory()
        count, busy = await fleet.sessions.busy(limit=MOST_SHOWN)
        hints = await fleet.workers.waiting()
        address = await fleet.gateways.address(load()[0].host_id)
        echo(f"workers   {len(workers)}")
        for view in workers:
            stranger = "" if view.is_ours else ", and not started as `remoteclaw worker`"
            echo(f"  {view.state:<9} pid {view.pid} on {one_line(view.host)}{stranger}")
        echo(f"queue     {hints} {'hint waits' if hints == 1 else 'hints wait'} for a worker")
        echo(f"gateway   {address or 'none here: agents have no tools; `remoteclaw gateway`'}")
        if not await fleet.workers.have_sweeper():
            echo("sweeper   none: hints that get lost stay lost; run `remoteclaw sweep`")
        echo(f"sessions  {count} {'has' if count == 1 else 'have'} work")
        for session in busy:
            echo(f"  {session.status:<9} {session.sid[:8]} {session.key}{_pause(session)}")
        if count > len(busy) == MOST_SHOWN:
            echo(f"  and {count - len(busy)} more")
        if memory.problem:
            echo(f"memory    {memory.problem}")
        if letters:
            echo(f"dead      {letters}: see `remoteclaw deadletters list`")
        return sum(view.is_ours for view in workers)

    try:
        count = on_fleet(run)
    except ConfigError as error:
        from remoteclaw.config.home import Home
        from remoteclaw.up.doctor import goes_on

        raise ConfigError(f"{error}{goes_on(Home.default())}") from None
    if not count:
        raise RemoteClawError("No rq worker serves the queue: start some with `remoteclaw worker`.")


@click.group()
def sessions() -> None:
    """Look at conversations."""


@sessions.command("list")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="NUMBER",
    help="How many, newest first.",
)
def list_sessions(limit: int) -> None:
    """List the sessions with the newest messages."""

    async def run(fleet: "Fleet") -> None:
        echo(f"{'SESSION':<8}  {'STATE':<9}  WAITING  {'LAST MESSAGE':<19}  KEY")
        for view in await fleet.sessions.list(limit=limit):
            last = clock(view.last_message_ms)
            label = f"  ({one_line(view.label)})" if view.label else ""
            row = f"{view.sid[:8]}  {view.status:<9}  {view.waiting:>7}  {last}  {view.key}"
            echo(row + label + _pause(view))

    on_fleet(run)


@sessions.command("show")
@click.argument("session")
def show_session(session: str) -> None:
    """Show one session. SESSION is its key or the start of its id."""

    async def run(fleet: "Fleet") -> None:
        view = await fleet.sessions.view(await fleet.sessions.find(session))
        if view is None:
            raise UnknownSession(f"Nothing is known of {session!r} any more.")
        messages = "message" if view.waiting == 1 else "messages"
        started = await fleet.sessions.children(view.sid)
        used = await fleet.usage.session(view.key.agent, view.sid)
        rows = {
            "key": str(view.key),
            "id": view.sid,
            "label": view.label,
            "started by": str(view.parent) if view.parent else None,
            "has started": ", ".join(f"{child.sid[:8]} ({child.status})" for child in started),
            "state": f"{view.status}{_pause(view)}",
            "waiting": f"{view.waiting} {messages} without an outcome",
            "last message": clock(view.last_message_ms),
            "worker": _worker(view.worker),
            "host": view.host,
            "lane": view.lane,
            "queue": _own(view.queue),
            "turn": f"{view.sid[:8]}-{view.turn} ({view.phase})" if view.turn else None,
            "usage": in_words(used) if used.turns else None,
        }
        for name, value in rows.items():
            if value:
                echo(f"{name:<12}  {one_line(value)}")
        for name, value in view.session_ids.items():
            runtime, _, workspace = name.partition("|")
            told = f"{value} of {runtime} in {workspace}"
            echo(f"{'conversation':<12}  {one_line(told)}")

    on_fleet(run)


def _pause(view: "SessionView") -> str:
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


@sessions.command("export")
@click.argument("session")
@click.option(
    "--archived",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="An ended conversation in place of the current one, as `sessions archive` numbers them.",
)
def export_session(session: str, archived: int | None) -> None:
    """Print what was said in a session, as JSON.

    One object a line, oldest first: `at` in milliseconds since 1970, `role`, and what it said.
    SESSION is its key or the start of its id.
    """

    async def run(fleet: "Fleet") -> None:
        sid = await fleet.sessions.find(session)
        if archived is None:
            recorded = await fleet.sessions.record(sid)
        else:
            ended = await fleet.sessions.ended(sid)
            if archived > len(ended):
                raise UnknownSession(
                    f"There is no ended conversation {archived} of {session!r}: "
                    f"`remoteclaw sessions archive` lists {len(ended)}."
                )
            recorded = ended[archived - 1].record
        if not recorded:
            complain("Nothing is recorded of this conversation.")
        if sys.stdout.isatty():  # what people wrote must not speak to the terminal
            echo_text(recorded.decode("utf-8", "replace").removesuffix("\n"))
        else:
            sys.stdout.buffer.write(recorded)

    on_fleet(run)


@sessions.command("forget")
@click.argument("session")
def forget_session(session: str) -> None:
    """Remove what is recorded of a session, archive included.

    The agent's own CLI remembers what it remembers. SESSION is its key or the start of its id.
    """

    async def run(fleet: "Fleet") -> None:
        was_there = await fleet.sessions.forget(await fleet.sessions.find(session))
        echo("It is gone." if was_there else "Nothing was recorded of this conversation.")

    on_fleet(run)


@sessions.command("fork")
@click.argument("session")
@click.option("--thread", metavar="NAME", help="The new session's thread.")
@click.option("--from", "user", metavar="USER", help="The new session's user; else the same.")
def fork_session(session: str, thread: str | None, user: str | None) -> None:
    """Begin a session with a copy of what another one remembers.

    The agent's CLI makes the copy with the new session's first turn, where it can; else the new
    session begins with the record of what was said. Prints the new session's key. SESSION is the
    other one's key or the start of its id.
    """
    from dataclasses import replace

    from remoteclaw.runtimes import create_cli_runtime

    def can_fork(name: str) -> bool:
        try:
            return create_cli_runtime(name.partition("|")[0]).capabilities.forks
        except RemoteClawError:  # of another version
            return False

    async def run(fleet: "Fleet") -> None:
        view = await fleet.sessions.view(await fleet.sessions.find(session))
        if view is None:
            raise UnknownSession(f"Nothing is known of {session!r} any more.")
        target = replace(  # one that people talk with, whatever the other one is
            view.key, user=user or view.key.user, thread=thread or view.key.thread, task=None
        )
        if target == view.key:
            raise click.UsageError("Say what is new: another --thread, or another --from.")
        names = [name for name in view.session_ids if can_fork(name)]
        await fleet.sessions.fork(view, target, names)
        echo(str(target))

    on_fleet(run)


@sessions.command("label")
@click.argument("session")
@click.argument("name", required=False)
@click.option("--remove", is_flag=True, help="Take its label away.")
def label_session(session: str, name: str | None, remove: bool) -> None:
    """Give a session a label, under which agents can write to it.

    No two sessions of an agent have the same. SESSION is its key or the start of its id.
    """
    if (name is None) != remove:
        raise click.UsageError("Say either the label's NAME or --remove.")
    if name is not None and not (name.isprintable() and 0 < len(name) <= MOST_LABEL):
        raise click.UsageError(f"A label has 1 to {MOST_LABEL} characters, and no controls.")

    async def run(fleet: "Fleet") -> None:
        view = await fleet.sessions.view(await fleet.sessions.find(session))
        if view is None:
            raise UnknownSession(f"Nothing is known of {session!r} any more.")
        await fleet.sessions.label(view, name)

    on_fleet(run)


@sessions.command("trace")
@click.argument("what")
def trace_message(what: str) -> None:
    """Show every state that a message passed through, with times.

    WHAT is a message's reference, as errors name it, or a session: then its newest message.
    """

    async def run(fleet: "Fleet") -> None:
        sid, entry_id = await find_message(fleet, what)
        outcome = await fleet.outcomes.read(sid, entry_id)
        if outcome is None:
            raise UnknownSession(f"Nothing is known of message {what!r} any more.")
        view = await fleet.sessions.view(sid)
        echo(f"{sid[:8]}-{entry_id}  {outcome.status}  {view.key if view else ''}")
        first = outcome.steps[0].at_ms
        for step in outcome.steps:
            attempt = f"attempt {step.attempt}" if step.attempt else ""
            words = f"{clock(step.at_ms, milliseconds=True)}  {step.at_ms - first:>8} ms"
            line = f"  {words}  {step.name:<10} {attempt:<10} {one_line(step.detail)}"
            echo(line.rstrip())
        if outcome.usage:
            echo(f"  {in_words(outcome.usage)}")
        if outcome.error:
            told = (outcome.error.get("category"), outcome.error.get("detail"))
            echo(f"  {one_line(': '.join(str(part) for part in told if part))}")
        if outcome.status == "dead":
            echo("  It is kept as a dead letter: see `remoteclaw deadletters list`.")

    on_fleet(run)


async def find_message(fleet: "Fleet", what: str) -> tuple[str, str]:
    """Return session and entry of the message that `what` names, by a reference or as newest."""
    import re

    if match := re.fullmatch(r"([0-9a-f]{1,32})-(\d+-\d+)", what):
        return await fleet.sessions.find(match[1]), match[2]
    sid = await fleet.sessions.find(what)
    view = await fleet.sessions.view(sid)
    if view is None or view.last_entry is None:
        raise UnknownSession(f"Nothing is known of {what!r} any more.")
    return sid, view.last_entry


@click.command()
def agents() -> None:
    """List the agent CLIs that are here and in the configuration.

    STEER: whether it takes up messages while it works. COST: whether it tells what a turn cost.
    DENIED: whether it is told why a permission was denied.
    """
    from remoteclaw.up.doctor import installed_clis, tools_problem

    home, settings = load()
    found = installed_clis(settings)
    if not found:
        main = settings.agents.get("main")
        if main and main.runtime not in (None, "demo"):
            echo("No agent CLI is installed: see `remoteclaw doctor`.")
        else:
            echo("No agent CLI is installed, so the demo answers: install one, such as claude.")
        return
    width = max(9, *(len(cli.name) for cli in found))
    row = f"{{:<{width}}}  {{:<10}}  {{:<5}}  {{:<4}}  {{:<6}}  {{:<53}}  {{}}"
    echo(row.format("AGENT", "VERSION", "STEER", "COST", "DENIED", "GOES ON", "PROGRAM"))
    for cli in found:
        can = cli.capabilities
        flags = (can.steers, can.reports_cost, can.explains_denial)
        told = ("yes" if flag else "no" for flag in flags)
        echo(row.format(cli.name, cli.version, *told, can.resumes, cli.program))
        if cli.warning:
            complain(f"{cli.name}: {cli.warning}.")
    for name, agent in settings.agents.items():
        if problem := tools_problem(home, name, agent):
            complain(f"{name} has no tools: {problem}")


@click.command()
def doctor() -> None:
    """Look at what RemoteClaw needs here, and say what is missing."""
    from remoteclaw.up.doctor import examine

    async def run() -> bool:
        is_well = True
        async for finding in examine():
            is_well &= finding.ok
            text = one_line(finding.text)
            echo(f"{'ok ' if finding.ok else 'NO '} {finding.subject:<16} {text}")
        return is_well

    sys.exit(0 if asyncio.run(run()) else 1)
