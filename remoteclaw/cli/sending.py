"""Commands that act on a conversation: `send`, `stop`, `sessions queue`."""

import asyncio
import contextlib
import math
import os
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import addressed, load, on_fleet, session_key
from remoteclaw.cli.edge import complain, echo, echo_text
from remoteclaw.cli.files import ReplyFile, complain_of, note_on, save_files, save_option, upload
from remoteclaw.cli.looking import sessions
from remoteclaw.clock import boottime
from remoteclaw.errors import PerhapsSent, RemoteClawError, UnknownSession

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.inbound import Accepted
    from remoteclaw.fleet.keys import Lane
    from remoteclaw.fleet.outcomes import Outcome
    from remoteclaw.messages import Attachment, ChannelMessage, SessionKey

__all__ = [
    "EXIT_ERROR",
    "EXIT_NO_OUTCOME",
    "EXIT_REPLY",
    "print_reply",
    "reference_of",
    "send",
    "stop",
    "wait_option",
    "warn_without_workers",
]

#: How long `send` waits for the reply unless told otherwise, in seconds.
WAIT_S = 600.0
#: How often it is looked whether Redis takes writes while a reply is waited for, in seconds.
WRITABLE_S = 3.0

#: What stands behind a setting that is not the configuration's.
OWN = " (the session's own)"

EXIT_REPLY, EXIT_ERROR, EXIT_NO_OUTCOME = 0, 1, 3


def _seconds(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("it is not a number.")
    return value


wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    callback=_seconds,
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the reply; 0 for not at all.",
)


@click.command()
@click.argument("text")
@addressed
@click.option("--message-id", default=None, help="Id to recognise a repetition by. [default: new]")
@wait_option
@click.option("--background", is_flag=True, help="Wait behind what people send.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.option(
    "--attach",
    multiple=True,
    metavar="FILE|URL",
    help="Send a file along; may be given several times. The text may be empty then.",
)
@save_option
def send(
    text: str,
    message_id: str | None,
    wait_s: float,
    background: bool,
    as_json: bool,
    attach: tuple[str, ...],
    save: Path | None,
    **address: Any,
) -> None:
    """Send TEXT as a channel would, and print the reply. TEXT is - for standard input.

    The reply goes to you alone. A URL is fetched by this command, from public addresses only.
    Exit status: 0 a reply, 1 an error, 2 wrong usage, 3 no outcome in time.
    """
    if save and wait_s == 0:
        raise click.UsageError("--save needs a reply to wait for: leave --wait 0 out.")
    if "" in attach:
        raise click.UsageError("--attach needs the name of a file, or a URL.")
    # An argument's bytes are UTF-8, whatever the locale says.
    data = sys.stdin.buffer.read() if text == "-" else os.fsencode(text)
    text = data.decode("utf-8", "replace")
    lane: Lane = "background" if background else "agents"

    async def run(fleet: "Fleet") -> int:
        session = session_key(address)
        files = await upload(fleet, session.sid, attach)
        message = _message(session, text, message_id, files)
        return await _send(
            fleet,
            message,
            session.agent,
            lane,
            wait_s,
            has_new_id=message_id is None,
            as_json=as_json,
            save=save,
        )

    sys.exit(on_fleet(run))


def _message(
    session: "SessionKey", text: str, message_id: str | None, files: "list[Attachment]"
) -> "ChannelMessage":
    from remoteclaw.messages import ChannelMessage

    return ChannelMessage.checked(
        id=message_id or uuid.uuid4().hex,
        text=text,
        from_=session.user,
        channel_id=session.channel_id,
        provider=session.provider,
        account=session.account,
        thread_id=session.thread,
        timestamp=int(time.time() * 1000),
        attachments=tuple(files),
    )


