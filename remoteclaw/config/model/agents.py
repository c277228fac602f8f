"""The sections `[agents.NAME]`."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from remoteclaw.config.model.requests import AskingSection, RequestsConfig
from remoteclaw.config.model.section import MAX_S, Section, check_names, zone_name
from remoteclaw.config.model.tools import ToolsConfig
from remoteclaw.config.permissions.permissions import PermissionRule
from remoteclaw.config.rights import BY_AGENTS, BY_PEOPLE, SECRET
from remoteclaw.extensions import extension_names, load_runtime
from remoteclaw.locations import AGENT_FILES, MEMORY_FILE, state_directory
from remoteclaw.messages import OWN_SERVER, McpServerConfig, channel_name

#: The beginning of a fallback that is another agent; after it comes the agent's name.
ANOTHER_AGENT = "agent:"
#: The names of our own runtimes.
OWN_RUNTIMES = ("claude", "codex", "gemini", "opencode", "acp", "demo")
#: A model's name. An agent may change it, and some CLIs get it as an argument, so it is no option.
#: Matches the label of a worker. It is a part of the names of queues, so it has no dot and no @.
WORKER_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_MODEL = re.compile(r"[\x21-\x2c\x2e-\x7e][\x21-\x7e]{0,199}")


class McpServerSettings(Section):
    """An MCP server for the agent: either a program to start (stdio) or an address (HTTP)."""

    command: Annotated[str | None, BY_PEOPLE] = None
    """The program to start. Required for a stdio server."""
    args: Annotated[tuple[str, ...], SECRET] = ()
    """The program's arguments. All users of the machine can read them: put secrets into `env`."""
    env: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """Variables to add to the program's environment."""
    url: Annotated[str | None, SECRET] = None
    """The address of a running server: http:// or https://. Required for an HTTP server."""
    headers: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """HTTP headers to send with every request to `url`, such as `Authorization`."""

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
        """Return the server in the form that runtimes use; raises ValueError if it is invalid."""
        return McpServerConfig(
            command=self.command,
            args=self.args,
            env=self.env,
            url=self.url,
            headers=self.headers,
        )


