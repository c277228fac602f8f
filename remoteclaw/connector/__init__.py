"""The stdio connector, `remoteclaw mcp`: for agents and CLIs that speak MCP over pipes alone.

Each use starts a process of its own, so it has to be up at once: it is of the standard library
alone, imports nothing else of ours, and relays to the gateway of this host, which knows the tools.
"""

import sys

__all__ = ["connector_launch"]


def connector_launch() -> list[str]:
    """Return the command that starts a connector; what it needs to know is in its environment."""
    # Neither the environment nor the working directory, which may be hostile, can change what it
    # imports (-I), and nothing of site-packages slows it down (-S).
    return [sys.executable, "-I", "-S", __file__.rpartition("/")[0] + "/start.py"]
