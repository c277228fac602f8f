"""The command-line options and environment that claude's turns and terminals share."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import FILES, AgentSpec
from remoteclaw.runtimes.base import server_environment, split_note
from remoteclaw.runtimes.claude.hook import is_ruled

#: A model name as claude reports it, such as `claude-opus-4-8[1m]`.
_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@-]*(\[\w+\])?")
#: The beginning of the note of a process in plan mode.
PLANNING = "plan "
#: Settings that override the user's. Claude enters plan mode without asking, and by default a model
#: of the provider then decides about commands and changes in place of a person.
SETTINGS: Mapping[str, Any] = {"useAutoModeDuringPlan": False}
#: Such settings of an agent about whose actions RemoteClaw decides, on the command line.
_RULED_SETTINGS: Mapping[str, Any] = {
    # Claude asks for every command, whatever the user's rules and its own list allow. So it does if
    # a later version should ignore our hook, and for commands in the text of a skill.
    "permissions": {"ask": ["Bash"]},
    # By default, this doesn't apply to commands in claude's own sandbox.
    "sandbox": {"autoAllowBashIfSandboxed": False},
    # With these variables, claude would run no hooks.
    "env": {"CLAUDE_CODE_SIMPLE": "0", "CLAUDE_CODE_SAFE_MODE": "0"},
}


def common_options(spec: AgentSpec, run_dir: Path, *, allowed: Iterable[str] = ()) -> list[str]:
    """Return the options about settings, model, MCP servers and tools that need no permission.

    These tools are those of `allowed`, and those that never need one.
    """
    # A workspace's settings are used only if it is trusted: its hooks run without a permission.
    options = [f"--setting-sources={'user,project,local' if spec.trust_workspace else 'user'}"]
    last_note, _ = split_note(spec.note)
    last_model = last_note.removeprefix(PLANNING)
    # Without --model, a resumed claude uses the model's name without its suffix `[1m]`.
    if model := spec.model or (last_model if _MODEL.fullmatch(last_model) else ""):
        options += ["--model", model]
    if not spec.inherit_mcp:
        options.append("--strict-mcp-config")
    rules = [*allowed, *_read_rules(run_dir / FILES)]
    if spec.permissions != "deny":
        rules += [f"mcp__{name}" for name in spec.unasked_servers]
    return [*options, "--allowedTools", ",".join(rules)]


def ruling_options(spec: AgentSpec) -> list[str]:
    """Return the options that a process needs for RemoteClaw to decide about its actions."""
    return ["--settings", orjson.dumps(_RULED_SETTINGS).decode()] if is_ruled(spec) else []


def environment_of(spec: AgentSpec) -> dict[str, str]:
    """Return claude's whole environment."""
    # When a background task ends, claude begins a turn without a message. If it is parked by then,
    # no worker has the lease for that turn.
    return {**spec.env, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"}


def server_of(server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return the description of an MCP server in claude's format."""
    if server.url is not None:
        return {"type": "http", "url": server.url, "headers": server.headers}
    env = server_environment(server, run_dir)
    return {"type": "stdio", "command": server.command, "args": list(server.args), "env": env}


def _read_rules(directory: Path) -> list[str]:
    """Return the rules that let claude read in a directory, by its path and its resolved path.

    With `--add-dir`, claude would name the directory in its system prompt. As each process has
    another directory, that would break the prompt cache.
    """
    return [f"Read(/{path}/**)" for path in dict.fromkeys((directory, directory.resolve()))]