async def _send(
    fleet: "Fleet",
    message: "ChannelMessage",
    agent: str,
    lane: "Lane",
    wait_s: float,
    *,
    has_new_id: bool,
    as_json: bool,
    save: Path | None,
) -> int:
    accepted = await _accepted(fleet, message, agent, lane, wait_s)
    if has_new_id:  # else it was sent twice by this command, and counts once
        accepted = replace(accepted, is_duplicate=False)
    if accepted.is_duplicate:
        complain("A message with this id was accepted before: this text was not used.")
    if wait_s == 0:
        await warn_without_workers(fleet)
        echo_text(_json(accepted, None) if as_json else reference_of(accepted))
        return EXIT_REPLY
    return await print_reply(fleet, accepted, wait_s, as_json=as_json, save=save)


async def _accepted(
    fleet: "Fleet", message: "ChannelMessage", agent: str, lane: "Lane", wait_s: float
) -> "Accepted":
    """Send a message, as long as its reply is waited for if Redis may have it already."""
    until, has_told = boottime() + wait_s, False
    while True:
        try:
            return await fleet.inbound.append(message, agent=agent, deliver="caller", lane=lane)
        except PerhapsSent as error:
            again = f"With `--message-id {message.id}` it counts once."
            if boottime() > until:
                raise PerhapsSent(f"{error} {again}") from None
            if not has_told:
                complain(f"Redis does not answer; I keep trying. If you end this: {again}")
            has_told = True


async def print_reply(
    fleet: "Fleet",
    accepted: "Accepted",
    wait_s: float,
    *,
    as_json: bool = False,
    save: Path | None = None,
) -> int:
    """Wait for a message's outcome and print its reply; return the exit status.

    The files that came with it are saved in the directory `save`.
    """
    outcome = await _wait(fleet, accepted, wait_s)
    if outcome is None:
        return EXIT_NO_OUTCOME
    if not as_json:
        texts = [str(part["text"]) for part in outcome.reply if part["text"]]
        echo_text("\n\n".join(texts))
    files = await save_files(fleet, accepted.session.sid, outcome.reply, save)
    if as_json:
        echo_text(_json(accepted, outcome, files))
    else:
        for file in files:
            if not file.problem:
                echo("")
                echo(note_on(file, reference_of(accepted)))
        if outcome.status == "failed":
            complain(f"It failed: `remoteclaw sessions trace {reference_of(accepted)}` says why.")
        elif outcome.status == "dead":
            complain("It was given up, and is kept: see `remoteclaw deadletters list`.")
    is_unsaved = complain_of(files)
    return EXIT_REPLY if outcome.status == "done" and not is_unsaved else EXIT_ERROR


async def _wait(fleet: "Fleet", accepted: "Accepted", wait_s: float) -> "Outcome | None":
    """Wait for the outcome; say what becomes of the message if it takes too long."""
    sid, reference = accepted.session.sid, reference_of(accepted)
    trace, stop = f"remoteclaw sessions trace {reference}", f"remoteclaw stop {sid[:8]}"
    hint = f"Look with `{trace}`, stop it with `{stop}`."
    try:
        outcome = await fleet.outcomes.read(sid, accepted.entry_id)
        if outcome is None or not outcome.is_final:
            await warn_without_workers(fleet)
            watch = asyncio.create_task(_warn_of_refused_writes(fleet))
            try:
                outcome = await fleet.outcomes.wait(
                    sid, accepted.entry_id, timeout_s=wait_s, told=_Pauses(hint)
                )
            finally:
                watch.cancel()
    except asyncio.CancelledError:  # Ctrl-C
        complain(f"Not waiting any longer; the message is not lost. {hint}")
        raise
    if outcome is None:
        complain(f"No outcome within {wait_s:g} s; the message is not lost. {hint}")
    return outcome


async def _warn_of_refused_writes(fleet: "Fleet") -> None:
    """Say once why nothing goes on, if Redis takes no writes while a reply is waited for."""
    from remoteclaw.fleet.fitness import write_problem

    while True:
        if problem := await write_problem(fleet.scripts.client):
            complain(problem)
            return
        await asyncio.sleep(WRITABLE_S)


