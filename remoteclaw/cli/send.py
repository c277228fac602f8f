"""The command `send`."""

import os
import sys
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import load, on_fleet
from remoteclaw.cli.files import upload
from remoteclaw.cli.outcome import (
    EXIT_REPLY,
    print_outcome,
    print_reply,
    reference_of,
    wait_option,
    warn_without_workers,
)
from remoteclaw.cli.output import complain, echo, json_option
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import PerhapsSent
from remoteclaw.host.terminal import login_name

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.inbound import Accepted
    from remoteclaw.fleet.keys import Lane
    from remoteclaw.messages import Attachment, ChannelMessage, SessionKey

__all__ = ["send"]


@click.command()
@click.argument("text")
@click.option("--channel", default="cli", show_default=True, help="Kind of channel.")
@click.option("--from", "from_", default=None, help="Sender's id. [default: your login name]")
@click.option("--to", default=None, help="Chat's id. [default: the sender's]")
@click.option("--thread", default=None, help="Thread of the chat.")
@click.option("--account", default="default", show_default=True, help="Bot or login.")
@click.option("--agent", default=None, help="Agent. [default: main, or the only one]")
@click.option("--message-id", default=None, help="Id to recognise a repetition by. [default: new]")
@wait_option
@click.option("--background", is_flag=True, help="Wait behind what people send.")
@json_option
@click.option(
    "--attach",
    multiple=True,
    metavar="FILE|URL",
    help="Send a file along; may be given several times. The text may be empty then.",
)
def send(
    text: str,
    message_id: str | None,
    wait_s: float,
    background: bool,
    as_json: bool,
    attach: tuple[str, ...],
    **address: Any,
) -> None:
    """Send TEXT as a channel would, and print the reply. TEXT is - for standard input.

    The reply goes to you alone. A URL is fetched by this command, from public addresses only.
    Exit status: 0 a reply, 1 an error, 2 wrong usage, 3 no outcome in time.
    """
    if "" in attach:
        raise click.UsageError("--attach needs the name of a file, or a URL.")
    # An argument's bytes are UTF-8, whatever the locale says.
    data = sys.stdin.buffer.read() if text == "-" else os.fsencode(text)
    text = data.decode("utf-8", "replace")
    lane: Lane = "background" if background else "agents"

    async def run(fleet: "Fleet") -> int:
        session = _session_key(**address)
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
        )

    sys.exit(on_fleet(run))


def _session_key(
    *,
    channel: str,
    from_: str | None,
    to: str | None,
    thread: str | None,
    account: str,
    agent: str | None,
) -> "SessionKey":
    from remoteclaw.messages import SessionKey

    user = login_name() if from_ is None else from_
    return SessionKey(
        agent=load()[1].agent(agent)[0],
        provider=channel,
        account=account,
        channel_id=user if to is None else to,
        user=user,
        thread=thread,
    )


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
        timestamp=now_ms(),
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
) -> int:
    accepted = await _accepted(fleet, message, agent, lane, wait_s)
    if has_new_id:  # else it was sent twice by this command, and counts once
        accepted = replace(accepted, is_duplicate=False)
    if accepted.is_duplicate:
        complain("A message with this id was accepted before: this text was not used.")
    if wait_s == 0:
        await warn_without_workers(fleet)
        if as_json:
            print_outcome(accepted, None)
        else:
            echo(reference_of(accepted))
        return EXIT_REPLY
    return await print_reply(fleet, accepted, wait_s, as_json=as_json)


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
