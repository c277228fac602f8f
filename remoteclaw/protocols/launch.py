"""The launch of an agent: its specification and command line, and decisions on its requests."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import orjson

from remoteclaw.messages import OWN_SERVER, McpServerConfig

__all__ = ["AgentSpec", "Decision", "Launch", "ModelSetting"]

#: Where a model was chosen: by the command in the chat, or in a setting of the agent.
ModelSetting = Literal["/model", "model", "task_model"]


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """The specification of an agent process.

    It is fixed when the process starts, and compared at each turn: an agent with another one is
    restarted. Only the model of a running process can change. A bridge gets a template, and
    completes it for each turn.
    """

    runtime: str
    command: tuple[str, ...]
    """The program and its first arguments; in a template, the program's name on PATH."""
    workspace: str
    """The working directory."""
    env: Mapping[str, str]
    """The whole environment of the process."""
    system_prompt: str = ""
    """The system prompt; the bridge fills it in, as it does `plain_prompt` and `note`."""
    model: str | None = None
    """The model; None for the CLI's default. It isn't compared: `AgentProcess.set_model`."""
    permissions: str = "ask"
    branch: Literal["", "read", "ask", "auto"] = ""
    """For a branch, the agent's setting `branches`, which limits `permissions`; else empty. The
    process is launched with `permissions`."""
    allow: tuple[str, ...] = ()
    """The rules for what needs no permission. The bridge applies them, so that a change of them
    doesn't restart the process."""
    inherit_mcp: bool = True
    trust_workspace: bool = False
    mcp_servers: Mapping[str, McpServerConfig] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    """The names of RemoteClaw's tools that the agent may call; None if it doesn't get their MCP
    server."""
    plain_prompt: str = ""
    """The system prompt without RemoteClaw's tools."""
    own_server: str = ""
    """A secret name of RemoteClaw's MCP server, for a CLI that identifies the server of a tool only
    by a name that the server chooses."""
    note: str = ""
    """The note of the conversation's last process for the next one. It isn't compared, because only
    a process that resumes the conversation reads it."""
    repeats: bool = False
    """Whether the process is asked again for a message that the model could not take for now. A CLI
    that can continues the conversation without the first copy of it. It isn't compared either."""

    @property
    def only_reads(self) -> bool:
        """Whether every request that does more than read is refused."""
        return self.branch == "read"

    @property
    def is_limited(self) -> bool:
        """Whether the agent needs permissions, so that no setting of the user may give them."""
        return self.permissions != "auto" or self.branch in ("read", "ask")

    @property
    def conduct(self) -> str:
        """The value of `permissions` by which requests are decided, after `only_reads`."""
        is_wide = self.branch == "ask" and self.permissions in ("edits", "auto")
        return "ask" if is_wide else self.permissions

    @property
    def server_names(self) -> tuple[str, ...]:
        """The names of the MCP servers that RemoteClaw gives the agent."""
        return tuple(dict.fromkeys((*self.mcp_servers, *([OWN_SERVER] if self.tools else ()))))

    @property
    def unasked_servers(self) -> tuple[str, ...]:
        """The names of the MCP servers whose tools the CLI may use without asking.

        RemoteClaw's own is among them, because each call of its tools is checked by itself.
        """
        if self.permissions == "deny":
            return ()
        return tuple(name for name in self.server_names if not self.branch or name == OWN_SERVER)

    def without_tools(self) -> "AgentSpec":
        """Return the spec without RemoteClaw's tools, which its prompt then doesn't mention."""
        return replace(self, tools=None, system_prompt=self.plain_prompt)

    @property
    def fingerprint(self) -> str:
        """A hash of the values at the start of a process, and of its program's version."""
        try:
            program = Path(self.command[0]).stat()
            version = (program.st_ino, program.st_size, program.st_mtime_ns)
        except OSError:
            version = (0, 0, 0)
        servers = {name: asdict(server) for name, server in self.mcp_servers.items()}
        parts = (
            *(self.runtime, self.command, version, self.workspace, dict(self.env)),
            *(self.system_prompt, self.permissions, self.inherit_mcp),
            *(self.trust_workspace, servers, self.tools, self.own_server, self.branch),
        )
        data = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a permission request."""

    verdict: Literal["allow", "deny"]
    """The verdict on this call only."""
    message: str = ""
    """With a denial, the text for the agent."""
    answers: tuple[str, ...] = ()
    """The person's answers to the agent's questions, in the order of the questions."""
    ends_planning: bool = False
    """Whether the denial of a plan ends the agent's plan mode."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The command line and environment of an agent CLI. Secrets are in `env`, never in `argv`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    session_id: str | None
    """The id of the process's conversation; None if it is not known before the start."""
    prompt_file: Path | None = None
    """The file with the system prompt. Its path depends only on the prompt, because the CLI tells
    the model the path, too."""