class AgentConfig(AskingSection):
    """An agent: its CLI, its directory and its permissions."""

    runtime: Annotated[str | None, BY_PEOPLE] = None
    """The CLI that runs the agent: `claude`, `codex`, `gemini`, `opencode`, `acp`, `demo`, or a
    runtime of another package. `acp` is any other agent that speaks the Agent Client Protocol and
    needs `command`. Without it, the first installed CLI of claude, codex, gemini and opencode; if
    none is installed, a demo agent."""
    command: Annotated[tuple[str, ...] | None, SECRET] = Field(default=None, min_length=1)
    """The CLI's program and its first arguments. Without it, the program is searched on PATH by its
    usual name."""
    workspace: Annotated[Path | None, BY_PEOPLE] = None
    """The directory in which the agent works: a path that is absolute or begins with ~. It must not
    contain RemoteClaw's state directory. Without it, a directory in the state directory."""
    runs_on: Annotated[str | None, BY_PEOPLE] = None
    """The label of the workers that run the agent's turns, such as `gpu`, for `remoteclaw worker
    --label gpu`. Without it, the workers without a label. It must be the same on all hosts."""
    model: Annotated[str | None, BY_AGENTS] = None
    """The name of the model, passed to the CLI as it is. Without it, the CLI chooses."""
    task_model: Annotated[str | None, BY_AGENTS] = None
    """The model of tasks, and of sessions to which only cron jobs and other sessions write. Without
    it, `model`. A branch has its conversation's model, for the sake of the provider's cache."""
    fallbacks: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=20)
    """Who answers while the agent can't, because a plan's limit is used up or its model is away, in
    this order: names of other models of this agent, and other agents as `agent:NAME`. Another agent
    answers with notes of the conversation, under this agent's permissions."""
    env: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """Variables to add to the agent's environment, which has only a few of RemoteClaw's own."""
    env_pass: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=200)
    """Names of further variables of RemoteClaw's own environment that the agent and the programs it
    starts get, such as `SSH_AUTH_SOCK`, `JAVA_HOME` or `KUBECONFIG`. A variable in `env` comes
    before one of the same name. `[]` is the default; written out, it also keeps `up` from naming
    what is not passed."""
    timezone: Annotated[str | None, BY_AGENTS] = None
    """The IANA time zone, such as Europe/Berlin, of the agent's cron jobs, and of the times in
    messages to it on channels that don't report the user's time zone. Without it,
    `[fleet] timezone`, else this computer's."""
    permissions: Annotated[Literal["ask", "edits", "auto", "deny"], BY_PEOPLE] = "ask"
    """What happens when the CLI asks for permission to use a tool. `auto` allows all tools. `deny`
    refuses all tools, and no files are sent to the chat. `ask` allows reading files in the
    workspace and what `allow` lists, `edits` also changes of files in the workspace. About
    everything else, a person is asked (`[requests]`), or it is refused if nobody can be asked."""
    allow: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=200)
    """Rules for what needs no permission with `ask` and `edits`, in the syntax of claude's
    settings: `Bash(git status)` is this exact command, `Bash(npm run:*)` this command also with
    more arguments, `Edit(docs/**)`, `Read(~/notes/**)`, `Read(//etc/hosts)` (an absolute path),
    `WebFetch(domain:example.org)`, `mcp__SERVER__TOOL`. A tool without parentheses, such as `Read`,
    is every use of it."""
    branches: Annotated[Literal["read", "ask", "auto"], BY_PEOPLE] = "read"
    """How much a branch, which works in the same directory as the conversation that it copies, may
    do of what `permissions` and the tool policy allow. `read`: read files and the web, and use
    those of RemoteClaw's tools that change nothing. `ask`: as with `permissions = "ask"`. `auto`:
    everything."""
    trust_workspace: Annotated[bool, BY_PEOPLE] = False
    """Whether the CLI obeys what it finds in the workspace: its CLAUDE.md or AGENTS.md, settings,
    and hooks and MCP servers, which run as your user. If so, anyone who can write files there can
    run programs as you."""
    inherit_mcp: Annotated[bool, BY_PEOPLE] = True
    """Whether the agent also has the MCP servers of the CLI's own configuration."""
    mcp_servers: Annotated[dict[str, McpServerSettings], BY_PEOPLE] = Field(default_factory=dict)
    """Additional MCP servers for this agent, by name. Since you chose them, their tools need no
    permission, except with `permissions = "deny"`."""
    sees_sessions: Annotated[Literal["self", "tree", "agent", "all"] | None, BY_PEOPLE] = None
    """The sessions that the agent's tools can read and write to: only the session itself (`self`),
    also the sessions that it has started (`tree`), all sessions of this agent (`agent`), or those
    of all agents (`all`). In turns that aren't only on behalf of owners, `agent` and `all` mean
    `tree`. Without it, `agent`."""
    sends_to: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=100)
    """The chats, besides its own, to which the agent's tools may send on behalf of people who are
    not owners: `telegram:-100123` is a chat, `telegram:*` every chat of a channel, `*` every chat.
    Such a message names the chat that it comes from."""
    spawns: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """The names of the agents, besides itself, of which the agent may start sessions; `*` is every
    agent."""
    mcp_transport: Annotated[Literal["http", "stdio"], BY_PEOPLE] = "http"
    """How the agent connects to RemoteClaw's tools: over HTTP, or with `stdio` through a small
    program that is started with it, for an agent that supports only stdio."""
    identity: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=20)
    """The names of files in the directory `agents/NAME` of the state directory, such as `SOUL.md`,
    whose text the agent gets in its system prompt: at most 16 KB each, and 32 KB together. A change
    of them takes effect with the next conversation."""
    memory: Annotated[bool, BY_PEOPLE] = False
    """Whether the agent has a memory of at most 8 KB, `MEMORY.md` in the same directory: it reads
    it when a conversation with owners begins, and writes to it on behalf of owners alone."""
    start_s: Annotated[float, BY_PEOPLE] = Field(default=90, ge=1, le=MAX_S)
    """Seconds that the agent may take to start, including its MCP servers."""
    stall_s: Annotated[float, BY_PEOPLE] = Field(default=300, ge=1, le=MAX_S)
    """Seconds without output after which a turn fails. The time in which the agent uses a tool,
    waits for a permission or summarizes the conversation doesn't count."""
    turn_s: Annotated[float, BY_PEOPLE] = Field(default=21_600, ge=1, le=MAX_S)
    """Seconds that a whole turn may take; the default is six hours."""
    warm_s: Annotated[float, BY_AGENTS] = Field(default=600, ge=0, le=MAX_S)
    """Seconds for which an idle agent process is kept for the next message, which it answers
    sooner than a new process; 0 ends it after each turn."""
    compact_at: Annotated[float | None, BY_PEOPLE] = Field(default=None, ge=0, le=1)
    """The part of the model's context, from 0 to 1, from which on the conversation is summarized
    while it is idle, so that nobody waits for that; a message interrupts it. 0 turns it off.
    Without it, 0.75 for claude and 0.85 for codex; other CLIs, and models with a context below
    100,000 tokens, are never summarized this way."""
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which of RemoteClaw's tools the agent may use."""
    requests: RequestsConfig = Field(default_factory=RequestsConfig)
    """Who answers the agent's requests."""

    @field_validator("compact_at", mode="before")
    @classmethod
    def _check_compact_at(cls, value: Any) -> Any:
        if isinstance(value, int | float) and not 0 <= value <= 1:
            raise ValueError("must be from 0 to 1: 0.75 is 75 %")
        return value

    @field_validator("runs_on")
    @classmethod
    def _check_runs_on(cls, value: str | None) -> str | None:
        if value is not None and not WORKER_LABEL.fullmatch(value):
            raise ValueError("must be at most 32 lowercase letters, digits and -")
        return value

    @field_validator("model", "task_model")
    @classmethod
    def _check_model(cls, value: str | None) -> str | None:
        if value is not None and not _MODEL.fullmatch(value):
            raise ValueError("must be a model's name: no space, no - at its beginning")
        return value

    @field_validator("fallbacks")
    @classmethod
    def _check_fallbacks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for fallback in value:
            if value.count(fallback) > 1:
                raise ValueError(f"has {fallback!r} twice: name each fallback once")
            if not fallback.removeprefix(ANOTHER_AGENT) or not (
                fallback.startswith(ANOTHER_AGENT) or _MODEL.fullmatch(fallback)
            ):
                raise ValueError(
                    f"has {fallback!r}: write a model's name (no space, no - at its beginning), "
                    "or agent:NAME"
                )
        return value

    @property
    def fallback_agents(self) -> tuple[str, ...]:
        """The names of the other agents in `fallbacks`."""
        return tuple(
            fallback.removeprefix(ANOTHER_AGENT)
            for fallback in self.fallbacks
            if fallback.startswith(ANOTHER_AGENT)
        )

    def variables(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return what this agent gets beside its CLI's own variables: `env_pass` and `env`."""
        return {name: inherited[name] for name in self.env_pass if name in inherited} | self.env

    @field_validator("workspace")
    @classmethod
    def _check_workspace(cls, value: Path | None) -> Path | None:
        return None if value is None else workspace(value)

    @field_validator("env_pass")
    @classmethod
    def _check_passed(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            named, equals, _ = name.partition("=")  # a value after it may be a secret
            if equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"has {named!r} with more than a name: values belong in env")
            if name.startswith("REMOTECLAW_"):
                raise ValueError(f"has {name!r}: RemoteClaw's own variables are never passed")
        return value

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        return value and zone_name(value)

    @field_validator("identity")
    @classmethod
    def _check_identity(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name in ("", ".", "..") or "/" in name or not name.isprintable():
                raise ValueError(f"has {name!r}: write the name of a file, without a directory")
            if name == MEMORY_FILE:
                raise ValueError(f"has {name!r}, the agent's memory: set memory = true instead")
            if value.count(name) > 1:
                raise ValueError(f"has {name!r} twice")
        return value

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

    @field_validator("runtime")
    @classmethod
    def _check_runtime(cls, value: str | None) -> str | None:
        if value not in (None, *OWN_RUNTIMES) and load_runtime(value) is None:
            known = [*OWN_RUNTIMES, *extension_names("runtime")]
            raise ValueError(f"{value[:40]!r} is none of {', '.join(known)}")
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
            PermissionRule.parse(rule)
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
            raise ValueError(f"has {OWN_SERVER!r}, the name of RemoteClaw's own server")
        return check_names(value)

    def servers(self) -> dict[str, McpServerConfig]:
        """Return the agent's MCP servers, by name, in the form that runtimes use."""
        return {name: settings.server() for name, settings in self.mcp_servers.items()}


def workspace(value: Path) -> Path:
    """Return `value` if agents may work in this directory; else raise ValueError."""
    try:
        if not value.expanduser().is_absolute():
            raise ValueError("must begin with / or ~")
        state = state_directory(os.environ)
    except RuntimeError:
        raise ValueError("must begin with /, because its ~ names no home directory") from None
    # Unlike resolve(), realpath() doesn't fail for a symbolic link to itself.
    if Path(state).is_relative_to(os.path.realpath(value.expanduser())):
        raise ValueError(
            f"contains RemoteClaw's state directory {state}, where tokens and conversations "
            "are: name a directory of the agent's own, or set REMOTECLAW_HOME to a place "
            "outside of it and move the state directory there"
        )
    if Path(os.path.realpath(value.expanduser())).is_relative_to(Path(state, AGENT_FILES)):
        raise ValueError(
            f"is in {Path(state, AGENT_FILES)}, where the files are that agents must not change: "
            "name a directory of the agent's own"
        )
    return value
