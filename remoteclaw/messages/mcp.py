"""The MCP servers of an agent."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["OWN_SERVER", "McpServerConfig", "tool_label"]

#: The name of RemoteClaw's own MCP server in the configurations of agents.
OWN_SERVER = "remoteclaw"
#: The beginning of its tools' names, in the forms of claude and codex, of gemini, and of opencode.
_OWN_PREFIX = re.compile(rf"\A(?:mcp__{OWN_SERVER}__|mcp_{OWN_SERVER}_|{OWN_SERVER}_)(?=.)")
#: The name of another server's tool, in the form of claude and codex.
_MCP_TOOL = re.compile(r"\Amcp__(.+?)__(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """An MCP server of an agent: either a program to start (stdio) or an address (HTTP)."""

    command: str | None = None
    """The program to start."""
    args: tuple[str, ...] = ()
    """The program's arguments. Every user of the machine can read them: no secrets here."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables added to the program's environment."""
    url: str | None = None
    """The address of a server that is already running."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers sent with every request, such as a token."""

    def __post_init__(self) -> None:
        """Raise ValueError unless exactly one of `command` and `url` is set."""
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either a command or a url")
        if self.url is not None and (self.args or self.env):
            raise ValueError("has a url, so args and env mean nothing: leave them out")
        if self.command is not None and self.headers:
            raise ValueError("has a command, so headers mean nothing: leave them out")


def tool_label(name: str) -> str:
    """Return a tool's name for people: without RemoteClaw's server, `SERVER/TOOL` for others'."""
    return _MCP_TOOL.sub(r"\1/\2", _OWN_PREFIX.sub("", name, count=1))
