"""The sections `[agents.NAME]`."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from remoteclaw.config.home import state_directory
from remoteclaw.config.model.approvals import ApprovalsConfig
from remoteclaw.config.model.section import MAX_S, Section, check_names, zone_name
from remoteclaw.config.model.tools import ToolsConfig
from remoteclaw.config.permissions import Rule
from remoteclaw.config.rights import BY_AGENTS, BY_PEOPLE, SECRET
from remoteclaw.messages import OWN_SERVER, McpServerConfig, channel_name


class McpServerSettings(Section):
    """An MCP server that the agent gets: a program to start (stdio) or an address (HTTP)."""

    command: Annotated[str | None, BY_PEOPLE] = None
    """The program to start."""
    args: Annotated[tuple[str, ...], SECRET] = ()
    """Its arguments. Everybody on the machine can read them: no secrets here."""
    env: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """Variables added to its environment."""
    url: Annotated[str | None, SECRET] = None
    """The address of a server that runs already."""
    headers: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """Headers sent with every request, such as a token."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        self.server()  # refuses what is neither a program nor an address
        return self

    def server(self) -> McpServerConfig:
        """Return it as runtimes take it."""
        return McpServerConfig(
            command=self.command,
            args=self.args,
            env=self.env,
            url=self.url,
            headers=self.headers,
        )


