"""The command `send`."""

import os
import stat
import sys
import uuid
from dataclasses import dataclass
from typing import Any

import click

from remoteclaw.cli.completion import complete_agents, complete_sessions
from remoteclaw.cli.outcome import EXIT_REPLY, ToldOutcome, wait_option
from remoteclaw.cli.output import complain, echo, echo_text, json_option
from remoteclaw.host.terminal import login_name

#: The channel and the account of what is sent without another one.
CHANNEL, ACCOUNT = "cli", "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A message that is to be sent."""

    text: str
    session: str | None
    """The session: its key, the start of its id, its label or its title. None for the sender's."""
    channel: str | None
    from_: str | None
    to: str | None
    thread: str | None
    account: str | None
    agent: str | None
    message_id: str
    has_new_id: bool
    """Whether the id was made for this order."""
    is_background: bool
    wait_s: float
    attach: tuple[str, ...]
    """The files that go with it: paths and URLs."""

    @property
    def user(self) -> str:
        """The sender's id."""
        return login_name() if self.from_ is None else self.from_

    @property
    def target(self) -> dict[str, Any]:
        """The recipient, as parameters of `chat.open`."""
        if self.session is not None:
            return {"sessionKey": self.session}
        sender = {
            "channel": self.channel or CHANNEL,
            "from": self.user,
            "to": self.to,
            "account": self.account or ACCOUNT,
            "threadId": self.thread,
        }
        return {"agentId": self.agent, "sender": sender}

    @property
    def repeated(self) -> str:
        """The effect of sending it again, in a sentence."""
        return f"With `--message-id {self.message_id}` it counts once."

    def warn_of_duplicate(self, *, is_duplicate: bool) -> bool:
        """Say that it was sent before, unless this command has; return whether it was."""
        is_duplicate = is_duplicate and not self.has_new_id
        if is_duplicate:
            complain("A message with this id was accepted before: this text was not used.")
        return is_duplicate

    def print_reference(self, reference: str, *, is_duplicate: bool, as_json: bool) -> int:
        """Print under which id it is known; return the exit status."""
        if as_json:
            return ToldOutcome().print_json(reference, is_duplicate=is_duplicate)
        echo(reference)
        return EXIT_REPLY

    def print_answer(self, answer: str, *, as_json: bool) -> int:
        """Print the answer to a command of chats; return the exit status."""
        text = answer or "Done."
        if as_json:
            return ToldOutcome(status="done", reply=[{"text": text, "isError": False}]).print_json(
                None
            )
        if sys.stdout.isatty():
            from remoteclaw.cli.stream import AnswerStream

            AnswerStream().end([text])
        else:
            echo_text(text)
        return EXIT_REPLY


@click.command()
@click.argument("words", metavar="TEXT", nargs=-1, required=True)
@click.option(
    "--session",
    metavar="NAME",
    shell_complete=complete_sessions,
    help="Session: its label, title, key or start of id.",
)
@click.option("--channel", default=None, help=f"Kind of channel. [default: {CHANNEL}]")
@click.option("--from", "from_", default=None, help="Sender's id. [default: your login name]")
@click.option("--to", default=None, help="Chat's id. [default: the sender's]")
@click.option("--thread", default=None, help="Thread of the chat.")
@click.option("--account", default=None, help=f"Bot or login. [default: {ACCOUNT}]")
@click.option(
    "--agent",
    default=None,
    shell_complete=complete_agents,
    help="Agent. [default: main, or the only one]",
)
@click.option("--message-id", default=None, help="Id to recognise a repetition by. [default: new]")
@wait_option
@click.option("--background", is_flag=True, help="Wait behind what people send.")
@click.option(
    "--stream/--no-stream",
    "streams",
    default=None,
    help="Print the reply while it is written. [default: on a terminal]",
)
@json_option
@click.option(
    "--attach",
    multiple=True,
    metavar="FILE|URL",
    help="Send a file along; may be given several times. The text may be empty then.",
)
def send(
    words: tuple[str, ...],
    session: str | None,
    message_id: str | None,
    wait_s: float,
    background: bool,
    streams: bool | None,
    as_json: bool,
    attach: tuple[str, ...],
    **address: Any,
) -> None:
    """Send TEXT as a channel would, and print the reply.

    TEXT is - for standard input; what is piped in stands behind any other TEXT. A command such as
    /status is answered as in a chat. The reply goes to you alone. A URL is fetched by this command,
    from public addresses only.
    Exit status: 0 a reply, 1 an error, 2 wrong usage, 3 no outcome in time.
    """
    if "" in attach:
        raise click.UsageError("--attach needs the name of a file, or a URL.")
    if session is not None and any(value is not None for value in address.values()):
        raise click.UsageError("--session says whom it is for: leave the other options out.")
    order = Order(
        text=_text(words),
        session=session,
        message_id=message_id or uuid.uuid4().hex,
        has_new_id=message_id is None,
        is_background=background,
        wait_s=wait_s,
        attach=attach,
        **address,
    )
    stream = None
    if wait_s and not as_json and (sys.stdout.isatty() if streams is None else streams):
        from remoteclaw.cli.stream import AnswerStream

        stream = AnswerStream()
    import asyncio

    from remoteclaw.cli.over_gateway import send_over_gateway
    from remoteclaw.config.home import Home

    home = Home.default().check()
    sys.exit(asyncio.run(send_over_gateway(home, order, as_json=as_json, stream=stream)))


def _text(words: tuple[str, ...]) -> str:
    """Return the message: its words, with what is piped in behind them or in place of a `-`."""
    # An argument's bytes are UTF-8, whatever the locale says.
    text = os.fsencode(" ".join(words)).decode("utf-8", "replace")
    if text == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # there is none
        return text
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return text
    piped = sys.stdin.buffer.read().decode("utf-8", "replace")
    return f"{text}\n\n{piped}" if piped.strip() else text
