"""The command `chat`."""

import contextlib
import signal
import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.completion import complete_agents, complete_sessions
from remoteclaw.cli.output import echo, echo_wrapped

if TYPE_CHECKING:
    from remoteclaw.chat.app import Chat, ChatTarget
    from remoteclaw.config.home import Home

HINT = "Type a message; /help shows the commands. Esc stops the answer, Ctrl-D leaves."

url_option = click.option(
    "--url",
    metavar="URL",
    envvar="REMOTECLAW_GATEWAY_URL",
    help="A gateway on another machine; its token is in REMOTECLAW_GATEWAY_TOKEN.",
)


@click.command()
@click.argument("session", required=False, shell_complete=complete_sessions)
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agents,
    help="The agent to talk to. [default: the first one]",
)
@click.option("--new", is_flag=True, help="Begin another conversation.")
@url_option
def chat(session: str | None, agent: str | None, new: bool, url: str | None) -> None:
    """Chat in this terminal with an agent of a running RemoteClaw.

    It is the chat of the page, with the same messages. SESSION names a session of any channel
    instead of an agent: its label, its key, or the start of its title or id.
    """
    if session and (agent or new):
        raise click.UsageError("Name a session, or an agent or --new, not both.")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "A chat needs a terminal; `remoteclaw send -` sends what is piped, "
            "and prints the answer."
        )
    import asyncio

    from remoteclaw.chat.app import ChatTarget
    from remoteclaw.config.home import Home

    home = Home.default()
    target = ChatTarget(agent=agent, session=session, is_new=new)
    terminal_chat = chat_with(home, target, url)
    echo_wrapped(HINT)
    echo("")
    asyncio.run(run_until_signal(terminal_chat))


async def run_until_signal(chat: "Chat") -> None:
    """Run a chat until the user leaves it or SIGTERM arrives, and then restore the terminal."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await chat.run()


def chat_with(home: "Home", target: "ChatTarget", url: str | None = None) -> "Chat":
    """Return a chat through the gateway at `url`, or this state directory's if `url` is None."""
    from remoteclaw.chat.app import Chat
    from remoteclaw.cli.over_gateway import gateway_at

    address, token = gateway_at(url, home, scope="admin")
    return Chat(
        address,
        token,
        target=target,
        downloads=home.downloads,
        history=home.path / "chat-history" if home.path.is_dir() else None,
    )
