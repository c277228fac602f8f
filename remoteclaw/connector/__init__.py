"""The stdio connector, `remoteclaw mcp`: the gateway's tools for agents that speak MCP over pipes.

Each use starts a process, so the connector imports the standard library alone and nothing else of
RemoteClaw. It relays to the gateway of this host, which knows the tools.
"""

import sys

__all__ = ["connector_launch"]


def connector_launch() -> list[str]:
    """Return the command that starts a connector; its settings are in its environment."""
    # Neither the environment nor the working directory, which may be hostile, can change what it
    # imports (-I), and nothing of site-packages slows it down (-S).
    return [sys.executable, "-I", "-S", __file__.rpartition("/")[0] + "/start.py"]
