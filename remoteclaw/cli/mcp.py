"""The command `mcp`."""

import os

import click

__all__ = ["mcp"]


@click.command()
def mcp() -> None:
    """Be an MCP server over pipes, for a CLI that starts one.

    It relays to the gateway of the state directory, with a token of the scope write. With
    $REMOTECLAW_GATEWAY_TOKEN it uses that one, and with $REMOTECLAW_GATEWAY_URL that address.
    """
    from remoteclaw.connector import connector_launch
    from remoteclaw.host.process import become

    become(connector_launch(), os.environ)
