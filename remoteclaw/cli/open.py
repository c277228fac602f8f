"""The command `open`."""

from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, with_fleet
from remoteclaw.cli.output import echo
from remoteclaw.cli.token import check_name
from remoteclaw.errors import NotFound

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.tools.base import Scope


def _check_name(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    return None if name is None else check_name(context, parameter, name)


@click.command("open")
@click.option(
    "--as",
    "name",
    metavar="NAME",
    callback=_check_name,
    help="The name to log in as. [default: your name on this computer]",
)
@click.option(
    "--scope",
    type=click.Choice(["read", "write", "terminal", "admin"]),
    default="admin",
    show_default=True,
    help="What the browser may do; each includes those before it.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 365),
    default=30,
    show_default=True,
    help="How many days the login lasts.",
)
@with_fleet
async def open_page(fleet: "Fleet", name: str | None, scope: "Scope", days: int) -> None:
    """Print a link to the page that logs a browser in, once.

    The link is valid for ten minutes. With `[gateway] hosts`, the same link with the first of these
    names is for a browser on another device.
    """
    from remoteclaw.channels.web.settings import own_name

    home, config = load()
    address = await fleet.gateways.address(home.host_id)
    if address is None:
        raise NotFound("No gateway runs here: start RemoteClaw with `remoteclaw up`.")
    name = name or own_name(config)
    link = await page_link(fleet, address, name, scope=scope, days=days)
    echo(link)
    if config.gateway.hosts:
        there = link.replace(address, f"https://{config.gateway.hosts[0]}", 1)
        echo(f"On another device, instead: {there}", err=True)


async def page_link(
    fleet: "Fleet",
    address: str,
    name: str,
    *,
    scope: "Scope" = "admin",
    days: int = 30,
) -> str:
    """Return a link to the page of the gateway at `address`, with a new login code."""
    code = await fleet.logins.create(name, scope, days * 24 * 3600 * 1000)
    return f"{address}/#{code}"