class _Pauses:
    """Says once why a message waits, where the chat is not told."""

    def __init__(self, hint: str) -> None:
        self._hint = hint
        self._has_told = False

    def __call__(self, outcome: "Outcome") -> None:
        last = outcome.steps[-1]
        if last.name == "postponed" and outcome.status == "accepted" and not self._has_told:
            self._has_told = True
            complain(f"It is asked again by itself {last.detail}. {self._hint}")


async def warn_without_workers(
    fleet: "Fleet", so: str = "so nobody answers", then: str = " The message waits."
) -> None:
    """Say that there is no worker, if there is none; `so` and `then` tell what follows from it."""
    with contextlib.suppress(RemoteClawError):  # what was stored is safe, which matters more
        if not any(view.is_ours for view in await fleet.workers.list()):
            complain(
                f"no rq worker is running yet, {so}: start some with `remoteclaw worker`.{then}"
            )


def reference_of(accepted: "Accepted") -> str:
    """Return the id of a message that people see and that `sessions trace` takes."""
    return f"{accepted.session.sid[:8]}-{accepted.entry_id}"


def _json(accepted: "Accepted", outcome: "Outcome | None", files: Sequence[ReplyFile] = ()) -> str:
    import orjson

    told = [
        {
            "name": file.file.name,
            "mime_type": file.file.mime_type,
            "size": file.file.size,
            "saved": file.saved,
            "problem": file.problem,
        }
        for file in files
    ]
    reply = [
        {"text": part["text"], "is_error": part["is_error"]}
        for part in (outcome.reply if outcome else ())
    ]
    data = {
        "reference": reference_of(accepted),
        "status": outcome.status if outcome else "accepted",
        "reply": reply,
        "files": told,
        "error": outcome.error if outcome else None,
        "usage": outcome.usage.plain() if outcome and outcome.usage else None,
        "duplicate": accepted.is_duplicate,
    }
    return orjson.dumps(data).decode()


@click.command()
@click.argument("session", required=False)
@addressed
def stop(session: str | None, **address: Any) -> None:
    """Stop what a session is doing and has waiting.

    SESSION is its key or the start of its id; without it, the options say which one.
    """

    async def run(fleet: "Fleet") -> None:
        wanted = session if session is not None else str(session_key(address))
        count = await fleet.sessions.stop(await fleet.sessions.find(wanted))
        messages = "message" if count == 1 else "messages"
        echo(f"Stopping {count} {messages}." if count else "There was nothing to stop.")

    on_fleet(run)


@sessions.command("queue")
@click.argument("session")
@click.option("--mode", type=click.Choice(["collect", "followup", "steer", "interrupt"]))
@click.option("--debounce-ms", type=click.IntRange(0, 60_000))
@click.option("--cap", type=click.IntRange(0))
@click.option("--drop", type=click.Choice(["old", "new", "summarize"]))
@click.option("--reset", is_flag=True, help="Take the session's own settings away.")
def queue_of_session(session: str, reset: bool, **settings: Any) -> None:
    """Say what becomes of messages that come while one session is busy.

    Without options it shows that. It holds from the session's next turn on.
    """
    from remoteclaw.config.model import QueueOverride

    _, config = load()
    wanted = {name: value for name, value in settings.items() if value is not None}

    async def run(fleet: "Fleet") -> None:
        sid = await fleet.sessions.find(session)
        view = await fleet.sessions.view(sid)
        if view is None:
            raise UnknownSession(f"Nothing is known of {session!r} any more.")
        own = None if reset else view.queue
        if reset or wanted:
            before = own.model_dump(exclude_none=True) if own else {}
            own = QueueOverride(**{**before, **wanted}) if before or wanted else None
            await fleet.sessions.configure(sid, own)
        for name, value in config.queue.of(view.key.provider, own).model_dump().items():
            if name in QueueOverride.model_fields:
                is_own = own is not None and getattr(own, name) is not None
                echo(f"{name:<12} {value}{OWN if is_own else ''}")

    on_fleet(run)
