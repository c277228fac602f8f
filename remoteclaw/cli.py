"""The command line.

Each command imports what it needs when it runs: `--help` answers without loading Redis.
"""

import asyncio
import contextlib
import os
import sys
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from remoteclaw import __version__
from remoteclaw.errors import NotRunning, RemoteClawError, UnknownSession

if TYPE_CHECKING:
    from remoteclaw.config import Config, Home
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.outcomes import Outcome
    from remoteclaw.messages import SessionKey

__all__ = ["main"]

#: How long `send` waits for the reply unless told otherwise, in seconds.
WAIT_S = 600.0

EXIT_REPLY, EXIT_ERROR, EXIT_NO_OUTCOME = 0, 1, 3


class _Group(click.Group):
    """A group whose errors are one line each."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; no traceback reaches a person."""
        try:
            return super().invoke(ctx)
        except* RemoteClawError as errors:
            _fail(str(_first(errors)))
        except* (click.ClickException, click.exceptions.Exit, click.Abort) as errors:
            raise _first(errors) from None
        except* KeyboardInterrupt:
            sys.exit(130)
        except* BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read us has seen enough
            sys.exit(0)
        except* Exception as errors:  # noqa: BLE001 - the edge of the process
            _fail(f"An unexpected error, {_first(errors)!r}: {_keep_traceback(errors)}")


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def _fail(text: str) -> None:
    click.echo(f"remoteclaw: {text}", err=True)
    sys.exit(1)


def _keep_traceback(error: BaseException) -> str:
    """Write a traceback where an operator finds it, and say where."""
    from remoteclaw.config import Home

    try:
        file = Home.default().create().logs / "crash.log"
        with file.open("a") as log:
            traceback.print_exception(error, file=log)
        file.chmod(0o600)
    except (OSError, RemoteClawError):
        return "it could not be written down."
    return f"please report it with the end of {file}."


@click.group(cls=_Group)
@click.version_option(__version__, prog_name="remoteclaw")
def main() -> None:
    """Talk to the coding agents on this machine from the chats you already use."""


# ---------------------------------------------------------------------------------------------
# Running


@main.command()
@click.option(
    "--no-console", is_flag=True, help="Only run; without a terminal that is the default."
)
def up(no_console: bool) -> None:
    """Run everything on this machine: Redis, workers, sweeper, and a chat in this terminal."""
    from remoteclaw.telemetry import configure_logging

    home, config = _load()
    with_console = not no_console and sys.stdin.isatty() and sys.stdout.isatty()
    configure_logging(home.logs / "up.log" if with_console else None)
    asyncio.run(_up(home, config, with_console=with_console))


async def _up(home: "Home", config: "Config", *, with_console: bool) -> None:
    import signal

    from remoteclaw.supervisor import Supervisor

    supervisor = Supervisor(home, config)
    leave = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, leave.set)
    async with supervisor.running() as ready:
        agent, settings = config.agent(None)
        click.echo(f"RemoteClaw {__version__}, state in {home.path}")
        click.echo(f"  redis    {ready.redis}")
        click.echo(f"  workers  {ready.workers} × rq worker")
        click.echo(f"  agent    {agent} is {_which_agent(settings)}")
        click.echo(f"Ready in {ready.seconds:.1f} s.")
        if not with_console:
            await leave.wait()
        else:
            await _chat(supervisor.fleet, agent, home.host_id, leave)
        click.echo("Leaving; what isn't finished goes on at the next start.")


