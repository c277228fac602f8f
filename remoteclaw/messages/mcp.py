"""MCP servers that an agent is given."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["OWN_SERVER", "McpServerConfig"]

#: How agents know RemoteClaw's own MCP server.
OWN_SERVER = "remoteclaw"


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """An MCP server that the agent gets: a program to start (stdio) or an address (HTTP)."""

    command: str | None = None
    """The program to start."""
    args: tuple[str, ...] = ()
    """Its arguments. Everybody on the machine can read them: no secrets here."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables added to its environment."""
    url: str | None = None
    """The address of a server that runs already."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers sent with every request, such as a token."""

    def __post_init__(self) -> None:
        """Refuse a server that is neither or both."""
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either a command or a url")
        if self.url is not None and (self.args or self.env):
            raise ValueError("has a url, so args and env mean nothing: leave them out")
        if self.command is not None and self.headers:
            raise ValueError("has a command, so headers mean nothing: leave them out")