class AgentConfig(Section):
    """One agent: which CLI, where, and what it may do."""

    runtime: Annotated[
        Literal["claude", "codex", "gemini", "opencode", "acp", "demo"] | None, BY_PEOPLE
    ] = None
    """The CLI that runs it. Without it, the first one that is installed; the demo if none is.
    `acp` is any other agent that speaks the Agent Client Protocol: name its `command`."""
    command: Annotated[tuple[str, ...] | None, SECRET] = Field(default=None, min_length=1)
    """The program to run and its first arguments, if it isn't found on PATH by its usual name."""
    workspace: Annotated[Path | None, BY_PEOPLE] = None
    """The directory in which the agent works: absolute, or beginning with ~. It must not contain
    the state directory. Without it, one of its own in the state directory."""
    model: Annotated[str | None, BY_AGENTS] = None
    """The model to ask for; without it, the CLI's own choice."""
    env: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """Variables added to the agent's environment, which otherwise gets little of RemoteClaw's."""
    timezone: Annotated[str | None, BY_AGENTS] = None
    """The IANA time zone of the times that the agent is told, such as Europe/Berlin, where a
    channel doesn't know its user's. Without it, this computer's."""
    permissions: Annotated[Literal["ask", "edits", "auto", "deny"], BY_PEOPLE] = "ask"
    """Tools that the CLI asks permission for: `auto` allows them all, `deny` refuses them all and
    sends no files. `edits` allows changes of files in the workspace, and `ask` nothing but what
    `allow` has; for the rest a person is asked, where one can be (`[approvals]`)."""
    allow: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=200)
    """What else needs no permission with `ask` and `edits`, in the form of claude's own rules:
    `Bash(git status)` is that command, `Bash(npm test:*)` also with more words behind it,
    `Edit(docs/**)`, `Read(~/notes/**)`, `Read(//etc/hosts)`, `WebFetch(domain:example.org)`,
    `mcp__SERVER__TOOL`; `Read` alone is every file."""
    branches: Annotated[Literal["read", "ask", "auto"], BY_PEOPLE] = "read"
    """What a branch may do of what `permissions` and the policy allow, as it works in the same
    directory as the conversation that it is a copy of: `read` files and the web, and use
    RemoteClaw's tools that change nothing; `ask` like `permissions = "ask"`; `auto` all of it."""
    trust_workspace: Annotated[bool, BY_PEOPLE] = False
    """Whether what the CLI finds in the workspace tells it what to do: its CLAUDE.md, its settings,
    and hooks and MCP servers, which run as you. Who can write there could then do that too."""
    inherit_mcp: Annotated[bool, BY_PEOPLE] = True
    """Whether the MCP servers of the CLI's own configuration stay available."""
    mcp_servers: Annotated[dict[str, McpServerSettings], BY_PEOPLE] = Field(default_factory=dict)
    """More MCP servers for this agent, by name. Their tools need no permission, because you chose
    them, except under `permissions = "deny"`."""
    sees_sessions: Annotated[Literal["self", "tree", "agent", "all"] | None, BY_PEOPLE] = None
    """Which conversations its tools can look at, and write to: its own alone, also the sessions
    that it has started (`tree`), all those of this agent, or those of every agent. `agent` and
    `all` hold in turns of owners alone, others have `tree` then. Without it, owners have `agent`
    and others `tree`."""
    sends_to: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=100)
    """The chats besides its own to which its tools may send for people who are no owners:
    `telegram:-100123` is a chat, `telegram:*` all of a channel, `*` all there are. What arrives
    there says from which chat it comes."""
    spawns: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """The agents, besides itself, that it may start sessions of, by name; `*` is every agent."""
    mcp_transport: Annotated[Literal["http", "stdio"], BY_PEOPLE] = "http"
    """How it gets RemoteClaw's tools: `stdio` starts a small connector with it, for an agent that
    speaks only that."""
    start_s: Annotated[float, BY_PEOPLE] = Field(default=90, ge=1, le=MAX_S)
    """Seconds that it may take to start, MCP servers included."""
    stall_s: Annotated[float, BY_PEOPLE] = Field(default=300, ge=1, le=MAX_S)
    """Seconds for which it may give no sign of life in a turn. While it uses a tool, or waits for a
    permission, it may take its time."""
    turn_s: Annotated[float, BY_PEOPLE] = Field(default=21_600, ge=1, le=MAX_S)
    """Seconds that one turn may take in all."""
    warm_s: Annotated[float, BY_AGENTS] = Field(default=600, ge=0, le=MAX_S)
    """Seconds for which an idle agent process is kept warm for the next message."""
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which of RemoteClaw's tools it may use."""
    approvals: ApprovalsConfig = Field(default_factory=ApprovalsConfig)
    """Who answers what it asks people for."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, value: str | None) -> str | None:
        # Some CLIs get it as an argument, and agents may change it.
        if value is not None and not re.fullmatch(r"[\x21-\x2c\x2e-\x7e][\x21-\x7e]{0,199}", value):
            raise ValueError("must be a model's name: no space, no - at its beginning")
        return value

    @field_validator("workspace")
    @classmethod
    def _check_workspace(cls, value: Path | None) -> Path | None:
        return None if value is None else workspace(value)

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        return value and zone_name(value)

    @field_validator("sends_to")
    @classmethod
    def _check_chats(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            channel, colon, chat = entry.partition(":")
            if entry != "*" and not (channel and colon and chat):
                raise ValueError(f"has {entry!r}: write CHANNEL:CHAT, CHANNEL:* or *")
            if entry != "*":
                channel_name(channel)
        return value

    @model_validator(mode="after")
    def _check_command(self) -> Self:
        if self.runtime == "acp" and self.command is None:
            raise ValueError('has runtime = "acp" and no command: name the agent\'s program')
        return self

    @field_validator("allow")
    @classmethod
    def _check_allow(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for rule in value:
            Rule.parse(rule)
        return value

    @model_validator(mode="after")
    def _check_rules_apply(self) -> Self:
        if self.allow and self.permissions == "deny":
            raise ValueError(
                'has permissions = "deny", which refuses what its allow has: '
                'set permissions = "ask", or take allow out'
            )
        return self

    @field_validator("mcp_servers")
    @classmethod
    def _check_servers(cls, value: dict[str, McpServerSettings]) -> dict[str, McpServerSettings]:
        if OWN_SERVER in value:
            raise ValueError(f"has {OWN_SERVER!r}, which is what RemoteClaw's own is called")
        return check_names(value)

    def servers(self) -> dict[str, McpServerConfig]:
        """Return its MCP servers as runtimes take them."""
        return {name: settings.server() for name, settings in self.mcp_servers.items()}


def workspace(value: Path) -> Path:
    """Return a directory in which agents may work; raises ValueError for another one."""
    try:
        if not value.expanduser().is_absolute():
            raise ValueError("must begin with / or ~")
        state = state_directory()
    except RuntimeError:
        raise ValueError("must begin with /: its ~ leads nowhere") from None
    # Unlike resolve(), realpath() takes a link that leads to itself.
    if Path(os.path.realpath(state)).is_relative_to(os.path.realpath(value.expanduser())):
        raise ValueError(
            f"contains RemoteClaw's state directory {state}, where tokens and conversations "
            "are: name a directory of the agent's own, or set REMOTECLAW_HOME to a place "
            "outside of it and move the state directory there"
        )
    return value