async def _chat(fleet: "Fleet", agent: str, account: str, leave: asyncio.Event) -> None:
    from remoteclaw.channels.console import Console

    click.echo("Type a message. Ctrl-C stops the answer, twice leaves.\n")
    console = asyncio.create_task(Console(fleet, agent=agent, account=account).run())
    leaving = asyncio.create_task(leave.wait())
    await asyncio.wait((console, leaving), return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    console.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await console


def _which_agent(settings: Any) -> str:
    from remoteclaw.runtimes import detect_runtime

    if settings.runtime:
        return f"{settings.runtime}, as configured"
    name, why = detect_runtime()
    return f"{name}: {why}"


@main.command()
def worker() -> None:
    """Run one worker: prints the `rq worker` command and becomes it."""
    from remoteclaw.process import become
    from remoteclaw.supervisor import worker_command

    home, config = _load()
    _require_embedded(home, config)
    command = worker_command()
    click.echo("+ " + " ".join(["rq", *command[1:]]))
    sys.stdout.flush()
    become(command, {**os.environ, "REMOTECLAW_HOME": str(home.path)})


@main.command()
def sweep() -> None:
    """Run a sweeper, which finds sessions that no worker works on. Any number may run.

    It also clears away what killed processes have left on this host.
    """
    from remoteclaw.supervisor import sweep_host
    from remoteclaw.telemetry import configure_logging

    configure_logging()
    home, _ = _load()

    async def run(fleet: "Fleet") -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fleet.sweeper.run())
            tasks.create_task(sweep_host(fleet, home))

    _on_fleet(run)


# ---------------------------------------------------------------------------------------------
# Messages


