"""Commands for channels: `channel add`, `channel run` and `channel list`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import load, on_fleet, with_fleet
from remoteclaw.cli.output import echo, interruptible, json_option, print_list, print_table
from remoteclaw.cli.processes import shutdown_event
from remoteclaw.errors import ConfigError

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.account_states import AccountState


@click.group()
def channel() -> None:
    """Add, run or list the accounts on chat platforms."""


@channel.command("add")
@click.argument("name", metavar="CHANNEL")
@click.option("--account", metavar="NAME", help="The name of a further account; any name.")
@click.option(
    "--token-file",
    "token_files",
    metavar="[NAME=]FILE",
    multiple=True,
    help="The file that has the token; of several tokens, the one called NAME.",
)
@click.option(
    "--token-env",
    "token_variables",
    metavar="[NAME=]VARIABLE",
    multiple=True,
    help="The environment variable that has the token.",
)
@click.option("--api-url", metavar="URL", help="Your own server for the platform's API.")
@click.option("--agent", metavar="NAME", help="The agent that answers.")
@click.option("--owner", metavar="ID", help="Your id on the platform, if you know it.")
@click.option(
    "--recovery-key",
    "recovers",
    is_flag=True,
    help="Ask for the recovery key of the account's identity, which another client has made.",
)
@click.option("--no-input", is_flag=True, help="Don't ask for anything.")
def add_channel(
    name: str,
    no_input: bool,
    recovers: bool,
    token_files: tuple[str, ...],
    token_variables: tuple[str, ...],
    **options: str | None,
) -> None:
    """Add an account on a chat platform, such as telegram or matrix.

    Checks the token or logs in, waits for your first message to learn your id, and writes the
    configuration.
    If no option names the token, asks for it, or for the account's password, which is not stored,
    and stores the token in a file in the state directory. Again for an account that is logged out,
    logs in again.
    """
    import asyncio
    import contextlib

    from remoteclaw.host.hidden_input import hidden_input

    with contextlib.ExitStack() as hiding:
        if not no_input:
            hiding.enter_context(hidden_input())  # a token may be pasted before the prompt
        from remoteclaw.cli.account_options import AccountOptions
        from remoteclaw.cli.onboarding import Onboarding

        home, config = load()
        home.create()
        places = {"file": token_files, "env": token_variables}
        adding = Onboarding(
            home,
            config,
            name,
            AccountOptions(options, places, may_ask=not no_input),
            recovers=recovers,
            hiding=hiding,
        )
        with interruptible():
            asyncio.run(adding.run())


@channel.command("run")
@click.argument("names", metavar="[NAME]...", nargs=-1)
def run_channels(names: tuple[str, ...]) -> None:
    """Run the adapters of accounts on chat platforms, as `up` does.

    NAME is a channel, or CHANNEL/ACCOUNT; without a NAME, all configured accounts run. Any number
    of these processes may run: for each account, one is active and the others stand by.
    """
    import asyncio

    from remoteclaw.channels.process import Channels
    from remoteclaw.config.reload import CurrentConfig
    from remoteclaw.host.logs import configure_logging

    home, config = load()
    configure_logging(log_format=config.fleet.log_format)

    async def run(fleet: "Fleet") -> None:
        shutdown = shutdown_event()
        home.create()
        channels = Channels(fleet, home, CurrentConfig(home, config), names)
        for name in names:
            if not any(name in (key[0], "/".join(key)) for key in channels.selected()):
                raise ConfigError(
                    f"There is no account {name!r} in the configuration; "
                    "`remoteclaw channel list` shows all."
                )
        accounts = ", ".join("/".join(key) for key in channels.selected())
        running_line = f"Running {accounts}, until Ctrl-C or SIGTERM."
        echo(running_line if accounts else f"{NO_ACCOUNTS} Waiting.")
        name = config.fleet.name_of_host
        async with fleet.processes.announced("channels", home.host_id, name):
            running = asyncio.create_task(channels.run())
            stopping = asyncio.create_task(shutdown.wait())
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            running.cancel()
            await asyncio.wait((running,))
        if not running.cancelled() and (error := running.exception()):
            raise error

    on_fleet(run)


NO_ACCOUNTS = (
    "No account on a chat platform is configured: run `remoteclaw channel add telegram`, or add "
    "another channel's section to the configuration."
)


def _to_json(state: "AccountState") -> dict[str, Any]:
    names = {"skipped": "aside"}
    return {names.get(name, name): value for name, value in asdict(state).items()}


@channel.command("list")
@json_option
@with_fleet
async def list_channels(fleet: "Fleet", as_json: bool) -> None:
    """List the configured accounts with their state, and their groups."""
    from remoteclaw.fleet.account_states import configured_accounts

    config = load()[1]
    states = await configured_accounts(fleet, config)
    problems = "\n".join(config.without_account().values())
    print_list(
        states,
        as_json=as_json,
        to_json=_to_json,
        headers=("ACCOUNT", "STATE", "AGENT", "NAME", "PROBLEM"),
        row=lambda each: (each.account, each.state, each.agent, each.name, each.problem),
        empty=problems or NO_ACCOUNTS,
    )
    if states and problems and not as_json:
        echo(problems)
    groups = [(each.account, group.id, group.agent) for each in states for group in each.groups]
    if groups and not as_json:
        echo("")
        print_table(("ACCOUNT", "GROUP", "AGENT"), groups)
