"""The command `send`."""

import os
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import addressed, on_fleet, session_key
from remoteclaw.cli.edge import complain, echo_text
from remoteclaw.cli.files import save_option, upload
from remoteclaw.cli.outcome import (
    EXIT_REPLY,
    outcome_json,
    print_reply,
    reference_of,
    wait_option,
    warn_without_workers,
)
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import PerhapsSent

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.inbound import Accepted
    from remoteclaw.fleet.keys import Lane
    from remoteclaw.messages import Attachment, ChannelMessage, SessionKey

__all__ = ["send"]


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
    save: Path | None,
) -> int:
    accepted = await _accepted(fleet, message, agent, lane, wait_s)
    if has_new_id:  # else it was sent twice by this command, and counts once
        accepted = replace(accepted, is_duplicate=False)
    if accepted.is_duplicate:
        complain("A message with this id was accepted before: this text was not used.")
    if wait_s == 0:
        await warn_without_workers(fleet)
        echo_text(outcome_json(accepted, None) if as_json else reference_of(accepted))
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
