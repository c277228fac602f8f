"""The stdio connector, `remoteclaw mcp`, which relays MCP messages between pipes and the gateway.

Each use starts a process, so the connector imports only the standard library and nothing else of
RemoteClaw. It has no tools itself; the gateway of this host has them.
"""

import sys

__all__ = ["connector_launch"]


def connector_launch() -> list[str]:
    """Return the command line of a connector, which reads its settings from its environment."""
    # With -I, neither the environment nor a hostile working directory can add modules. With -S, no
    # site-packages slow the start down.
    return [sys.executable, "-I", "-S", __file__.rpartition("/")[0] + "/start.py"]