def _addressed(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say whose conversation is meant."""
    for option in reversed(
        (
            click.option("--channel", default="cli", show_default=True, help="Kind of channel."),
            click.option("--from", "from_", default=None, help="Sender's id. [default: you]"),
            click.option("--to", default=None, help="Chat's id. [default: the sender's]"),
            click.option("--thread", default=None, help="Thread of the chat."),
            click.option("--account", default="default", show_default=True, help="Bot or login."),
            click.option("--agent", default=None, help="Agent. [default: main, or the only one]"),
        )
    ):
        command = option(command)
    return command


@main.command()
@click.argument("text")
@_addressed
@click.option("--message-id", default=None, help="Id to recognise a repetition by. [default: new]")
@click.option("--wait", "wait_s", default=WAIT_S, show_default=True, help="Seconds; 0 for none.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def send(text: str, message_id: str | None, wait_s: float, as_json: bool, **address: Any) -> None:
    """Send TEXT (- for standard input) as a channel would, and print the reply.

    The reply goes to you alone.
    Exit status: 0 a reply, 1 an error, 2 wrong usage, 3 no outcome in time.
    """
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    code = _on_fleet(lambda fleet: _send(fleet, text, message_id, wait_s, as_json, address))
    sys.exit(code)


async def _send(
    fleet: "Fleet",
    text: str,
    message_id: str | None,
    wait_s: float,
    as_json: bool,
    address: dict[str, Any],
) -> int:
    from remoteclaw.messages import ChannelMessage

    session = _session_key(address)
    message = ChannelMessage.checked(
        id=message_id or uuid.uuid4().hex,
        text=text,
        from_=session.user,
        channel_id=session.channel_id,
        provider=session.provider,
        account=session.account,
        thread_id=session.thread,
        timestamp=int(time.time() * 1000),
    )
    accepted = await fleet.inbound.append(message, agent=session.agent, deliver="caller")
    reference = f"{accepted.session.sid[:8]}-{accepted.entry_id}"
    if wait_s <= 0:
        click.echo(reference)
        return EXIT_REPLY
    outcome = await fleet.outcomes.wait(accepted.session.sid, accepted.entry_id, timeout_s=wait_s)
    if outcome is None:
        click.echo(
            f"remoteclaw: No outcome within {wait_s:g} s; the message is not lost. "
            f"Look with `remoteclaw sessions trace {reference}`.",
            err=True,
        )
        return EXIT_NO_OUTCOME
    _print_outcome(outcome, reference, as_json)
    return EXIT_REPLY if outcome.status == "done" else EXIT_ERROR


def _print_outcome(outcome: "Outcome", reference: str, as_json: bool) -> None:
    if not as_json:
        click.echo("\n\n".join(str(part["text"]) for part in outcome.reply))
        return
    import orjson

    data = {
        "reference": reference,
        "status": outcome.status,
        "reply": outcome.reply,
        "error": outcome.error,
    }
    click.echo(orjson.dumps(data).decode())


@main.command()
@click.argument("session", required=False)
@_addressed
def stop(session: str | None, **address: Any) -> None:
    """Stop what a session is doing and has waiting. SESSION is its key or the start of its id."""

    async def run(fleet: "Fleet") -> None:
        sid = await fleet.sessions.find(session) if session else _session_key(address).sid
        count = await fleet.sessions.stop(sid)
        messages = "message" if count == 1 else "messages"
        click.echo(f"Stopping {count} {messages}." if count else "There was nothing to stop.")

    _on_fleet(run)


# ---------------------------------------------------------------------------------------------
# Looking


@main.command()
def status() -> None:
    """Say what runs. Exit status 0 if messages are answered."""

    async def run(fleet: "Fleet") -> int:
        workers = await fleet.workers.list()
        sessions = [view for view in await fleet.sessions.list(limit=1000) if view.state != "idle"]
        click.echo(f"workers   {len(workers)}")
        for view in workers:
            click.echo(f"  {view.state:<9} pid {view.pid} on {view.host}")
        click.echo(f"queue     {await fleet.workers.waiting()} hints wait for a worker")
        click.echo(f"sessions  {len(sessions)} have work")
        for session in sessions:
            click.echo(f"  {session.state:<9} {session.sid[:8]} {session.key}")
        return 0 if workers else 1

    if _on_fleet(run):
        _fail("No rq worker serves the queue: start some with `remoteclaw worker`.")


@main.group()
def sessions() -> None:
    """Look at conversations."""


@sessions.command("list")
@click.option("--limit", default=50, show_default=True, help="How many, newest first.")
def list_sessions(limit: int) -> None:
    """List the sessions with the newest messages."""

    async def run(fleet: "Fleet") -> None:
        for view in await fleet.sessions.list(limit=limit):
            last = _clock(view.last_message_ms)
            click.echo(
                f"{view.sid[:8]}  {view.state:<9}  {view.waiting:>4} waiting  {last}  {view.key}"
            )

    _on_fleet(run)


@sessions.command("show")
@click.argument("session")
def show_session(session: str) -> None:
    """Show one session. SESSION is its key or the start of its id."""

    async def run(fleet: "Fleet") -> None:
        view = await fleet.sessions.view(await fleet.sessions.find(session))
        if view is None:
            raise UnknownSession(f"Nothing is known of {session!r} any more.")
        rows = {
            "key": str(view.key),
            "id": view.sid,
            "state": view.state,
            "waiting": f"{view.waiting} messages without an outcome",
            "last message": _clock(view.last_message_ms),
            "worker": view.worker,
            "turn": f"{view.sid[:8]}-{view.turn} ({view.phase})" if view.turn else None,
        }
        rows |= {f"{name} session": value for name, value in view.session_ids.items()}
        for name, value in rows.items():
            if value:
                click.echo(f"{name:<14} {value}")

    _on_fleet(run)


@sessions.command("trace")
@click.argument("what")
def trace_message(what: str) -> None:
    """Show every state that a message passed through, with times.

    WHAT is a message's reference, as errors name it, or a session: then its newest message.
    """

    async def run(fleet: "Fleet") -> None:
        sid, entry_id = await _find_message(fleet, what)
        outcome = await fleet.outcomes.read(sid, entry_id)
        if outcome is None:
            raise UnknownSession(f"Nothing is known of message {what!r} any more.")
        view = await fleet.sessions.view(sid)
        click.echo(f"{sid[:8]}-{entry_id}  {outcome.status}  {view.key if view else ''}")
        first = outcome.steps[0].at_ms
        for step in outcome.steps:
            attempt = f"attempt {step.attempt}" if step.attempt else ""
            words = f"{_clock(step.at_ms, milliseconds=True)}  {step.at_ms - first:>8} ms"
            click.echo(f"  {words}  {step.name:<10} {attempt:<10} {step.detail}".rstrip())
        if outcome.error:
            click.echo(f"  {outcome.error.get('category')}: {outcome.error.get('detail', '')}")

    _on_fleet(run)


async def _find_message(fleet: "Fleet", what: str) -> tuple[str, str]:
    import re

    if match := re.fullmatch(r"([0-9a-f]{4,32})-(\d+-\d+)", what):
        return await fleet.sessions.find(match[1]), match[2]
    sid = await fleet.sessions.find(what)
    view = await fleet.sessions.view(sid)
    if view is None or view.last_entry is None:
        raise UnknownSession(f"Nothing is known of {what!r} any more.")
    return sid, view.last_entry


@main.command()
def doctor() -> None:
    """Look at everything that RemoteClaw needs here and say what is missing."""
    from remoteclaw.doctor import examine

    async def run() -> bool:
        is_well = True
        async for finding in examine():
            is_well &= finding.ok
            click.echo(f"{'ok ' if finding.ok else 'NO '} {finding.subject:<16} {finding.text}")
        return is_well

    sys.exit(0 if asyncio.run(run()) else 1)


@main.group()
def config() -> None:
    """Look at the configuration."""


@config.command()
def validate() -> None:
    """Check the configuration file and the overrides."""
    home, _ = _load()
    file = home.config_file
    click.echo(f"{file} is valid." if file.exists() else f"{file} is absent: all defaults.")


@config.command()
def schema() -> None:
    """Print the JSON schema of the configuration."""
    import json

    from remoteclaw.config import Config

    click.echo(json.dumps(Config.model_json_schema(), indent=2))


# ---------------------------------------------------------------------------------------------
# What commands share


def _load() -> "tuple[Home, Config]":
    from remoteclaw.config import Home, load_config

    home = Home.default().create()
    return home, load_config(home)


def _require_embedded(home: "Home", config: "Config") -> None:
    """Raise `NotRunning` if the embedded server is needed and nobody runs it."""
    from remoteclaw.supervisor import running_pid

    if config.redis.url is None and running_pid(home) is None:
        raise NotRunning(
            f"RemoteClaw isn't running in {home.path}: start it with `remoteclaw up`, "
            "or set [redis] url to a Redis of your own."
        )


def _on_fleet(run: "Callable[[Fleet], Coroutine[Any, Any, Any]]") -> Any:
    """Run a command's coroutine with a fleet on a Redis that is there and fit."""
    home, config = _load()
    _require_embedded(home, config)

    async def go() -> Any:
        async with _fleet(home, config) as fleet:
            return await run(fleet)

    return asyncio.run(go())


@contextlib.asynccontextmanager
async def _fleet(home: "Home", config: "Config") -> "AsyncIterator[Fleet]":
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.connection import check_fitness

    url = home.redis_url(config)
    fleet = Fleet.open(url, lease_s=config.fleet.lease_s)
    try:
        await check_fitness(fleet.scripts.client, url)
        yield fleet
    finally:
        await fleet.aclose()


def _session_key(address: dict[str, Any]) -> "SessionKey":
    import getpass

    from remoteclaw.messages import SessionKey

    _, config = _load()
    user = address["from_"] or getpass.getuser()
    return SessionKey(
        agent=config.agent(address["agent"])[0],
        provider=address["channel"],
        account=address["account"],
        channel_id=address["to"] or user,
        user=user,
        thread=address["thread"],
    )


def _clock(at_ms: int, *, milliseconds: bool = False) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000).astimezone()
    fraction = f".{at_ms % 1000:03}" if milliseconds else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"


if __name__ == "__main__":
    main()
