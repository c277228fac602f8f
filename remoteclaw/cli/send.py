"""The command `send`."""

import os
import stat
import sys
import uuid
from typing import Any, TextIO

import click

from remoteclaw.cli.completion import complete_agents, complete_sessions
from remoteclaw.cli.order import DEFAULT_ACCOUNT, DEFAULT_CHANNEL, Order
from remoteclaw.cli.outcome import wait_option
from remoteclaw.cli.output import json_option

#: The options of the sender and the chat: with any of them, the message is in no conversation of
#: the person at the terminal.
SENDER_OPTIONS = ("channel", "from_", "to", "thread", "account")


@click.command()
@click.argument("words", metavar="TEXT", nargs=-1, required=True)
@click.option(
    "--session",
    metavar="NAME",
    shell_complete=complete_sessions,
    help="Session: its label, title, key or start of id.",
)
@click.option("--channel", default=None, help=f"Kind of channel. [default: {DEFAULT_CHANNEL}]")
@click.option("--from", "from_", default=None, help="Sender's id. [default: you]")
@click.option("--to", default=None, help="Chat's id. [default: the sender's]")
@click.option("--thread", default=None, help="Thread of the chat.")
@click.option("--account", default=None, help=f"Bot or login. [default: {DEFAULT_ACCOUNT}]")
@click.option(
    "--agent",
    default=None,
    shell_complete=complete_agents,
    help="Agent. [default: main, or the only one]",
)
@click.option(
    "--message-id",
    default=None,
    help="Id of the message: a repeated id counts once. [default: new]",
)
@wait_option
@click.option("--background", is_flag=True, help="Let what people send go first.")
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
    help="Attach a file; may be given several times. TEXT may then be empty.",
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
    """Send TEXT to an agent, and print the reply.

    What you type is in your conversation with the agent, as on the page and in `remoteclaw chat`.
    With redirected input or output, or an option of the sender, it has a session of its own, and
    the reply is only printed. If TEXT is -, the message is standard input; otherwise, piped input
    is added after TEXT. A command such as /status is answered as in a chat. This command fetches a
    URL itself, from public addresses only.
    Exit status: 0 a reply, 1 an error, 2 wrong usage, 3 no outcome in time.
    """
    if "" in attach:
        raise click.UsageError("--attach needs the name of a file, or a URL.")
    if session is not None and any(value is not None for value in address.values()):
        raise click.UsageError(
            "--session names the recipient: leave the options of the sender, chat and agent out."
        )
    is_typed = not any(map(_is_redirected, (sys.stdin, sys.stdout)))
    has_sender = any(address[name] is not None for name in SENDER_OPTIONS)
    order = Order(
        text=_text(words),
        is_in_chat=is_typed and not has_sender and session is None,
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


def _is_redirected(stream: TextIO | None) -> bool:
    """Whether a standard stream is no terminal, or is closed."""
    try:
        return stream is None or not stream.isatty()
    except ValueError:
        return True


def _text(words: tuple[str, ...]) -> str:
    """Return the message: `words`, and then piped input; a single `-` is standard input."""
    # The arguments are UTF-8, whatever the locale is.
    text = os.fsencode(" ".join(words)).decode("utf-8", "replace")
    if text == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # no standard input
        return text
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return text
    piped = sys.stdin.buffer.read().decode("utf-8", "replace")
    return f"{text}\n\n{piped}" if piped.strip() else text
