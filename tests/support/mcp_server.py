"""A real MCP server over stdio, for agents to call: `python -m tests.support.mcp_server`."""

import os

from mcp.server import MCPServer

server = MCPServer("probe")


@server.tool()
def echo(text: str) -> str:
    """Say a text back."""
    return f"echo: {text}"


@server.tool()
def variable(name: str) -> str:
    """Show a variable of this server's environment."""
    return os.environ.get(name, "(not set)")


if __name__ == "__main__":
    server.run("stdio")
