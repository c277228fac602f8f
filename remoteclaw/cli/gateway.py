"""The command `gateway`."""

import os
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, require_running
from remoteclaw.cli.edge import leave_event
from remoteclaw.cli.output import echo

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

__all__ = ["gateway"]


@click.command()
@click.option(
    "--socket", "descriptors", type=int, multiple=True, hidden=True, help="What it answers on."
)
@click.option("--alone", is_flag=True, hidden=True, help="They are its own, and not `up`'s.")
def gateway(descriptors: tuple[int, ...], alone: bool) -> None:
    """Run the gateway that agents and operators ask.

    Every host with workers needs one, and `up` starts it. It ends with Ctrl-C or SIGTERM.
    """
    import asyncio

    from remoteclaw.gateway.address import inherited
    from remoteclaw.gateway.server import serve
    from remoteclaw.gateway.token_file import TokenFile
    from remoteclaw.host.logs import configure_logging
    from remoteclaw.host.process import become
    from remoteclaw.up.supervisor import gateway_command

    home, config = load()
    require_running(home, config)
    configure_logging()
    home.create()

    def said(url: str) -> None:
        echo(f"The gateway is at {url}, its token in {TokenFile(home.path).path}.")

    async def run() -> "Sequence[socket.socket] | None":
        sockets = [inherited(descriptor) for descriptor in descriptors]
        return await serve(
            home, config, stop=leave_event(), sockets=sockets, is_alone=is_alone, said=said
        )

    is_alone = alone or not descriptors
    kept = asyncio.run(run())
    if kept is not None:  # it was asked to restart
        for listening in kept:
            os.set_inheritable(listening.fileno(), True)
        become([*gateway_command(kept), *(["--alone"] if is_alone else [])], os.environ)
