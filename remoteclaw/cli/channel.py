"""Commands for channels: `channel add`, `channel run` and `channel list`."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, on_fleet, with_fleet
from remoteclaw.cli.error_line import leave_event
from remoteclaw.cli.output import echo, json_option, listing
from remoteclaw.errors import ConfigError

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet


@click.group()
def channel() -> None:
    """Add, run or list the accounts on chat platforms."""


@channel.command("add")
@click.argument("name", metavar="CHANNEL")
@click.option("--account", metavar="NAME", help="A further account, by a name of your own.")
@click.option("--token-file", metavar="FILE", help="The file that has the token.")
@click.option("--token-env", metavar="NAME", help="The environment variable that has it.")
@click.option("--api-url", metavar="URL", help="A server of your own that speaks for the platform.")
@click.option("--agent", metavar="NAME", help="The agent that answers.")
@click.option("--owner", metavar="ID", help="Your id there, if you know it.")
@click.option("--no-input", is_flag=True, help="Ask nothing.")
def add_channel(name: str, no_input: bool, **options: str | None) -> None:
    """Add an account on a chat platform, such as telegram.

    It checks the token, waits for your first message to learn who you are, and writes the
    configuration. A token that it asks for is kept in a file of the state directory.
    """
    import asyncio

    from remoteclaw.cli.onboarding import Onboarding

    home, config = load()
    home.create()
    asyncio.run(Onboarding(home, config, name, options, may_ask=not no_input).run())


@channel.command("run")
@click.argument("names", metavar="[NAME]...", nargs=-1)
def run_channels(names: tuple[str, ...]) -> None:
    """Run the adapters of accounts on chat platforms; `up` does it, too.

    NAME is a channel, or CHANNEL/ACCOUNT; without any, it is all that are configured. Any number
    of such processes may run: one works for an account, the others stand by.
    """
    import asyncio

    from remoteclaw.channels.process import Channels
    from remoteclaw.config.reload import CurrentConfig
    from remoteclaw.host.logs import configure_logging

    configure_logging()
    home, config = load()

    async def run(fleet: "Fleet") -> None:
        leave = leave_event()
        home.create()
        channels = Channels(fleet, home, CurrentConfig(home, config), names)
        for name in names:
            if not any(name in (key[0], "/".join(key)) for key in channels.wanted()):
                raise ConfigError(_missing(name))
        wanted = ", ".join("/".join(key) for key in channels.wanted())
        echo(f"Running {wanted}, until Ctrl-C or SIGTERM." if wanted else f"{NOTHING} Waiting.")
        running = asyncio.create_task(channels.run())
        leaving = asyncio.create_task(leave.wait())
        await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        running.cancel()
        await asyncio.wait((running,))
        if not running.cancelled() and (error := running.exception()):
            raise error

    on_fleet(run)


NOTHING = (
    "No account on a chat platform is configured: a section such as [channels.telegram] has its "
    "token, and says who may write to it."
)


def _missing(name: str) -> str:
    return (
        f"There is no account {name!r} in the configuration; `remoteclaw channel list` shows all."
    )


@channel.command("list")
@json_option
@with_fleet
async def list_channels(fleet: "Fleet", as_json: bool) -> None:
    """List the accounts of the configuration, and whether each works."""
    from remoteclaw.fleet.adapters import accounts_here

    listing(
        await accounts_here(fleet, load()[1]),
        as_json=as_json,
        plain=asdict,
        heads=("ACCOUNT", "STATE", "NAME", "PROBLEM"),
        row=lambda one: (one.account, one.state, one.name, one.problem),
        empty=NOTHING,
    )
